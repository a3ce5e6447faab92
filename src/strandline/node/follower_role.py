"""What a follower of a partition does to its log, as told by its leader.

Who the leader is, and what its answers mean, is decided by the fetchers (`replication.follower`);
here it is carried out, in the order that keeps every reader of this replica safe.
"""

from __future__ import annotations

from strandline.errors import CorruptRecords, StorageError
from strandline.node.hosted_replica import HostedReplica
from strandline.node.ledger.keeping import Reason
from strandline.node.replica_host import ReplicaHost
from strandline.records.batch import Buffer
from strandline.replication.follower import follower_high_watermark
from strandline.storage.log_appender import AppendResult
from strandline.types import Instant, Offset


class FollowerRole:
    """A replica while it follows, under one leader.

    The log start never passes the high watermark, nor that the log's end (I-01).
    """

    __slots__ = ("_host", "_log", "_replica")

    def __init__(self, replica: HostedReplica, host: ReplicaHost) -> None:
        self._replica = replica
        self._log = replica.log
        self._host = host

    def append(self, records: Buffer, now: Instant) -> AppendResult:
        """Append what the leader sent. Raises `CorruptRecords` and `StorageError`."""
        if self._log.offsets.needs_checkpoint:
            self._host.logs.save_lowered_offsets(self._log)  # what a full disk did not take then
        result = self._log.appender.append_as_follower(
            records, now.wall_ms, leader_epoch=self._replica.leader_epoch
        )
        self._replica.traffic.replication_in += len(records)
        self._replica.note_flush()
        return result

    def followed_to(self, high_watermark: int, log_start_offset: int, now: Instant) -> None:
        """After the records of an answer were appended: what the leader says of its offsets.

        The high watermark is clamped to this log, and may go down; then the log start is raised,
        never above it (specification, 1.5).
        """
        del now
        log = self._log
        before = (log.high_watermark, log.log_start_offset)
        if high_watermark != log.high_watermark:
            log.restore_high_watermark(
                follower_high_watermark(
                    Offset(high_watermark), log.log_start_offset, log.log_end_offset
                )
            )
        if log_start_offset > log.log_start_offset:
            log.retention.delete_records_to(Offset(min(log_start_offset, log.high_watermark)))
        if (log.high_watermark, log.log_start_offset) != before:
            self._replica.wake_high_watermark_waiters()

    def truncate_to(self, offset: Offset, now: Instant, reason: Reason) -> None:
        """Remove what the leader does not have. Raises `StorageError`."""
        self._host.ledgers.copy(self._replica, offset, reason, now)
        self._log.truncation.truncate_to(offset, now.wall_ms)
        self._truncated()

    def truncate_fully_to(self, offset: Offset, now: Instant) -> None:
        """Begin anew at the leader's log start. Raises `StorageError`."""
        self._host.ledgers.copy(self._replica, self._log.log_start_offset, Reason.BELOW_LEADER, now)
        self._log.truncation.truncate_fully_and_start_at(offset, now.wall_ms)
        self._truncated()

    def start_inside_batch(self, records: Buffer, offset: Offset, now: Instant) -> None:
        """Append records whose first batch begins at `offset`, below the end of this log.

        The leader's log starts inside that batch, which comes whole (KAFKA-6975). This log is
        emptied for it, and still starts where it ended. If the batch cannot be appended, the log is
        empty at that place again: it must not start beyond its end (I-01). Raises `CorruptRecords`
        and `StorageError`.
        """
        log = self._log
        end = log.log_end_offset
        self._host.ledgers.copy(self._replica, log.log_start_offset, Reason.INSIDE_BATCH, now)
        log.truncation.truncate_fully_and_start_at(offset, now.wall_ms, log_start_offset=end)
        try:
            self._truncated()
            self.append(records, now)
        except (CorruptRecords, StorageError):
            log.truncation.truncate_fully_and_start_at(end, now.wall_ms)
            self._truncated()
            raise

    def _truncated(self) -> None:
        self._host.logs.save_lowered_offsets(self._log)
        self._replica.changed()
