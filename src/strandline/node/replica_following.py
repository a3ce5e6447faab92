"""What a follower of a partition does to its log, as told by its leader.

Who the leader is, and what its answers mean, is decided by the fetchers (`replication.follower`);
here it is carried out, in the order that keeps every reader of this replica safe.
"""

from __future__ import annotations

from strandline.node.replica_state import ReplicaState
from strandline.records.batch import Buffer
from strandline.replication.follower import follower_high_watermark
from strandline.storage.log_append import AppendResult
from strandline.types import Instant, Offset


class FollowsPartition(ReplicaState):
    """The part of `replica.Replica` that follows."""

    __slots__ = ()

    def append_as_follower(self, records: Buffer, now: Instant) -> AppendResult:
        """Append what the leader sent. Raises `CorruptRecords` and `StorageError`."""
        result = self.log.append_as_follower(records, now.wall_ms, leader_epoch=self.leader_epoch)
        self.note_flush()
        return result

    def followed_to(self, high_watermark: int, log_start_offset: int, now: Instant) -> None:
        """After the records of an answer were appended: what the leader says of its offsets.

        The high watermark is clamped to this log, and may go down; then the log start is raised,
        never above it (specification, 1.5).
        """
        del now
        log = self.log
        before = (log.high_watermark, log.log_start_offset)
        if high_watermark != log.high_watermark:
            log.restore_high_watermark(
                follower_high_watermark(
                    Offset(high_watermark), log.log_start_offset, log.log_end_offset
                )
            )
        if log_start_offset > log.log_start_offset:
            log.delete_records_to(Offset(min(log_start_offset, log.high_watermark)))
        if self.waiting and (log.high_watermark, log.log_start_offset) != before:
            self.host.purgatory.changed(self)

    def truncate_to(self, offset: Offset, now: Instant) -> None:
        """Remove what the leader does not have. Raises `StorageError`."""
        self.log.truncate_to(offset, now.wall_ms)
        self._truncated()

    def truncate_fully_to(self, offset: Offset, now: Instant) -> None:
        """Begin anew at the leader's log start. Raises `StorageError`."""
        self.log.truncate_fully_and_start_at(offset, now.wall_ms)
        self._truncated()

    def start_inside_batch(self, offset: Offset, now: Instant) -> None:
        """Empty the log for a batch that begins at `offset`; the log still starts where it ended.

        The leader's log starts inside that batch, which comes whole (KAFKA-6975). Raises
        `StorageError`.
        """
        self.log.truncate_fully_and_start_at(
            offset, now.wall_ms, log_start_offset=self.log.log_end_offset
        )
        self._truncated()

    def _truncated(self) -> None:
        self.host.logs.save_cut(self.log)
        self.changed()
