"""One partition as this node hosts it: its log, its role, who waits for it.

Everything that reads or writes records goes through this class, so that who may do so, and how far
readers may see, is decided in one place. Its role is an object: `leading` holds what leading takes,
for one leader epoch, `following` what a follower does; with neither it waits for a leader.
`become_leader`, `become_follower` and `retire` are the only doors between them.

Consumers and produces with acks=all wait for the high watermark: they are the `waiters` of the
replica itself. Followers are among its `log_end_waiters`, and DeleteRecords among its
`low_watermark_waiters`: neither is woken in vain.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from strandline.cluster.image import PartitionImage
from strandline.errors import ErrorCode, InvariantViolated, ProtocolError, StorageError
from strandline.node.commit_queue import CommitQueue, Decided
from strandline.node.follower_role import FollowerRole
from strandline.node.hosted_replica import Listener, Traffic
from strandline.node.leader_role import LeaderRole
from strandline.node.purgatory import Watched
from strandline.node.replica_host import ReplicaHost
from strandline.replication.in_sync import InSyncState
from strandline.replication.leader import Leader
from strandline.storage.files import UnreadableFile
from strandline.storage.log import Log
from strandline.types import (
    NO_EPOCH,
    NO_LEADER,
    BrokerId,
    Instant,
    LeaderEpoch,
    Offset,
    TopicId,
    TopicPartition,
)

READ_COMMITTED: Final = 1
"""The isolation level of consumers that must not see undecided transactions."""

"""The leader of a partition that has none, as far as this node knows."""


class Replica(Watched):
    """A hosted partition.

    - `leader_epoch`, `leader_id`: the newest leadership that this node was told of, its own or
      another's; -1 before the first.
    - `leading`, `following`: its role; at most one is not None. It follows if it has a leader that
      it can follow. One that is named as leader by a state from before its restart has none: the
      state will change.
    - `is_retired`: the partition is deleted, or is no longer to be on this node.
    - `log_end_waiters`: those who read up to the log's end, however little of it is committed.
    - `low_watermark_waiters`: those who wait until records are deleted everywhere; made when there
      is one.
    - `listeners`: followers' sessions; each hears of whatever happens here.
    """

    __slots__ = (
        "_commits",
        "following",
        "host",
        "is_retired",
        "leader_epoch",
        "leader_id",
        "leading",
        "listeners",
        "log",
        "log_end_waiters",
        "low_watermark_waiters",
        "topic_id",
        "topic_partition",
        "traffic",
    )

    def __init__(
        self, topic_partition: TopicPartition, topic_id: TopicId, log: Log, host: ReplicaHost
    ) -> None:
        super().__init__()
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self.host = host
        self.leading: LeaderRole | None = None
        self.following: FollowerRole | None = None
        self.leader_epoch: LeaderEpoch = NO_EPOCH
        self.leader_id = NO_LEADER
        self.is_retired = False
        self.log_end_waiters = Watched()
        self.low_watermark_waiters: Watched | None = None
        self.listeners: list[Listener] = []
        self.traffic = Traffic()
        self._commits: CommitQueue | None = None

    # -- Role --------------------------------------------------------------------------------

    @property
    def leader(self) -> Leader | None:
        """What the leader knows and decides; None unless this node leads the partition."""
        leading = self.leading
        return None if leading is None else leading.state

    @property
    def is_leading(self) -> bool:
        return self.leading is not None

    @property
    def is_following(self) -> bool:
        return self.following is not None

    def become_leader(self, state: PartitionImage, now: Instant) -> None:
        """Lead in a new epoch. Nothing is truncated (I-10); raises `StorageError`."""
        log, host = self.log, self.host
        if log.offsets.needs_checkpoint:
            host.logs.save_lowered_offsets(log)
        # KAFKA-7415: the epoch begins where the log ends now, whether or not it writes anything.
        log.flusher.begin_epoch(state.leader_epoch, log.log_end_offset)
        leader = Leader(
            host.broker_id,
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
            start_offset=log.log_end_offset,
            replicas=state.replicas,
            in_sync=state.in_sync_replicas,
            lag_max_ms=host.lag_max_ms,
            min_in_sync=log.config.min_insync_replicas,
            now_ms=now.monotonic_ms,
            log_start_offset=log.log_start_offset,
            has_eligible=state.has_eligible,
            former=self.leader,
            policies=host.policies,
        )
        self.leader_epoch = state.leader_epoch
        self.leader_id = host.broker_id
        self.following = None
        self.leading = LeaderRole(self, host, leader)
        self.leading.begin(now)
        self.changed()

    def become_follower(self, state: PartitionImage) -> None:
        """Follow another leader, or wait for one (-1)."""
        self.leader_epoch = state.leader_epoch
        self.leader_id = state.leader
        self._stop_leading(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if state.leader not in (NO_LEADER, self.host.broker_id):
            self.following = FollowerRole(self, self.host)

    def retire(self, code: ErrorCode) -> None:
        """The partition is gone from this node: all that wait for it are told `code`."""
        self.is_retired = True
        self.leader_id = NO_LEADER
        self._stop_leading(code)

    def _stop_leading(self, code: ErrorCode) -> None:
        self.leading = self.following = None
        if self._commits is not None:
            # Now, and not at the end of the turn: the node might lead again by then.
            self._commits.fail_all(code)
        self.changed()

    def check_leading(self) -> LeaderRole:
        """Refuse a request that is for the leader with NOT_LEADER_OR_FOLLOWER."""
        if self.leading is None:
            raise ProtocolError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self.leading

    def check_following(self) -> FollowerRole:
        """What a fetcher does here. It is a mistake of the node if there is no leader to follow."""
        if self.following is None:
            raise InvariantViolated(f"{self.topic_partition} follows no leader.")
        return self.following

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Refuse a request made for another leader epoch (KIP-320); -1 does not ask for one."""
        if current_leader_epoch in (NO_EPOCH, self.leader_epoch):
            return
        if current_leader_epoch < self.leader_epoch:
            raise ProtocolError(ErrorCode.FENCED_LEADER_EPOCH)
        raise ProtocolError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    def in_sync_committed(
        self,
        members: Collection[BrokerId],
        partition_epoch: int,
        now: Instant,
        *,
        has_eligible: bool | None = None,
    ) -> None:
        """See `LeaderRole`; nothing happens if it leads no more."""
        if self.leading is not None:
            self.leading.in_sync_committed(members, partition_epoch, now, has_eligible=has_eligible)

    def in_sync_refused(
        self,
        code: ErrorCode,
        now: Instant,
        proposal: InSyncState | None = None,
        *,
        is_open: bool = False,
    ) -> None:
        """See `LeaderRole`; nothing happens if it leads no more."""
        if self.leading is not None:
            self.leading.in_sync_refused(code, now, proposal, is_open=is_open)

    def check(self) -> None:
        """Raise `InvariantViolated` unless role, offsets and waiting appends agree (I-01, I-03,
        I-09, I-12, I-15, I-40). To be asked between two turns; its cost does not grow with the log.
        """
        leading, following, log = self.leading, self.following, self.log
        if log.failure is None:
            log.offsets.check()
        if leading is not None:
            if following is not None or self.leader_id != self.host.broker_id:
                raise InvariantViolated(
                    f"It leads, and is to follow broker {self.leader_id}.", invariant="I-09"
                )
            if leading.state.leader_epoch != self.leader_epoch:
                raise InvariantViolated(
                    f"It leads in epoch {leading.state.leader_epoch}, and was told of epoch "
                    f"{self.leader_epoch}.",
                    invariant="I-11",
                )
            if log.leader_epochs.latest != self.leader_epoch and log.failure is None:
                # KAFKA-7415: it begins with leadership, not with its first record.
                raise InvariantViolated(
                    f"It leads in epoch {self.leader_epoch}, but the newest epoch of its table is "
                    f"{log.leader_epochs.latest}.",
                    invariant="I-03",
                )
            leading.state.check(log.high_watermark, log.log_end_offset)
        elif following is not None and self.leader_id in (NO_LEADER, self.host.broker_id):
            raise InvariantViolated(f"It follows broker {self.leader_id}.", invariant="I-09")
        if self._commits is not None:
            self._commits.check(log.high_watermark, is_leading=leading is not None)

    # -- What happens to it ------------------------------------------------------------------

    def changed(self) -> None:
        """Have all who wait for anything of this replica checked at the end of the turn."""
        purgatory = self.host.purgatory
        purgatory.changed(self)
        purgatory.changed(self.log_end_waiters)
        for listener in self.listeners:
            listener.on_change(completes_fetch=True)
        self.wake_low_watermark_waiters()

    def wake_high_watermark_waiters(self) -> None:
        """Have those checked who wait for the high watermark, if there are any."""
        if self.waiters or self._commits:
            self.host.purgatory.changed(self)

    def wake_low_watermark_waiters(self) -> None:
        """Have those checked who wait until records are deleted everywhere: a broker that they
        wait for may be away for good."""
        waiting = self.low_watermark_waiters
        if waiting is not None and waiting.waiters:
            self.host.purgatory.changed(waiting)

    def watch_low_watermark(self) -> Watched:
        """What changes when the low watermark may have risen."""
        if self.low_watermark_waiters is None:
            self.low_watermark_waiters = Watched()
        return self.low_watermark_waiters

    def note_flush(self) -> None:
        """Have the log synced after this turn, if it wants to be."""
        if self.log.flusher.wants_flush:
            self.host.flushable[self.log] = None

    def fail(self, error: StorageError) -> None:
        """The disk under the log failed: it takes no more records, nor does its directory."""
        self.host.logs.fail(self.log, error)
        self.changed()

    def failed_to_read(self, error: StorageError) -> None:
        """A disk that cannot be read is not used any more: others have these bytes, and may lead
        (F-47). What else keeps a log from being read, as a want of descriptors, may pass."""
        if isinstance(error, UnreadableFile):
            self.fail(error)

    # -- Waiting for a commit ----------------------------------------------------------------

    @property
    def commits_waiting(self) -> int:
        """How many appends wait for the high watermark."""
        return 0 if self._commits is None else len(self._commits)

    def commit_outcome(self, required: Offset) -> ErrorCode | None:
        """What became of an append that is committed at this high watermark; None if undecided."""
        leading = self.leading
        if leading is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.log.high_watermark < required:
            return None
        return leading.outcome

    def await_commit(self, required: Offset, decided: Decided, *, deadline_ms: int) -> None:
        """Tell `decided` once, at the end of the turn in which it is known, but not later than at
        the monotonic time `deadline_ms`, what became of an undecided append."""
        commits = self._commits
        if commits is None:
            commits = self._commits = CommitQueue(self.host.timers, self._commits_due)
        commits.add(required, decided, deadline_ms)

    def settle(self, now: Instant) -> None:
        """Tell those who wait for a commit that is decided."""
        commits, leading = self._commits, self.leading
        if commits:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER if leading is None else leading.outcome
            commits.settle(self.log.high_watermark, code, now)

    def _commits_due(self, now: Instant) -> None:
        if self._commits is not None:
            self.settle(now)  # what is committed by now was in time
            self._commits.expire(now)

    # -- Reading -----------------------------------------------------------------------------

    @property
    def is_end_unknown(self) -> bool:
        """Whether more may be committed than this new leader knows yet (KIP-207)."""
        leading = self.leading
        return leading is not None and self.log.high_watermark < leading.state.start_offset

    def readable_end(self, isolation_level: int) -> Offset:
        """The offset below which a consumer may read."""
        log = self.log
        return log.last_stable_offset if isolation_level == READ_COMMITTED else log.high_watermark
