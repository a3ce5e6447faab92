"""What the leader of a partition does: append, follow its followers, keep the in-sync set.

The rules stand in `replication.leader`; here they are applied to the log, and waiting requests are
completed. `_appended` and `follower_fetched` are what one record costs on a leader.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from strandline.errors import ErrorCode, ProtocolError, StorageError
from strandline.node.hosted_replica import HostedReplica
from strandline.node.replica_host import ReplicaHost
from strandline.records.batch import BatchHeader, WritableBuffer
from strandline.records.own_batch import OwnBatch
from strandline.replication.in_sync import InSyncState, Shrinking
from strandline.replication.leader import Leader
from strandline.storage.files import NoRoom
from strandline.storage.log_appender import AppendResult
from strandline.storage.transaction_verification import NO_GUARD, Guard
from strandline.types import BrokerId, Instant, Offset

DEFINITE: Final = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED})
"""Refusals of an in-sync change after which it was certainly not made (specification, 2.1)."""


class LeaderRole:
    """A replica while it leads, in one leader epoch.

    - `state`: the followers' progress, the in-sync set, and where the high watermark may be.
    - `is_alone`: no other broker is to have the partition: what is appended is committed.

    The high watermark never falls here (I-10).
    """

    __slots__ = ("_host", "_log", "_replica", "is_alone", "state")

    def __init__(self, replica: HostedReplica, host: ReplicaHost, state: Leader) -> None:
        self.state = state
        self.is_alone = len(state.replicas) == 1
        self._replica = replica
        self._log = replica.log
        self._host = host

    # -- Appends -----------------------------------------------------------------------------

    def append(
        self,
        records: WritableBuffer,
        now: Instant,
        *,
        acks_all: bool = False,
        guard: Guard = NO_GUARD,
    ) -> AppendResult:
        """Append one client batch. Raises `ProtocolError` and `StorageError`.

        `acks_all` asks for enough in-sync replicas before anything is appended. `guard` is what
        `begin_verification` gave, if the batch may begin a transaction here.
        """
        self._check_appendable(acks_all=acks_all)
        try:
            result = self._log.appender.append_as_leader(
                records, leader_epoch=self.state.leader_epoch, now_ms=now.wall_ms, guard=guard
            )
        except StorageError as error:
            self._failed_to_append(error)
            raise
        if not result.is_duplicate:
            self._replica.traffic.bytes_in += result.size_bytes
            self._replica.traffic.records_in += result.last_offset - result.base_offset + 1
        self._appended(now)
        return result

    def verify_transactions(self) -> None:
        """Ask of transactional batches what the settings say."""
        broker = self._host.settings.broker
        self._log.producers.require_verification(broker.transaction_partition_verification_enable)

    def append_validated(self, batch: memoryview, header: BatchHeader, now: Instant) -> Offset:
        """Append a client's batch that is known to be valid and no duplicate, while leading."""
        base_offset = self._log.appender.append_validated(
            batch, header, self.state.leader_epoch, now.wall_ms
        )
        self._replica.traffic.bytes_in += len(batch)
        self._replica.traffic.records_in += header[6] + 1
        self._appended(now)
        return base_offset

    def append_own(
        self,
        batch: OwnBatch,
        now: Instant,
        *,
        transaction_version: int = 0,
        guard: Guard = NO_GUARD,
    ) -> Offset:
        """Append a batch that this node itself wrote, under the rules of acks=all; returns the
        high watermark that commits it."""
        self._check_appendable(acks_all=True)
        try:
            base_offset = self._log.appender.append_own(
                batch,
                leader_epoch=self.state.leader_epoch,
                now_ms=now.wall_ms,
                transaction_version=transaction_version,
                guard=guard,
            )
        except StorageError as error:
            self._failed_to_append(error)
            raise
        self._appended(now)
        return Offset(base_offset + batch.header.record_count)

    def _failed_to_append(self, error: StorageError) -> None:
        """A disk that fails is not used any more (F-46); one that is full only for now (F-48)."""
        if not isinstance(error, NoRoom) or self._log.failure is not None:
            self._replica.fail(error)

    def _check_appendable(self, *, acks_all: bool) -> None:
        leader = self.state
        if acks_all and not leader.has_min_in_sync:
            raise ProtocolError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self._replica.topic_partition} has {len(leader.in_sync.members)} in-sync "
                f"replicas, but acks=all needs {leader.effective_min_in_sync}.",
            )

    def _appended(self, now: Instant) -> None:
        log, replica = self._log, self._replica
        for listener in replica.listeners:
            listener.on_change(completes_fetch=True)
        if self.is_alone:
            log.advance_high_watermark_to(log.offsets.log_end_offset)
            replica.wake_high_watermark_waiters()
        else:
            self.advance(now)
        if replica.log_end_waiters.waiters:
            self._host.purgatory.changed(replica.log_end_waiters)
        if log.flusher.wants_flush:
            self._host.flushable[log] = None

    @property
    def outcome(self) -> ErrorCode:
        """What becomes of an append with acks=all that the high watermark has passed."""
        if self.state.has_maximal_min_in_sync:
            return ErrorCode.NONE
        return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

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
        leader = self.state
        has_moved = leader.fetched(
            follower,
            offset=offset,
            log_start_offset=log_start_offset,
            broker_epoch=broker_epoch,
            log_end_offset=self._log.log_end_offset,
            now_ms=now.monotonic_ms,
        )
        if (
            follower not in leader.in_sync.members
            and self._may_join(follower)
            and leader.maybe_expand(
                follower, high_watermark=self._log.high_watermark, may_join=True
            )
        ):
            self._host.propose(self._replica, now)
        if has_moved:
            self.advance(now)
        self._replica.wake_low_watermark_waiters()

    def check_lag(self, now: Instant) -> None:
        """Let the time that has passed count: members may have fallen behind, and replicas that
        are none may have stopped to hold the high watermark back (D-03)."""
        if self.is_alone:
            return
        if self.state.maybe_shrink(self._log.log_end_offset, now.monotonic_ms):
            self._host.propose(self._replica, now)
        self.advance(now)

    def begin(self, now: Instant) -> None:
        """Leadership has just begun."""
        self.verify_transactions()
        self._let_go(now)
        self.advance(now)

    def brokers_changed(self, now: Instant) -> None:
        """Other brokers came, went or began to shut down: who may join decides the watermarks."""
        if not self.is_alone:
            self._let_go(now)
            self.advance(now)
            self._replica.wake_low_watermark_waiters()

    def _let_go(self, now: Instant) -> None:
        """Propose the in-sync set without brokers that are about to stop, if there are any."""
        if not self.is_alone and self.state.maybe_let_go(self._host.stopping):
            self._host.propose(self._replica, now)

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
        if self.state.committed(members, partition_epoch, has_eligible):
            self._tell_listeners()
            self._let_go(now)
            self.advance(now)
        # The set may be known from the answer to a proposal, but not yet who is eligible now.
        self._replica.wake_low_watermark_waiters()

    def in_sync_refused(
        self,
        code: ErrorCode,
        now: Instant,
        proposal: InSyncState | None = None,
        *,
        is_open: bool = False,
    ) -> None:
        """The controller has refused a proposed in-sync set; see `Leader.refused`."""
        state = self.state.in_sync
        tried: frozenset[BrokerId] = state.leaving if isinstance(state, Shrinking) else frozenset()
        if self.state.refused(definite=code in DEFINITE, proposal=proposal, is_open=is_open):
            # Another member may have begun to stop, and so was no member for a new set. If all
            # that stop were tried, only other metadata make another try worthwhile.
            if not self._host.stopping & self.state.in_sync.members <= tried:
                self._let_go(now)
            self.advance(now)

    def reassigned(self, replicas: tuple[BrokerId, ...], now: Instant) -> None:
        """The partition is to be on these brokers, under the same leader."""
        if self.state.replicas != replicas:
            self.state.reassigned(replicas)
            self.is_alone = len(replicas) == 1
            self._tell_listeners()
            self.advance(now)
            self._replica.wake_low_watermark_waiters()

    def reconfigured(self, now: Instant) -> None:
        """The topic's settings have changed (the log has them already)."""
        self.state.min_in_sync = self._log.config.min_insync_replicas
        self.verify_transactions()
        self.advance(now)

    @property
    def low_watermark(self) -> Offset:
        """Where the log starts on every replica that lives or may be elected when it is back.

        Kafka asks the live ones only. But an eligible leader replica (KIP-966) that is away may
        lead as soon as it is back, and what was said to be deleted would be there again (I-27).
        """
        leader = self.state
        state = self._host.metadata.image.partition(self._replica.topic_partition)
        electable = set(leader.in_sync.maximal)
        if state is not None:
            electable.update(state.elr)
            if state.partition_epoch < leader.partition_epoch:
                # A set was committed, and who of the former one is eligible is not known yet.
                electable.update(state.in_sync_replicas)
        return leader.low_watermark(
            self._log.offsets.log_start_saved,
            lambda b: b in electable or self._host.is_there(b, self._replica.topic_partition),
        )

    def advance(self, now: Instant) -> None:
        """Move the high watermark as far as the leader's rule allows."""
        log = self._log
        committed = self.state.next_high_watermark(
            log.high_watermark, log.log_end_offset, now.monotonic_ms, may_join=self._may_join
        )
        if committed > log.high_watermark:
            log.advance_high_watermark_to(committed)
            self._tell_listeners()
            self._replica.wake_high_watermark_waiters()

    def _tell_listeners(self) -> None:
        """Mark followers' sessions dirty without completing parked fetches."""
        for listener in self._replica.listeners:
            listener.on_change(completes_fetch=False)

    def _may_join(self, follower: BrokerId) -> bool:
        progress = self.state.progress.get(follower)
        return progress is not None and self._host.may_join(
            follower, progress.broker_epoch, self._replica.topic_partition
        )
