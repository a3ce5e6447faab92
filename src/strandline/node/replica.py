"""One partition as this node hosts it: its log, its role, who waits for it.

Everything that reads or writes records goes through this class, so that who may do so, and how far
readers may see, is decided in one place. A replica leads (`leader` holds what that takes, for one
leader epoch) or follows; `become_leader` and `become_follower` are the only doors between the two.
The rules of the high watermark and of the in-sync set stand in `replication`; this file brings
them together with the log, and wakes those who wait.

Consumers and produces with acks=all wait for the replica, that is for its high watermark.
Followers wait for its `growth`, and DeleteRecords for its `low_watch`: neither is woken in vain.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from strandline.cluster.image import PartitionImage
from strandline.errors import ErrorCode, ProtocolError, StorageError
from strandline.node.commit_queue import CommitQueue, Decided
from strandline.node.purgatory import Watched
from strandline.node.replica_host import ReplicaHost
from strandline.records.batch import BatchHeader, Buffer, WritableBuffer
from strandline.replication.in_sync import InSyncState
from strandline.replication.leader import Leader
from strandline.storage.log import Log
from strandline.storage.log_append import AppendResult
from strandline.types import (
    NO_EPOCH,
    BrokerId,
    Instant,
    LeaderEpoch,
    Offset,
    TopicId,
    TopicPartition,
)

READ_COMMITTED: Final = 1
"""The isolation level of consumers that must not see undecided transactions."""

NOBODY: Final = BrokerId(-1)
"""The leader of a partition that has none, as far as this node knows."""

_DEFINITE: Final = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED})
"""Refusals of an in-sync change after which it was certainly not made (specification, 2.1)."""


class Replica(Watched):
    """A hosted partition.

    - `leader_epoch`, `leader_id`: the newest leadership that this node was told of, its own or
      another's; -1 before the first.
    - `leader`: not None while this node leads the partition.
    - `is_retired`: the partition is deleted, or is no longer to be on this node.
    """

    __slots__ = (
        "_commits",
        "_host",
        "_is_alone",
        "growth",
        "is_retired",
        "leader",
        "leader_epoch",
        "leader_id",
        "log",
        "low_watch",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self, topic_partition: TopicPartition, topic_id: TopicId, log: Log, host: ReplicaHost
    ) -> None:
        super().__init__()
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self.leader: Leader | None = None
        self.leader_epoch: LeaderEpoch = NO_EPOCH
        self.leader_id = NOBODY
        self.is_retired = False
        self.growth = Watched()
        """For those who read up to the log's end, however little of it is committed."""
        self.low_watch: Watched | None = None
        """For those who wait until records are deleted everywhere; made when there is one."""
        self._host = host
        self._commits: CommitQueue | None = None
        self._is_alone = False

    # -- Roles -------------------------------------------------------------------------------

    @property
    def is_leading(self) -> bool:
        return self.leader is not None

    def become_leader(self, state: PartitionImage, now: Instant) -> None:
        """Lead in a new epoch. Nothing is truncated (I-10); raises `StorageError`."""
        log, host = self.log, self._host
        # KAFKA-7415: the epoch begins where the log ends now, whether or not it writes anything.
        log.leader_epochs.assign(state.leader_epoch, log.log_end_offset)
        self.leader = Leader(
            host.broker_id,
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
            start_offset=log.log_end_offset,
            replicas=state.replicas,
            in_sync=state.in_sync_replicas,
            lag_max_ms=host.lag_max_ms,
            min_in_sync=log.config.min_insync_replicas,
            now_ms=now.monotonic_ms,
            former=self.leader,
            policies=host.policies,
        )
        self.leader_epoch = state.leader_epoch
        self.leader_id = host.broker_id
        self._is_alone = len(state.replicas) == 1
        self._advance(now)
        self.changed()

    def become_follower(self, state: PartitionImage) -> None:
        """Follow another leader, or wait for one (-1)."""
        self.leader_epoch = state.leader_epoch
        self.leader_id = state.leader
        self._stop_leading(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def retire(self, code: ErrorCode) -> None:
        """The partition is gone from this node: whoever waits for it is told `code`."""
        self.is_retired = True
        self.leader_id = NOBODY
        self._stop_leading(code)

    def _stop_leading(self, code: ErrorCode) -> None:
        self.leader = None
        self._is_alone = False
        if self._commits is not None:
            # Now, and not at the end of the turn: the node might lead again by then.
            self._commits.condemn(code)
        self.changed()

    def changed(self) -> None:
        """Have all who wait for anything of this replica checked at the end of the turn."""
        purgatory = self._host.purgatory
        purgatory.changed(self)
        purgatory.changed(self.growth)
        if self.low_watch is not None:
            purgatory.changed(self.low_watch)

    # -- Leading: appends --------------------------------------------------------------------

    def append(
        self, records: WritableBuffer, now: Instant, *, acks_all: bool = False
    ) -> AppendResult:
        """Append one client batch. Raises `ProtocolError` and `StorageError`.

        `acks_all` asks for enough in-sync replicas before anything is appended.
        """
        self._check_leading(acks_all=acks_all)
        result = self.log.append_as_leader(
            records, leader_epoch=self.leader_epoch, now_ms=now.wall_ms
        )
        self._appended(now)
        return result

    def append_validated(self, batch: memoryview, header: BatchHeader, now: Instant) -> Offset:
        """Append a client's batch that is known to be valid and no duplicate, while leading."""
        base_offset = self.log.append_validated(batch, header, self.leader_epoch, now.wall_ms)
        self._appended(now)
        return base_offset

    def append_as_coordinator(self, records: WritableBuffer, now: Instant) -> AppendResult:
        """Append a batch that this node itself wrote, under the rules of acks=all."""
        self._check_leading(acks_all=True)
        result = self.log.append_as_coordinator(
            records, leader_epoch=self.leader_epoch, now_ms=now.wall_ms
        )
        self._appended(now)
        return result

    def _check_leading(self, *, acks_all: bool) -> None:
        leader = self.leader
        if leader is None:
            raise ProtocolError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if acks_all and not leader.has_min_in_sync:
            raise ProtocolError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self.topic_partition} has {len(leader.in_sync.members)} in-sync replicas, but "
                f"acks=all needs {leader.effective_min_in_sync}.",
            )

    def _appended(self, now: Instant) -> None:
        log, host = self.log, self._host
        if self._is_alone:
            log.advance_high_watermark_to(log.log_end_offset)
            if self.waiting or self._commits:
                host.purgatory.changed(self)
        else:
            self._advance(now)
        if self.growth.waiting:
            host.purgatory.changed(self.growth)
        if log.wants_flush:
            host.flushable[self] = None

    def commit_outcome(self, required: Offset) -> ErrorCode | None:
        """What became of an append that is committed at this high watermark; None if undecided."""
        leader = self.leader
        if leader is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.log.high_watermark < required:
            return None
        return self._outcome(leader)

    def await_commit(self, required: Offset, decided: Decided, *, deadline_ms: int) -> None:
        """Tell `decided` once, at the end of the turn in which it is known, but not later than at
        the monotonic time `deadline_ms`, what became of an undecided append."""
        commits = self._commits
        if commits is None:
            commits = self._commits = CommitQueue(self._host.timers, self._commits_due)
        commits.add(required, decided, deadline_ms)

    def settle(self, now: Instant) -> None:
        """Tell those who wait for a commit that is decided."""
        commits, leader = self._commits, self.leader
        if commits:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER if leader is None else self._outcome(leader)
            commits.settle(self.log.high_watermark, code, now)

    def _commits_due(self, now: Instant) -> None:
        if self._commits is not None:
            self.settle(now)  # what is committed by now was in time
            self._commits.expire(now)

    @staticmethod
    def _outcome(leader: Leader) -> ErrorCode:
        if leader.has_maximal_min_in_sync:
            return ErrorCode.NONE
        return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    # -- Leading: followers and the in-sync set ----------------------------------------------

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
        leader = self.leader
        if leader is None:
            raise ProtocolError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
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
            and leader.maybe_expand(
                follower, high_watermark=self.log.high_watermark, may_join=True
            )
        ):
            self._host.propose(self, now)
        if has_moved:
            self._advance(now)
        if self.low_watch is not None and self.low_watch.waiting:
            self._host.purgatory.changed(self.low_watch)

    def check_lag(self, now: Instant) -> None:
        """Let the time that has passed count: members may have fallen behind, and replicas that
        are none may have stopped to hold the high watermark back (D-03)."""
        leader = self.leader
        if leader is None or self._is_alone:
            return
        if leader.maybe_shrink(self.log.log_end_offset, now.monotonic_ms):
            self._host.propose(self, now)
        self._advance(now)

    def brokers_changed(self, now: Instant) -> None:
        """Other brokers came, went or began to shut down: who may join decides the watermarks."""
        if self.leader is not None and not self._is_alone:
            self._advance(now)
            if self.low_watch is not None:
                self._host.purgatory.changed(self.low_watch)

    def in_sync_committed(
        self, members: Collection[BrokerId], partition_epoch: int, now: Instant
    ) -> None:
        """The controller has committed an in-sync set, the proposed one or another."""
        if self.leader is not None and self.leader.committed(members, partition_epoch):
            self._advance(now)

    def in_sync_refused(
        self, code: ErrorCode, now: Instant, proposal: InSyncState | None = None
    ) -> None:
        """The controller has refused a proposed in-sync set."""
        leader = self.leader
        if leader is not None and leader.refused(definite=code in _DEFINITE, proposal=proposal):
            self._advance(now)

    def reassigned(self, replicas: tuple[BrokerId, ...], now: Instant) -> None:
        """The partition is to be on these brokers, under the same leader."""
        if self.leader is not None and self.leader.replicas != replicas:
            self.leader.reassigned(replicas)
            self._is_alone = len(replicas) == 1
            self._advance(now)

    def reconfigured(self, now: Instant) -> None:
        """The topic's settings have changed (the log has them already)."""
        if self.leader is not None:
            self.leader.min_in_sync = self.log.config.min_insync_replicas
            self._advance(now)

    @property
    def low_watermark(self) -> Offset:
        """Where the log starts on every live replica. Raises NOT_LEADER_OR_FOLLOWER."""
        if self.leader is None:
            raise ProtocolError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self.leader.low_watermark(self.log.log_start_offset, self._host.is_alive)

    def watch_low_watermark(self) -> Watched:
        """What changes when the low watermark may have risen."""
        if self.low_watch is None:
            self.low_watch = Watched()
        return self.low_watch

    def _advance(self, now: Instant) -> None:
        """Move the high watermark as far as the leader's rule allows."""
        leader, log = self.leader, self.log
        if leader is None:
            return
        committed = leader.next_high_watermark(
            log.high_watermark, log.log_end_offset, now.monotonic_ms, may_join=self._may_join
        )
        if committed > log.high_watermark:
            log.advance_high_watermark_to(committed)
            if self.waiting or self._commits:
                self._host.purgatory.changed(self)

    def _may_join(self, follower: BrokerId) -> bool:
        leader = self.leader
        progress = leader.progress.get(follower) if leader is not None else None
        return progress is not None and self._host.may_join(follower, progress.broker_epoch)

    # -- Following ---------------------------------------------------------------------------

    def append_as_follower(self, records: Buffer, now: Instant) -> AppendResult:
        """Append what the leader sent. Raises `CorruptRecords` and `StorageError`."""
        result = self.log.append_as_follower(records, now.wall_ms, leader_epoch=self.leader_epoch)
        if self.log.wants_flush:
            self._host.flushable[self] = None
        return result

    def followed_to(self, high_watermark: int, log_start_offset: int, now: Instant) -> None:
        """After the records of an answer were appended: what the leader says of its offsets.

        The high watermark is clamped to this log, and may go down; then the log start is raised,
        never above it (specification, 1.5).
        """
        del now
        log = self.log
        before = log.high_watermark
        if high_watermark != before:
            log.restore_high_watermark(Offset(high_watermark))
        if log_start_offset > log.log_start_offset:
            log.delete_records_to(Offset(min(log_start_offset, log.high_watermark)))
        if log.high_watermark != before and self.waiting:
            self._host.purgatory.changed(self)

    def truncate_to(self, offset: Offset, now: Instant) -> None:
        """Remove what the leader does not have. Raises `StorageError`."""
        self.log.truncate_to(offset, now.wall_ms)
        self._truncated()

    def truncate_fully_to(self, offset: Offset, now: Instant) -> None:
        """Begin anew at the leader's log start. Raises `StorageError`."""
        self.log.truncate_fully_and_start_at(offset, now.wall_ms)
        self._truncated()

    def _truncated(self) -> None:
        self._host.logs.save_recovery_point(self.log)
        self.changed()

    def fail(self, error: StorageError) -> None:
        """The disk under the log failed: it takes no more records, nor does its directory."""
        self._host.logs.fail(self.log, error)
        self.changed()

    # -- Reading -----------------------------------------------------------------------------

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
