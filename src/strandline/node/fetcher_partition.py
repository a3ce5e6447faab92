"""One partition that is being fetched: what was asked for it, and how an answer is carried out.

This file knows the order in which an answer changes the follower's replica (replication
specification 1.5): the records first, then the high watermark, then the log start; a log that has
diverged is cut, and nothing else of that answer is used. It must not know other partitions,
requests or links.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from strandline.errors import ErrorCode
from strandline.node.replica import Replica
from strandline.node.timers import Timer
from strandline.protocol.messages.fetch import PartitionData
from strandline.replication.follower import Action, Asked, FetchAnswer, Followed, judge
from strandline.replication.truncation import EpochEnd
from strandline.storage.log import Log
from strandline.types import Instant, LeaderEpoch, Offset, TopicId

Key: TypeAlias = tuple[TopicId, int]
"""Topic id and partition: a topic that was created anew is another one."""


class Wanted(NamedTuple):
    """What a fetch request says about one partition."""

    offset: Offset
    leader_epoch: LeaderEpoch
    last_fetched_epoch: LeaderEpoch
    log_start_offset: Offset


class LogHistory:
    """The leader epochs of a log, as truncation asks for them."""

    __slots__ = ("_log",)

    def __init__(self, log: Log) -> None:
        self._log = log

    @property
    def latest(self) -> LeaderEpoch:
        """The newest epoch, or `NO_EPOCH`."""
        return self._log.leader_epochs.latest

    def end_offset_for_epoch(self, epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset]:
        """The largest epoch up to `epoch`, and where it ends."""
        return self._log.end_offset_for_epoch(epoch)


class FetchedPartition:
    """A replica that follows in one leader epoch. Another epoch is another object (KAFKA-7164).

    `asked` is what the last request that named the partition said, or None before the first one:
    an answer to anything else is too late. `held` is the timer of a pause; while there is one the
    partition is not fetched. `is_stuck` says that only new metadata can bring it back.
    """

    __slots__ = ("asked", "held", "history", "is_in_sync", "is_stuck", "key", "replica")

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.key: Key = (replica.topic_id, replica.topic_partition.partition)
        self.history = LogHistory(replica.log)
        self.asked: Asked | None = None
        self.held: Timer | None = None
        self.is_stuck = False
        self.is_in_sync = False

    def wanted(self) -> Wanted:
        """What to ask for now: what follows the log's end (truncation happens on the answer)."""
        replica = self.replica
        log = replica.log
        return Wanted(
            log.log_end_offset,
            replica.leader_epoch,
            log.leader_epochs.latest,
            log.log_start_offset,
        )

    def judge(self, data: PartitionData) -> Action | None:
        """What the answer means; None if it was not asked for."""
        if self.asked is None:
            return None
        replica = self.replica
        log = replica.log
        diverging = data.diverging_epoch
        if diverging is not None and diverging.end_offset < 0:
            diverging = None
        answer = FetchAnswer(
            ErrorCode(data.error_code),
            Offset(data.high_watermark),
            Offset(data.log_start_offset),
            diverging
            and EpochEnd(LeaderEpoch(diverging.epoch), Offset(diverging.end_offset)),
            bool(data.records),
        )
        followed = Followed(
            replica.leader_epoch, log.log_end_offset, log.high_watermark, self.history
        )
        return judge(answer, self.asked, followed)

    def append(
        self,
        records: memoryview | None,
        high_watermark: Offset,
        log_start_offset: Offset,
        now: Instant,
    ) -> int:
        """Write what the leader has sent and follow its offsets; returns the bytes appended.

        Raises `CorruptRecords` and `StorageError`; the offsets are not followed then.
        """
        replica = self.replica
        size = 0
        if records:
            size = replica.append_as_follower(records, now).size_bytes
        replica.followed_to(high_watermark, log_start_offset, now)
        self.is_in_sync = replica.log.log_end_offset >= high_watermark
        return size
