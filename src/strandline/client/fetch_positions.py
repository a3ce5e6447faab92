"""Where a reader stands in each of its partitions, whom it asks, and what an answer means for it.

    standing ── leader with a newer epoch ──> doubtful ── OffsetForLeaderEpoch ──> standing
       │ └── out of range ──> to be reset                     └── the log ends before: truncated
       └── a replica is recommended (KIP-392) ──> that one is asked, for a while

This file knows positions, fetch sessions and what is believed of a log. It has no socket, thread or
clock: a driver finds leaders, carries requests and says what time it is. Drivers are `consumer`
(blocking), `aio.fetcher` (asyncio) and `sim.clients.reader`.

Theory: a position moves only when records are handed out, so what the caller holds and the
positions always agree. A leader that has been elected since may lack what was read, after an
unclean election: then its log may hold other records at the same offsets. So before a new leader is
asked for records it is asked where the epoch of the last record read ends in its log (KIP-320).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from strandline.client.fetch_session import FetchSession
from strandline.client.fetching import (
    FetchedRecords,
    FetchFrom,
    FetchSettings,
    answers_by_partition,
    records_of,
)
from strandline.client.metadata import PartitionInfo
from strandline.client.refusal import check
from strandline.errors import CorruptRecords, ErrorCode, ProtocolError
from strandline.protocol.messages.fetch import FetchResponse, PartitionData
from strandline.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from strandline.types import (
    NO_EPOCH,
    NO_TOPIC_ID,
    BrokerId,
    LeaderEpoch,
    Offset,
    TopicId,
    TopicPartition,
)

CHECKS_SINCE: Final = 3
"""Older versions of OffsetForLeaderEpoch are not for consumers."""
_REPLICA_MS: Final = 300_000
"""For how long a recommended replica is asked before the leader is again, as Kafka's metadata."""
_CONSUMER: Final = -1
_TOPIC_REFUSED: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID})


@dataclass(slots=True)
class _Standing:
    """What is known of the record before a position."""

    epoch: LeaderEpoch = NO_EPOCH
    """Its leader epoch; without one there is nothing to compare."""
    checked_epoch: LeaderEpoch = NO_EPOCH
    """The leader epoch in which the position is known to be in the log."""
    asked: tuple[Offset, LeaderEpoch] | None = None
    """Position and epoch for which a new leader was asked last."""
    replica: BrokerId | None = None
    """Who is asked in place of the leader, until `replica_until_ms`."""
    replica_until_ms: int = 0
    topic_id: TopicId = NO_TOPIC_ID
    """The topic in whose log it is, once that was asked for it."""
    is_topic_refused: bool = False
    """Whether the broker that was asked last has no such topic."""


@dataclass(slots=True)
class Taken:
    """What an answer, or several, held."""

    fetched: list[FetchedRecords] = field(default_factory=list)
    lost: list[TopicPartition] = field(default_factory=list)
    """Their positions are out of the log, and to be found anew."""
    failed: ProtocolError | CorruptRecords | None = None
    """The first error. A position of a failed partition has not moved, so it will fail again."""
    stale: set[str] = field(default_factory=set)
    """Topics whose metadata is to be asked for again."""


