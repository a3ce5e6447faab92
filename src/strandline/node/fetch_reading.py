"""What one partition answers to a fetch: to a consumer, and to a follower.

A consumer reads what is committed, from the leader or, if its version of the protocol says where it
stands, from any replica (KIP-392). A follower reads all there is, from the leader only, and by the
offset that it asks for it acknowledges all before it: the order of steps in `FollowerReader.read`
is a contract (replication specification, 1.4). Whether an answer is enough, and what is done while
it is not, is the handler's business.
"""

from __future__ import annotations

from typing import Final, Protocol

from strandline.errors import ErrorCode, ProtocolError
from strandline.node.fetch_answer import PartitionAnswer
from strandline.node.fetch_sessions import Fetched
from strandline.node.follower_sessions import Followed, FollowerIdentity
from strandline.node.leader_throttle import LeaderThrottle
from strandline.node.purgatory import Watched
from strandline.node.replica import READ_COMMITTED, Replica
from strandline.node.replica_host import ReplicaHost
from strandline.replication.leader import Leader
from strandline.replication.policies import AnswerWatermark, TimeLag
from strandline.replication.replica_selection import preferred_replica, readable_followers
from strandline.replication.truncation import divergence
from strandline.storage.log import Log
from strandline.storage.log_reader import LogSlice
from strandline.types import NO_EPOCH, BrokerId, Instant, LeaderEpoch, Offset

_RACK_AWARE: Final = "RackAwareReplicaSelector"
"""The last part of the name that Kafka's own selector has."""


class Reader(Protocol):
    """Reads for one request."""

    def watched(self, replica: Replica) -> Watched:
        """What changes when the partition may have more to read."""

    def read(
        self,
        replica: Replica,
        fetched: Fetched,
        answer: PartitionAnswer,
        limit: int,
        *,
        is_first: bool,
        now: Instant,
    ) -> None:
        """Fill the answer of one partition with at most `limit` bytes of records.

        `is_first` lets one batch pass that is larger. Raises `ProtocolError` and `StorageError`.
        """

    def answered(self, replica: Replica, size_bytes: int, now: Instant) -> None:
        """That much of the partition is sent."""


class ConsumerReader:
    """Reads for a consumer, up to the high watermark or the last stable offset."""

    __slots__ = ("_host", "_isolation_level", "_rack", "may_follow")

    def __init__(
        self, host: ReplicaHost, isolation_level: int, *, rack: str, may_follow: bool
    ) -> None:
        """`may_follow`: the client understands that it may be sent to another replica."""
        self._host = host
        self._isolation_level = isolation_level
        self.may_follow = may_follow
        selector = host.settings.broker.replica_selector_class or ""
        self._rack = rack if may_follow and selector.endswith(_RACK_AWARE) else ""

    @property
    def may_redirect(self) -> bool:
        """Whether it may send the client to a replica that is nearer."""
        return bool(self._rack)

    def watched(self, replica: Replica) -> Watched:
        """See `Reader`."""
        return replica

    def read(
        self,
        replica: Replica,
        fetched: Fetched,
        answer: PartitionAnswer,
        limit: int,
        *,
        is_first: bool,
        now: Instant,
    ) -> None:
        """See `Reader`."""
        del now
        replica.check_epoch(fetched.current_leader_epoch)
        leader, log = replica.leader, replica.log
        if leader is None and not (self.may_follow and replica.is_following):
            # A replica without a role has no log range, so the offset is not out of range either.
            raise ProtocolError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        _fill_offsets(answer, log)
        wants_committed = self._isolation_level == READ_COMMITTED
        if wants_committed:
            answer.aborted_transactions = []
        if leader is not None and self._rack:
            answer.preferred_replica = self._preferred(leader, Offset(fetched.fetch_offset))
            if answer.preferred_replica is not None:
                return
        if _has_diverged(fetched, answer, log):
            return
        _read(
            fetched,
            answer,
            log,
            limit,
            end=replica.readable_end(self._isolation_level),
            is_first=is_first,
        )
        if wants_committed and answer.records is not None:
            answer.aborted_transactions = log.reader.aborted_transactions(
                Offset(fetched.fetch_offset), answer.records.upper_offset
            )

    def answered(self, replica: Replica, size_bytes: int, now: Instant) -> None:
        """See `Reader`."""
        del now
        replica.traffic.bytes_out += size_bytes

    def _preferred(self, leader: Leader, offset: Offset) -> BrokerId | None:
        brokers = self._host.metadata.image.brokers

        def rack_of(broker_id: BrokerId) -> str | None:
            broker = brokers.get(broker_id)
            return None if broker is None else broker.rack

        followers = readable_followers(leader, offset, rack_of)
        return preferred_replica(self._rack, rack_of(leader.broker_id), followers)


