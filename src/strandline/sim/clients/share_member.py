"""Members of share groups (KIP-932): they join, acquire records, and say what becomes of them.

`client share w1 group=sg topic=t stay=3s away=1s work=100ms`

    apart ── comes ──> member: beats, fetches, acknowledges ── vanishes without a word ──> apart

There is a share session with each leader of an assigned partition; what is acknowledged goes along
with the next fetch. Now and then a member forgets records, until their locks end. All that members
of a group are given must fit together, `share_watch` sees to that.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, Final
from uuid import UUID

from strandline.client.channel import RequestFailed
from strandline.errors import CorruptRecords, ErrorCode, ProtocolError
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.share_fetch import PartitionData, ShareFetchResponse
from strandline.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from strandline.records.batch import iterate_headers
from strandline.records.record import read_records
from strandline.sharing.values import AckType
from strandline.sim.clients.client import Place, SimClient, place_of
from strandline.sim.clients.client_options import ClientOptions
from strandline.sim.clients.connection import Connection, Outcome
from strandline.sim.clients.share_session import Asked, Said, ShareSession
from strandline.sim.clients.share_watch import Hold, ShareWatch
from strandline.sim.clients.world import ClientWorld
from strandline.sim.plan import ClientSpec
from strandline.types import BrokerId, TopicId, TopicPartition

_RETRY_US: Final = 50_000
_QUIET_US: Final = 40_000_000
"""Without a new record for so long, nothing more comes: a group may have to wait for locks, for
sessions, and for a share coordinator that it gave up asking."""
_ROUNDING_US: Final = 5_000
"""Brokers keep time in whole milliseconds, by clocks that drift: so much earlier a lock may end."""
_HURRIED_RECORDS: Final = 200
"""Acquired at once by a member that is to end: a slow one would not come to an end in time."""
_SETTLING: Final = (AckType.ACCEPT, AckType.REJECT, AckType.GAP)
_GONE: Final = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NETWORK_EXCEPTION}
)
_FENCED: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})


class _Life:
    """A member, from joining to going."""

    def __init__(self, member_id: str) -> None:
        self.member_id = member_id
        self.epoch = 0
        self.says_all = True
        """Whether the next heartbeat says what it subscribes to."""
        self.assigned: set[tuple[TopicId, int]] = set()
        self.sessions: dict[BrokerId, ShareSession] = {}


class ShareMember(SimClient):
    """See the module."""

    kind: ClassVar[str] = "share"

    def __init__(
        self, world: ClientWorld, spec: ClientSpec, options: ClientOptions, watch: ShareWatch
    ) -> None:
        super().__init__(world, spec, options)
        self.group = options.text("group")
        self.cluster.topics = options.text("topic").split(",")
        self.watch = watch
        self._beat_us = options.time_us("beat", "200ms")
        self._work_us = options.time_us("work", "0ms")
        self._records_max = options.number("max-records", 20, least=1)
        self._forgets = options.number("forgets", 3)
        self._stay_us = options.time_us("stay", "0s")
        self._away_us = options.time_us("away", "1s")
        self._life: _Life | None = None
        self._news_us = 0
        self._expected: list[tuple[Place, int]] = []
        """Records that are still to come before it can end."""
        self.cluster.changed = self.pump

    # -- life --------------------------------------------------------------------------------

    def start(self) -> None:
        """See `SimClient`."""
        self.cluster.stale()
        self._come()

    def _come(self) -> None:
        if self._life is not None:
            return
        self._life = life = _Life(str(UUID(int=self.random.getrandbits(128))))
        self._beat(life)
        if self._stay_us and not self.is_finishing:
            self.after(self.about(self._stay_us), self._go)

    def _go(self) -> None:
        if self.is_finishing or self._life is None:
            return
        self.counters["worker vanishes"] += 1
        life, self._life = self._life, None
        for session in list(life.sessions.values()):
            session.end()
            session.connection.close("the worker vanishes")
        self.after(self.about(self._away_us), self._come)

    def finishing(self) -> None:
        """See `SimClient`: what was written until now is still wanted."""
        self.watch.until = len(self.world.history)
        self._expected = self.watch.lacking(self.group, set(self._places()))
        self._news_us = self.now_us
        self._come()

    def _places(self) -> list[Place]:
        """How the history calls all that the group is to read."""
        views = [self.cluster.view(name) for name in self.cluster.topics]
        return [
            place_of(TopicPartition(view.name, number), view.topic_id)
            for view in views
            if view is not None
            for number in view.partitions
        ]

    def maybe_done(self) -> None:
        """See `SimClient`."""
        places = set(self._places())
        self.watch.expects(self.group, places)
        self._expected = [
            each
            for each in self._expected
            if each[0] in places and not self.watch.is_done(self.group, *each)
        ]
        if not self._expected or self.now_us > min(self.give_up_us, self._news_us + _QUIET_US):
            self.done()

    # -- the group ---------------------------------------------------------------------------

    def _beat(self, life: _Life) -> None:
        if life is not self._life:
            return
        coordinator = self.cluster.router.coordinator(self.group)
        if coordinator is None:
            self._find(life)
            return
        connection = self.cluster.connection(coordinator, "group")
        if connection is None:
            self.cluster.router.forget_coordinator(self.group)
            self._again(life)
            return
        request = ShareGroupHeartbeatRequest(
            group_id=self.group,
            member_id=life.member_id,
            member_epoch=life.epoch,
            subscribed_topic_names=self.cluster.topics if life.says_all else None,
        )
        then = partial(self._beaten, life)
        self.cluster.ask(connection, ApiKey.SHARE_GROUP_HEARTBEAT, request, then)

    def _again(self, life: _Life) -> None:
        self.after(self.about(_RETRY_US), partial(self._beat, life))

    def _find(self, life: _Life) -> None:
        connection = self.cluster.any_connection()
        if connection is None:
            self._again(life)
            return

        def found(outcome: Outcome) -> None:
            if self.is_done or life is not self._life:
                return
            is_known = False
            if not isinstance(outcome, RequestFailed):
                with suppress(ProtocolError):
                    self.cluster.router.learn_coordinator(self.group, outcome)
                    is_known = True
            if is_known:
                self._beat(life)
            else:
                self._again(life)

        request = self.cluster.router.coordinator_request(self.group)
        self.cluster.ask_for(connection, ApiKey.FIND_COORDINATOR, request, found)

    def _beaten(self, life: _Life, outcome: Outcome) -> None:
        if self.is_done or life is not self._life:
            return
        code = ErrorCode.NETWORK_EXCEPTION
        if not isinstance(outcome, RequestFailed):
            code = ErrorCode(outcome.error_code)
        if code is ErrorCode.NONE:
            self._told(life, outcome)
            self.after(self.about(self._beat_us), partial(self._beat, life))
            return
        self.counters[f"share group {code.name}"] += 1
        life.says_all = True
        if code in _GONE:
            self.cluster.router.forget_coordinator(self.group)
        if code in _FENCED:
            life.epoch, life.assigned = 0, set()
        self._again(life)

    def _told(self, life: _Life, answer: ShareGroupHeartbeatResponse) -> None:
        life.says_all = False
        life.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.counters["worker is given partitions"] += 1
            life.assigned = {
                (topic.topic_id, number)
                for topic in answer.assignment.topic_partitions
                for number in topic.partitions
            }
        self.pump()

    # -- fetching ----------------------------------------------------------------------------

    def pump(self) -> None:
        """See `SimClient`."""
        life = self._life
        if life is None or self.is_done:
            return
        names = {self.cluster.topic_id(name): name for name in self.cluster.topics}
        led: dict[BrokerId, set[tuple[TopicId, int]]] = {each: set() for each in life.sessions}
        for topic_id, number in sorted(life.assigned):
            if topic_id not in names:
                self.cluster.keep_fresh()
                continue
            leader = self.cluster.leader(TopicPartition(names[topic_id], number))
            if leader is not None:
                led.setdefault(leader.broker_id, set()).add((topic_id, number))
        for broker_id in sorted(led):
            self._fetch(life, broker_id, led[broker_id])

    def _fetch(self, life: _Life, broker_id: BrokerId, wanted: set[tuple[TopicId, int]]) -> None:
        connection = self.cluster.connection(broker_id, "share")
        if connection is None:
            self.wake_at(self.cluster.closed_until_us(broker_id))
            return
        session = life.sessions.get(broker_id)
        if session is None or session.connection is not connection:
            if session is not None:
                session.end()
            if not wanted:
                life.sessions.pop(broker_id, None)
                return
            session = life.sessions[broker_id] = ShareSession(connection)
        if session.is_busy or session.not_before_us > self.now_us:
            return
        if not wanted and not session.partitions and not session.acks:
            return
        records_max = _HURRIED_RECORDS if self.is_finishing else self._records_max
        request = session.request(self.group, life.member_id, wanted, records_max)
        asked = session.asked(self.now_us)
        for key, acks in asked.acks.items():
            at = self._at(*key)
            for offset, said in acks.items():
                if at is not None and said.kind in _SETTLING:
                    self.watch.said(self.group, place_of(at, key[0]), offset, said.hold)
        for topic_id, number in session.partitions:
            at = self._at(topic_id, number)
            if at is not None:
                asked.led[topic_id, number] = self.world.leadership(broker_id, at)
        then = partial(self._fetched, life, session, asked)
        self.cluster.ask(connection, ApiKey.SHARE_FETCH, request, then)

    def _at(self, topic_id: TopicId, number: int) -> TopicPartition | None:
        for name in self.cluster.topics:
            if self.cluster.topic_id(name) == topic_id:
                return TopicPartition(name, number)
        return None

    def _fetched(self, life: _Life, session: ShareSession, asked: Asked, outcome: Outcome) -> None:
        session.is_busy = False
        if self.is_done:
            return
        code = ErrorCode.NETWORK_EXCEPTION
        if not isinstance(outcome, RequestFailed):
            code = ErrorCode(outcome.error_code)
        if code is not ErrorCode.NONE:
            self.counters[f"share fetch {code.name}"] += 1
            if isinstance(outcome, RequestFailed):
                self.watch.unheard(self.group)
            session.end()
            if life.sessions.get(session.connection.broker_id) is session:
                del life.sessions[session.connection.broker_id]
            self.cluster.stale()
            self.wake_at(self.now_us + self.about(_RETRY_US))
            return
        session.answered()
        if life is self._life:
            self._take(session, asked, outcome)
        else:
            self.watch.unheard(self.group)
        is_slow = self._work_us and not self.is_finishing
        delay_us = self.about(self._work_us) if is_slow else 1_000
        session.not_before_us = max(session.not_before_us, self.now_us + delay_us)
        self.wake_at(session.not_before_us)

    def _take(self, session: ShareSession, asked: Asked, answer: ShareFetchResponse) -> None:
        for key, holds in session.holds.items():
            at = self._at(*key)
            if at is not None:
                self.watch.still_there(place_of(at, key[0]), holds.values())
        for topic in answer.responses:
            for data in topic.partitions:
                at = self._at(topic.topic_id, data.partition_index)
                if at is None:
                    self.watch.unheard(self.group)
                else:
                    self._take_one(session, asked, at, topic.topic_id, data, answer)

    def _take_one(
        self,
        session: ShareSession,
        asked: Asked,
        at: TopicPartition,
        topic_id: TopicId,
        data: PartitionData,
        answer: ShareFetchResponse,
    ) -> None:
        key, place = (topic_id, at.partition), place_of(at, topic_id)
        acked = {
            offset: said.hold
            for offset, said in asked.acks.get(key, {}).items()
            if said.kind in _SETTLING
        }
        code = ErrorCode(data.acknowledge_error_code)
        if key in asked.acks:
            self.counters[f"share ack {code.name}"] += 1
        if code is ErrorCode.NONE:
            self.watch.confirmed(self.group, place, acked)
        elif code is ErrorCode.INVALID_RECORD_STATE:
            self.watch.refused(self.group, place, acked)
        if data.error_code:
            self.counters[f"share read {ErrorCode(data.error_code).name}"] += 1
            self.cluster.stale()
            session.not_before_us = self.now_us + self.about(_RETRY_US)
            return
        led = asked.led.get(key)
        broker_id = session.connection.broker_id
        is_led = led is not None and led == self.world.leadership(broker_id, at)
        is_newest = led is not None and is_led and led.leader_epoch == self.world.leader_epoch(at)
        until_us = asked.at_us + 1000 * answer.acquisition_lock_timeout_ms - _ROUNDING_US
        there = self._offsets(session.connection, data)
        for batch in data.acquired_records or ():
            for offset in range(batch.first_offset, batch.last_offset + 1):
                hold = Hold(self.name, led if is_led else None, until_us, batch.delivery_count)
                session.holds.setdefault(key, {})[offset] = hold
                self.watch.given(
                    self.group, place, offset, hold, asked_us=asked.at_us, is_newest=is_newest
                )
                self._news_us = self.now_us
                kind = AckType.GAP if offset not in there else self._verdict()
                if kind is not None:
                    session.acknowledge(key, offset, Said(kind, hold))
                else:
                    self.counters["share record forgotten"] += 1
                if batch.delivery_count > 1:
                    self.counters["share record again"] += 1

    def _offsets(self, connection: Connection, data: PartitionData) -> set[int]:
        found: set[int] = set()
        buffer: Any = data.records or b""
        try:
            for at, header in iterate_headers(buffer):
                if not header.is_control:
                    found |= {record.offset for record in read_records(buffer, at)}
        except CorruptRecords as error:
            if not connection.is_damaged:
                self.found("I-47", f"{self.name} was sent {error}")
        return found

    def _verdict(self) -> AckType | None:
        drawn = self.random.randrange(100)
        if self.is_finishing:
            return AckType.ACCEPT
        if drawn < self._forgets:
            return None
        if drawn >= 96:
            return AckType.REJECT
        return AckType.RELEASE if drawn >= 88 else AckType.ACCEPT