class FetchPositions:
    """See the module. `offsets` are those of the next records, `ends` those last told."""

    def __init__(
        self,
        settings: FetchSettings,
        *,
        resets: bool,
        wants_sessions: bool = True,
        replica_ms: int = _REPLICA_MS,
    ) -> None:
        """With `resets` a position that is not in the log any more is found anew, without it is an
        error. A recommended replica is asked for `replica_ms`."""
        self.settings = settings
        self.offsets: dict[TopicPartition, Offset] = {}
        self.ends: dict[TopicPartition, Offset] = {}
        self._resets = resets
        self._wants_sessions = wants_sessions
        self._replica_ms = replica_ms
        self._standing: dict[TopicPartition, _Standing] = {}
        self._sessions: dict[BrokerId, FetchSession] = {}

    def assign(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Stand there, and in no other partitions."""
        self.offsets = dict(offsets)
        self.ends = {}
        self._standing = {each: _Standing() for each in offsets}
        for session in self._sessions.values():
            session.failed()  # the next answers are to tell the ends of all partitions

    def add(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Stand there too; what is known of the others stays."""
        for partition, offset in offsets.items():
            self.seek(partition, offset)

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Stand in these no longer. What is still to be answered about them is void."""
        for partition in partitions:
            self.offsets.pop(partition, None)
            self.ends.pop(partition, None)
            self._standing.pop(partition, None)

    def seek(self, partition: TopicPartition, offset: Offset) -> None:
        """Stand elsewhere; nothing is known of the record before that."""
        self.offsets[partition] = offset
        self._standing[partition] = _Standing()

    def advance(self, fetched: FetchedRecords) -> None:
        """Records are handed out: stand behind them."""
        partition = fetched.topic_partition
        self.offsets[partition] = fetched.next_offset
        self.ends[partition] = fetched.end_offset
        standing = self._standing[partition]
        if fetched.last_epoch != NO_EPOCH:
            standing.epoch = fetched.last_epoch
            standing.checked_epoch = max(standing.checked_epoch, fetched.asked_epoch)

    def advance_to(self, partition: TopicPartition, offset: Offset) -> None:
        """Records of a fetch are handed out, and those from `offset` on are not yet."""
        self.offsets[partition] = offset

    def lag(self) -> dict[TopicPartition, int]:
        """How far each position is behind the end that the last fetch told; unknown ones absent."""
        return {
            each: max(0, end - self.offsets[each])
            for each, end in self.ends.items()
            if each in self.offsets
        }

    # -- Topics ------------------------------------------------------------------------------

    def topic_of(self, partition: TopicPartition, told: TopicId) -> TopicId:
        """The topic to ask for: the one in which the position is, or else what metadata tell."""
        standing = self._standing[partition]
        if standing.topic_id == NO_TOPIC_ID:
            standing.topic_id = told
        return standing.topic_id

    def is_of_former(self, partition: TopicPartition, told: TopicId) -> bool:
        """Whether the topic was deleted and made anew since the position was found: a broker does
        not have it any more, and metadata tell of another one. Either may be behind by itself."""
        standing = self._standing.get(partition)
        return (
            standing is not None
            and standing.is_topic_refused
            and told not in (NO_TOPIC_ID, standing.topic_id)
        )

    # -- Doubts ------------------------------------------------------------------------------

    def epoch(self, partition: TopicPartition) -> LeaderEpoch:
        """The leader epoch of the last record before the position, if one was read."""
        standing = self._standing.get(partition)
        return NO_EPOCH if standing is None else standing.epoch

    def is_doubtful(self, partition: TopicPartition, info: PartitionInfo) -> bool:
        """Whether another one leads than when the position was known to be in the log."""
        standing = self._standing[partition]
        return standing.epoch != NO_EPOCH and info.leader_epoch > standing.checked_epoch

    def check_request(
        self, leaders: Mapping[TopicPartition, PartitionInfo]
    ) -> OffsetForLeaderEpochRequest:
        """What to ask the leader of these partitions."""
        topics: dict[str, OffsetForLeaderTopic] = {}
        for partition, info in leaders.items():
            topic = topics.setdefault(partition.topic, OffsetForLeaderTopic(topic=partition.topic))
            standing = self._standing[partition]
            standing.asked = (self.offsets[partition], standing.epoch)
            topic.partitions.append(
                OffsetForLeaderPartition(
                    partition=partition.partition,
                    current_leader_epoch=info.leader_epoch,
                    leader_epoch=standing.epoch,
                )
            )
        return OffsetForLeaderEpochRequest(replica_id=_CONSUMER, topics=list(topics.values()))

    def unchecked(self, leaders: Mapping[TopicPartition, PartitionInfo]) -> None:
        """The leader cannot be asked, being too old: what was read counts as there."""
        for partition, info in leaders.items():
            self._standing[partition].checked_epoch = info.leader_epoch

    def checked(
        self,
        leaders: Mapping[TopicPartition, PartitionInfo],
        response: OffsetForLeaderEpochResponse,
    ) -> list[TopicPartition]:
        """Take the answer in; which positions are to be found anew.

        A position behind the end of its record's epoch goes there. One that has moved since
        it was asked about stays, and is as doubtful as it was. Raises `ProtocolError`: that of
        a partition, or OFFSET_OUT_OF_RANGE where records are gone and nothing may be reset. All
        others are checked then.
        """
        lost: list[TopicPartition] = []
        failed: ProtocolError | None = None
        for topic in response.topics:
            for answer in topic.partitions:
                partition = TopicPartition(topic.topic, answer.partition)
                info = leaders.get(partition)
                if info is None or not self._is_as_asked(partition):
                    continue
                try:
                    check(answer.error_code, None, f"partition {partition}")
                    if not self._is_there(partition, info, answer):
                        lost.append(partition)
                except ProtocolError as error:
                    failed = failed or error
        if failed is not None:
            raise failed
        return lost

    def _is_as_asked(self, partition: TopicPartition) -> bool:
        """Whether the position is where it was when its leader was asked about it: a fetch that was
        under way may have brought records of a later epoch meanwhile."""
        standing = self._standing.get(partition)
        return standing is not None and standing.asked == (
            self.offsets[partition],
            standing.epoch,
        )

    def _is_there(
        self, partition: TopicPartition, info: PartitionInfo, answer: EpochEndOffset
    ) -> bool:
        """Whether there is a place to go on."""
        offset, standing = self.offsets[partition], self._standing[partition]
        is_known = answer.end_offset >= 0 and answer.leader_epoch >= 0
        if is_known and answer.end_offset >= offset:
            standing.checked_epoch = info.leader_epoch
            return True
        if not self._resets:
            raise ProtocolError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"The log of partition {partition} was cut below offset {offset}, up to which it "
                f"was read: records of leader epoch {standing.epoch} end at "
                f"{answer.end_offset if is_known else 'no offset'} there.",
            )
        if is_known:
            self.offsets[partition] = Offset(answer.end_offset)
            standing.epoch = LeaderEpoch(answer.leader_epoch)
            standing.checked_epoch = info.leader_epoch
        return is_known

    # -- Fetching ----------------------------------------------------------------------------

    def broker_for(
        self,
        partition: TopicPartition,
        info: PartitionInfo,
        alive: Iterable[BrokerId],
        now_ms: int,
    ) -> BrokerId:
        """Whom to ask for records: the leader, or the replica that it recommends, while alive."""
        standing = self._standing[partition]
        replica = standing.replica
        if replica is None or now_ms >= standing.replica_until_ms or replica not in alive:
            standing.replica = None
            return info.leader
        return replica

    def fetch_from(
        self, partition: TopicPartition, topic_id: TopicId, info: PartitionInfo
    ) -> FetchFrom:
        """What to ask for."""
        return FetchFrom(partition, topic_id, self.offsets[partition], info.leader_epoch)

    def session(self, broker: BrokerId) -> FetchSession:
        """The session with a broker, for the next request."""
        session = self._sessions.get(broker)
        if session is None:
            session = self._sessions[broker] = FetchSession(wants_session=self._wants_sessions)
        return session

    def asked(self, first: TopicPartition) -> None:
        """Brokers fill answers in the order of the request: what was first goes last now."""
        self.offsets[first] = self.offsets.pop(first)

    def unanswered(self, asked: Iterable[TopicPartition]) -> None:
        """There is no answer: leave a replica that was asked."""
        for partition in asked:
            if partition in self._standing:
                self._standing[partition].replica = None

    def take_in(
        self,
        broker: BrokerId,
        asked: Mapping[TopicPartition, FetchFrom],
        response: FetchResponse,
        now_ms: int,
        taken: Taken,
    ) -> list[tuple[TopicPartition, TopicId, PartitionData]]:
        """Add to `taken` what an answer holds; its parts that are about present positions, with
        their topics' ids as far as it has them."""
        session = self.session(broker)
        try:
            if response.error_code != ErrorCode.NONE:
                session.failed(ErrorCode(response.error_code))
            check(response.error_code, None, "the fetch")
        except ProtocolError as error:
            taken.failed = taken.failed or error
            return []
        session.answered(response.session_id)
        names = {each.topic_id: partition.topic for partition, each in asked.items()}
        parts: list[tuple[TopicPartition, TopicId, PartitionData]] = []
        for partition, topic_id, data in answers_by_partition(response, names):
            wanted = asked.get(partition)
            if wanted is None or self.offsets.get(partition) != wanted.offset:
                continue
            parts.append((partition, topic_id, data))
            try:
                self._take_in_one(broker, wanted, data, now_ms, taken)
            except (ProtocolError, CorruptRecords) as error:
                taken.failed = taken.failed or error
                taken.stale.add(partition.topic)
                self._standing[partition].replica = None
        return parts

    def _take_in_one(
        self, broker: BrokerId, wanted: FetchFrom, data: PartitionData, now_ms: int, taken: Taken
    ) -> None:
        partition = wanted.partition
        standing = self._standing[partition]
        what = f"partition {partition}"
        standing.is_topic_refused = (
            data.error_code in _TOPIC_REFUSED and wanted.topic_id == standing.topic_id
        )
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if standing.replica == broker:
                standing.replica = None  # it may only be behind: the leader knows
                return
            if self._resets:
                taken.lost.append(partition)
                return
            what = f"the log of partition {partition}, which has no offset {wanted.offset}"
        check(data.error_code, None, what)
        if data.preferred_read_replica >= 0:
            standing.replica = BrokerId(data.preferred_read_replica)
            standing.replica_until_ms = now_ms + self._replica_ms
        taken.fetched.append(records_of(wanted, data, self.settings))
