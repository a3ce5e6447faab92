"""What a hosted partition consists of, who waits for it, and what any role lets readers do.

Consumers and produces with acks=all wait for the high watermark: they are the `waiters` of the
replica itself. Followers are among its `log_end_waiters`, and DeleteRecords among its
`low_watermark_waiters`: neither is woken in vain.
`replica_leading` and `replica_following` add what a role may do; `replica.Replica` is all of them.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

from strandline.errors import ErrorCode, ProtocolError, StorageError
from strandline.node.commit_queue import CommitQueue, Decided
from strandline.node.purgatory import Watched
from strandline.node.replica_host import ReplicaHost
from strandline.replication.leader import Leader
from strandline.storage.files import UnreadableFile
from strandline.storage.log import Log
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


class Listener(Protocol):
    """Observer of a replica's changes."""

    def on_change(self, replica: Any, *, completes_fetch: bool) -> None:
        """`completes_fetch`: what changed may complete a parked fetch that reads to the log end."""


class Traffic:
    """What went through a replica since it is here, counted for people. In bytes, and records."""

    __slots__ = ("bytes_in", "bytes_out", "records_in", "replication_in", "replication_out")

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.records_in = 0
        self.replication_in = 0
        self.replication_out = 0


class ReplicaState(Watched):
    """A hosted partition.

    - `leader_epoch`, `leader_id`: the newest leadership that this node was told of, its own or
      another's; -1 before the first.
    - `leader`: not None while this node leads the partition.
    - `is_retired`: the partition is deleted, or is no longer to be on this node.
    """

    __slots__ = (
        "_commits",
        "host",
        "is_alone",
        "is_retired",
        "leader",
        "leader_epoch",
        "leader_id",
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
        self.leader: Leader | None = None
        self.leader_epoch: LeaderEpoch = NO_EPOCH
        self.leader_id = NOBODY
        self.is_retired = False
        self.log_end_waiters = Watched()
        """For those who read up to the log's end, however little of it is committed."""
        self.listeners: list[Listener] = []
        """Followers' sessions; each hears of whatever happens here."""
        self.low_watermark_waiters: Watched | None = None
        """For those who wait until records are deleted everywhere; made when there is one."""
        self.host = host
        self.traffic = Traffic()
        self._commits: CommitQueue | None = None
        self.is_alone = False

    @property
    def is_leading(self) -> bool:
        return self.leader is not None

    @property
    def is_following(self) -> bool:
        """Whether it has a leader that it can follow. One that is named as leader by a state from
        before its restart has none: the state will change."""
        return self.leader is None and self.leader_id not in (NOBODY, self.host.broker_id)

    def changed(self) -> None:
        """Have all who wait for anything of this replica checked at the end of the turn."""
        purgatory = self.host.purgatory
        purgatory.changed(self)
        purgatory.changed(self.log_end_waiters)
        for listener in self.listeners:
            listener.on_change(self, completes_fetch=True)
        if self.low_watermark_waiters is not None:
            purgatory.changed(self.low_watermark_waiters)

    def note_flush(self) -> None:
        """Have the log synced after this turn, if it wants to be."""
        if self.log.flusher.wants_flush:
            self.host.flushable[self] = None

    def fail(self, error: StorageError) -> None:
        """The disk under the log failed: it takes no more records, nor does its directory."""
        self.host.logs.fail(self.log, error)
        self.changed()

    def failed_to_read(self, error: StorageError) -> None:
        """A disk that cannot be read is not used any more: others have these bytes, and may lead
        (F-47). What else keeps a log from being read, as a want of descriptors, may pass."""
        if isinstance(error, UnreadableFile):
            self.fail(error)

    @property
    def commits_waiting(self) -> int:
        """How many appends wait for the high watermark."""
        return 0 if self._commits is None else len(self._commits)

    # -- Waiting for a commit ----------------------------------------------------------------

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
            commits = self._commits = CommitQueue(self.host.timers, self._commits_due)
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

    # -- Reading -----------------------------------------------------------------------------

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Refuse a request made for another leader epoch (KIP-320); -1 does not ask for one."""
        if current_leader_epoch in (NO_EPOCH, self.leader_epoch):
            return
        if current_leader_epoch < self.leader_epoch:
            raise ProtocolError(ErrorCode.FENCED_LEADER_EPOCH)
        raise ProtocolError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    def check_leading(self) -> Leader:
        """Refuse a request that is for the leader with NOT_LEADER_OR_FOLLOWER."""
        if self.leader is None:
            raise ProtocolError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self.leader

    @property
    def is_end_unknown(self) -> bool:
        """Whether more may be committed than this new leader knows yet (KIP-207)."""
        leader = self.leader
        return leader is not None and self.log.high_watermark < leader.start_offset

    def readable_end(self, isolation_level: int) -> Offset:
        """The offset below which a consumer may read."""
        log = self.log
        return log.last_stable_offset if isolation_level == READ_COMMITTED else log.high_watermark