class FollowerReader:
    """Reads for another broker, up to the end of the log, and notes how far it has come.

    It is noted once per request: a fetch that is read again, after it was parked, says nothing new.
    """

    __slots__ = ("_broker_epoch", "_host", "_noted", "_replica_id", "_throttle")

    def __init__(
        self, host: ReplicaHost, throttle: LeaderThrottle, follower: FollowerIdentity
    ) -> None:
        self._host = host
        self._throttle = throttle
        self._replica_id = follower.broker_id
        self._broker_epoch = follower.broker_epoch
        self._noted: set[Replica] = set()

    def watched(self, replica: Replica) -> Watched:
        """See `Reader`."""
        return replica.log_end_waiters

    def read(
        self,
        replica: Replica,
        fetched: Fetched,
        answer: PartitionAnswer,
        limit: int,
        *,
        is_first: bool,
        now: Instant,
    ) -> None:
        """See `Reader`."""
        replica.check_epoch(fetched.current_leader_epoch)
        leader = self._check_replica(replica, fetched)
        if isinstance(fetched, Followed):
            fetched.listen_to(replica)
        log = replica.log
        before = log.high_watermark
        if not _has_diverged(fetched, answer, log):
            end = log.log_end_offset
            if fetched.fetch_offset != end:
                # With the range checked: beyond it nothing is to be noted.
                _read(fetched, answer, log, limit, end=end, is_first=is_first)
                has_any = answer.records is not None or answer.is_full
                if has_any and self._throttle.holds_back(replica, self._replica_id, now):
                    answer.leave_out()
            if replica not in self._noted:
                self._noted.add(replica)
                replica.check_leading().follower_fetched(
                    self._replica_id,
                    offset=Offset(fetched.fetch_offset),
                    log_start_offset=Offset(fetched.log_start_offset),
                    broker_epoch=self._broker_epoch,
                    now=now,
                )
            if isinstance(fetched, Followed):
                self._maybe_settle(fetched, leader, log)
        _fill_offsets(answer, log)
        if self._host.policies.answer_watermark is AnswerWatermark.PRE:
            answer.high_watermark = before

    def _maybe_settle(self, fetched: Followed, leader: Leader, log: Log) -> None:
        """Look at the partition no more until something happens, if there is nothing to tell.

        A follower that is not in sync may qualify with any fetch, so each of them is to be noted.
        """
        fetched.noted_by = leader
        if (
            fetched.fetch_offset == log.log_end_offset
            and fetched.told_high_watermark == log.high_watermark
            and fetched.told_log_start_offset == log.log_start_offset
            and not fetched.told_error
            and self._replica_id in leader.in_sync.members
            and fetched.session is not None
            and isinstance(self._host.policies.lag, TimeLag)
        ):
            fetched.session.settle(fetched)

    def answered(self, replica: Replica, size_bytes: int, now: Instant) -> None:
        """See `Reader`."""
        replica.traffic.replication_out += size_bytes
        self._throttle.record(replica, size_bytes, now)

    def _check_replica(self, replica: Replica, fetched: Fetched) -> Leader:
        leader = replica.check_leading().state
        if self._replica_id not in leader.progress:
            # Either side may be the one that has not heard of the assignment yet.
            has_epoch = fetched.current_leader_epoch != NO_EPOCH
            raise ProtocolError(
                ErrorCode.UNKNOWN_LEADER_EPOCH if has_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER
            )
        if self._host.is_stale(self._replica_id, self._broker_epoch):
            raise ProtocolError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return leader


def _fill_offsets(answer: PartitionAnswer, log: Log) -> None:
    """All from one moment (KAFKA-7104)."""
    answer.high_watermark = log.high_watermark
    answer.last_stable_offset = log.last_stable_offset
    answer.log_start_offset = log.log_start_offset


def _has_diverged(fetched: Fetched, answer: PartitionAnswer, log: Log) -> bool:
    """Whether the reader has something that this log does not have; then the answer says where."""
    last_epoch, offset = fetched.last_fetched_epoch, fetched.fetch_offset
    if (
        last_epoch == log.leader_epochs.latest
        and log.log_start_offset <= offset <= log.log_end_offset
    ):
        return False  # the usual case: the newest epoch ends where the log does
    answer.diverging = divergence(
        LeaderEpoch(last_epoch),
        Offset(offset),
        log_start_offset=log.log_start_offset,
        history=log.reader,
    )
    return answer.diverging is not None


def _read(
    fetched: Fetched,
    answer: PartitionAnswer,
    log: Log,
    limit: int,
    *,
    end: Offset,
    is_first: bool,
) -> None:
    answer.records, answer.is_full = read_range(
        log,
        Offset(fetched.fetch_offset),
        max(0, fetched.max_bytes),
        limit,
        end=end,
        is_first=is_first,
    )


def read_range(
    log: Log, offset: Offset, bytes_max: int, limit: int, *, end: Offset, is_first: bool
) -> tuple[LogSlice | None, bool]:
    """What one partition gives: at most `bytes_max`, of which the request has `limit` left.

    And whether there is more that waiting would not bring (`PartitionAnswer.is_full`). Raises
    `ProtocolError` and `StorageError`.
    """
    records = log.reader.read(
        offset, min(bytes_max, limit), end_offset=end, at_least_one_batch=is_first
    )
    if records is None:
        # The first batch is too large for what others have left of the request.
        return None, not is_first and offset < end
    if limit < bytes_max and records.upper_offset < end:
        return records, True
    if records.segment_base_offset != log.active.base_offset:
        # An answer comes from one segment. Where the rest is in a later one, waiting for more
        # would be waiting in vain.
        last = log.segments.all[log.segments.index_of(Offset(end - 1))]
        return records, last.base_offset != records.segment_base_offset
    return records, False
