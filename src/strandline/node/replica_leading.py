"""What the leader of a partition does: append, follow its followers, keep the in-sync set.

The rules stand in `replication.leader`; here they meet the log, and those who wait are woken.
`_appended` and `follower_fetched` are what one record costs on a leader.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from strandline.errors import ErrorCode, ProtocolError, StorageError
from strandline.node.purgatory import Watched
from strandline.node.replica_state import ReplicaState
from strandline.records.batch import BatchHeader, WritableBuffer
from strandline.replication.in_sync import InSyncState
from strandline.storage.files import NoRoom
from strandline.storage.log_appender import AppendResult
from strandline.types import BrokerId, Instant, Offset

DEFINITE: Final = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED})
"""Refusals of an in-sync change after which it was certainly not made (specification, 2.1)."""


class LeadsPartition(ReplicaState):
    """The part of `replica.Replica` that leads."""

    __slots__ = ()

    # -- Appends -----------------------------------------------------------------------------

    def append(
        self, records: WritableBuffer, now: Instant, *, acks_all: bool = False
    ) -> AppendResult:
        """Append one client batch. Raises `ProtocolError` and `StorageError`.

        `acks_all` asks for enough in-sync replicas before anything is appended.
        """
        self._check_appendable(acks_all=acks_all)
        try:
            result = self.log.appender.append_as_leader(
                records, leader_epoch=self.leader_epoch, now_ms=now.wall_ms
            )
        except StorageError as error:
            self._failed_to_append(error)
            raise
        if not result.is_duplicate:
            self.traffic.bytes_in += result.size_bytes
            self.traffic.records_in += result.last_offset - result.base_offset + 1
        self._appended(now)
        return result

    def append_validated(self, batch: memoryview, header: BatchHeader, now: Instant) -> Offset:
        """Append a client's batch that is known to be valid and no duplicate, while leading."""
        base_offset = self.log.appender.append_validated(
            batch, header, self.leader_epoch, now.wall_ms
        )
        self.traffic.bytes_in += len(batch)
        self.traffic.records_in += header[6] + 1
        self._appended(now)
        return base_offset

    def append_as_coordinator(self, records: WritableBuffer, now: Instant) -> AppendResult:
        """Append a batch that this node itself wrote, under the rules of acks=all."""
        self._check_appendable(acks_all=True)
        try:
            result = self.log.appender.append_as_coordinator(
                records, leader_epoch=self.leader_epoch, now_ms=now.wall_ms
            )
        except StorageError as error:
            self._failed_to_append(error)
            raise
        self._appended(now)
        return result

    def _failed_to_append(self, error: StorageError) -> None:
        """A disk that fails is not used any more (F-46); one that is full only for now (F-48)."""
        if not isinstance(error, NoRoom) or self.log.failure is not None:
            self.fail(error)

    def _check_appendable(self, *, acks_all: bool) -> None:
        leader = self.check_leading()
        if acks_all and not leader.has_min_in_sync:
            raise ProtocolError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self.topic_partition} has {len(leader.in_sync.members)} in-sync replicas, but "
                f"acks=all needs {leader.effective_min_in_sync}.",
            )

    def _appended(self, now: Instant) -> None:
        log, host = self.log, self.host
        for listener in self.listeners:
            listener.on_change(self, completes_fetch=True)
        if self.is_alone:
            log.advance_high_watermark_to(log.log_end_offset)
            if self.waiters or self._commits:
                host.purgatory.changed(self)
        else:
            self.advance(now)
        if self.log_end_waiters.waiters:
            host.purgatory.changed(self.log_end_waiters)
        if log.flusher.wants_flush:
            host.flushable[self] = None

    # -- Followers and the in-sync set -------------------------------------------------------

    def follower_fetched(
        self,
        follower: BrokerId,
        *,
        offset: Offset,
        log_start_offset: Offset,
        broker_epoch: int,
        now: Instant,
    ) -> None:
        """Steps 7 to 10 of a follower's fetch, after it was read (specification, 1.4)."""
        leader = self.check_leading()
        has_moved = leader.fetched(
            follower,
            offset=offset,
            log_start_offset=log_start_offset,
            broker_epoch=broker_epoch,
            log_end_offset=self.log.log_end_offset,
            now_ms=now.monotonic_ms,
        )
        if (
            follower not in leader.in_sync.members
            and self._may_join(follower)
            and leader.maybe_expand(follower, high_watermark=self.log.high_watermark, may_join=True)
        ):
            self.host.propose(self, now)
        if has_moved:
            self.advance(now)
        if self.low_watermark_waiters is not None and self.low_watermark_waiters.waiters:
            self.host.purgatory.changed(self.low_watermark_waiters)

    def check_lag(self, now: Instant) -> None:
        """Let the time that has passed count: members may have fallen behind, and replicas that
        are none may have stopped to hold the high watermark back (D-03)."""
        leader = self.leader
        if leader is None or self.is_alone:
            return
        if leader.maybe_shrink(self.log.log_end_offset, now.monotonic_ms):
            self.host.propose(self, now)
        self.advance(now)

    def brokers_changed(self, now: Instant) -> None:
        """Other brokers came, went or began to shut down: who may join decides the watermarks."""
        if self.leader is not None and not self.is_alone:
            self.advance(now)
            self.wake_low_watermark_waiters()

    def wake_low_watermark_waiters(self) -> None:
        """Somebody who is waited for may be away for good."""
        if self.low_watermark_waiters is not None:
            self.host.purgatory.changed(self.low_watermark_waiters)

    def in_sync_committed(
        self,
        members: Collection[BrokerId],
        partition_epoch: int,
        now: Instant,
        *,
        has_eligible: bool | None = None,
    ) -> None:
        """The controller has committed an in-sync set, the proposed one or another. Whether others
        are eligible beside it is told by the metadata only; see `Leader.committed`."""
        if self.leader is None:
            return
        if self.leader.committed(members, partition_epoch, has_eligible):
            self._tell_listeners()
            self.advance(now)
        # The set may be known from the answer to a proposal, but not yet who is eligible now.
        self.wake_low_watermark_waiters()

    def in_sync_refused(
        self,
        code: ErrorCode,
        now: Instant,
        proposal: InSyncState | None = None,
        *,
        is_open: bool = False,
    ) -> None:
        """The controller has refused a proposed in-sync set; see `Leader.refused`."""
        leader = self.leader
        if leader is not None and leader.refused(
            definite=code in DEFINITE, proposal=proposal, is_open=is_open
        ):
            self.advance(now)

    def reassigned(self, replicas: tuple[BrokerId, ...], now: Instant) -> None:
        """The partition is to be on these brokers, under the same leader."""
        if self.leader is not None and self.leader.replicas != replicas:
            self.leader.reassigned(replicas)
            self.is_alone = len(replicas) == 1
            self._tell_listeners()
            self.advance(now)
            self.wake_low_watermark_waiters()

    def reconfigured(self, now: Instant) -> None:
        """The topic's settings have changed (the log has them already)."""
        if self.leader is not None:
            self.leader.min_in_sync = self.log.config.min_insync_replicas
            self.advance(now)

    @property
    def low_watermark(self) -> Offset:
        """Where the log starts on every replica that lives or may be elected when it is back.

        Kafka asks the live ones only. But an eligible leader replica (KIP-966) that is away may
        lead as soon as it is back, and what was said to be deleted would be there again (I-27).
        Raises NOT_LEADER_OR_FOLLOWER.
        """
        leader = self.check_leading()
        state = self.host.metadata.image.partition(self.topic_partition)
        electable = (
            set(leader.in_sync.maximal) if state is None else {*leader.in_sync.maximal, *state.elr}
        )
        return leader.low_watermark(
            self.log.offsets.log_start_saved,
            lambda b: b in electable or self.host.is_there(b, self.topic_partition),
        )

    def watch_low_watermark(self) -> Watched:
        """What changes when the low watermark may have risen."""
        if self.low_watermark_waiters is None:
            self.low_watermark_waiters = Watched()
        return self.low_watermark_waiters

    def advance(self, now: Instant) -> None:
        """Move the high watermark as far as the leader's rule allows."""
        leader, log = self.leader, self.log
        if leader is None:
            return
        committed = leader.next_high_watermark(
            log.high_watermark, log.log_end_offset, now.monotonic_ms, may_join=self._may_join
        )
        if committed > log.high_watermark:
            log.advance_high_watermark_to(committed)
            self._tell_listeners()
            if self.waiters or self._commits:
                self.host.purgatory.changed(self)

    def _tell_listeners(self) -> None:
        """Followers are to be told something, or looked at again, but not because of this alone."""
        for listener in self.listeners:
            listener.on_change(self, completes_fetch=False)

    def _may_join(self, follower: BrokerId) -> bool:
        leader = self.leader
        progress = leader.progress.get(follower) if leader is not None else None
        return progress is not None and self.host.may_join(follower, progress.broker_epoch)
