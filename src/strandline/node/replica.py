"""One partition as this node hosts it: its log, its leader epoch, who waits for it.

A node that is the only replica commits what it appends at once: the high watermark follows the
log end. Everything that reads or writes records goes through this class, so that who may do so,
and how far readers may see, is decided in one place.
"""

from __future__ import annotations

from typing import Final

from strandline.errors import ErrorCode, ProtocolError
from strandline.node.purgatory import Purgatory, Watched
from strandline.records.batch import BatchHeader, WritableBuffer
from strandline.storage.log import Log
from strandline.storage.log_append import AppendResult
from strandline.types import NO_EPOCH, LeaderEpoch, Offset, TopicId, TopicPartition

READ_COMMITTED: Final = 1
"""The isolation level of consumers that must not see undecided transactions."""


class Replica(Watched):
    """A hosted partition that this node leads."""

    __slots__ = (
        "_flushable",
        "_purgatory",
        "is_retired",
        "leader_epoch",
        "log",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        log: Log,
        purgatory: Purgatory,
        flushable: dict[Replica, None],
    ) -> None:
        """`flushable` is where the replica enters itself when its log wants to be synced."""
        super().__init__()
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self.leader_epoch = NO_EPOCH
        self.is_retired = False
        self._purgatory = purgatory
        self._flushable = flushable

    def lead(self, leader_epoch: LeaderEpoch) -> None:
        """Lead under a new epoch; everything in the log is committed, as nobody else has it."""
        self.leader_epoch = leader_epoch
        # KAFKA-7415: the epoch begins where the log ends now, whether or not it writes anything.
        self.log.leader_epochs.assign(leader_epoch, self.log.log_end_offset)
        self.log.advance_high_watermark_to(self.log.log_end_offset)
        self.changed()

    def retire(self) -> None:
        """The partition is deleted: whoever waits for it finds out."""
        self.is_retired = True
        self.changed()

    def changed(self) -> None:
        """Have those who wait for this replica checked at the end of the turn."""
        if self.waiting:
            self._purgatory.changed(self)

    def append(self, records: WritableBuffer, now_ms: int) -> AppendResult:
        """Append one client batch and commit it. Raises `ProtocolError` and `StorageError`."""
        log = self.log
        result = log.append_as_leader(records, leader_epoch=self.leader_epoch, now_ms=now_ms)
        log.advance_high_watermark_to(log.log_end_offset)
        if self.waiting:
            self._purgatory.changed(self)
        if log.wants_flush:
            self._flushable[self] = None
        return result

    def append_validated(self, batch: memoryview, header: BatchHeader, now_ms: int) -> Offset:
        """Append and commit a client's batch that is known to be valid and no duplicate."""
        log = self.log
        base_offset = log.append_validated(batch, header, self.leader_epoch, now_ms)
        log.advance_high_watermark_to(log.log_end_offset)
        if self.waiting:
            self._purgatory.changed(self)
        if log.wants_flush:
            self._flushable[self] = None
        return base_offset

    def append_as_coordinator(self, records: WritableBuffer, now_ms: int) -> AppendResult:
        """Append a batch that this node itself wrote, and commit it."""
        result = self.log.append_as_coordinator(
            records, leader_epoch=self.leader_epoch, now_ms=now_ms
        )
        self.log.advance_high_watermark_to(self.log.log_end_offset)
        self.changed()
        if self.log.wants_flush:
            self._flushable[self] = None
        return result

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Refuse a request made for another leader epoch (KIP-320); -1 does not ask for one."""
        if current_leader_epoch in (NO_EPOCH, self.leader_epoch):
            return
        if current_leader_epoch < self.leader_epoch:
            raise ProtocolError(ErrorCode.FENCED_LEADER_EPOCH)
        raise ProtocolError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    def readable_end(self, isolation_level: int) -> Offset:
        """The offset below which a consumer may read."""
        log = self.log
        return log.last_stable_offset if isolation_level == READ_COMMITTED else log.high_watermark
