"""What a group costs with ever more members, of both protocols: to form it, and to keep it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final, Protocol, TypeVar

from bench.brokers import SocketBroker
from bench.growth.curve import Curve, Point
from bench.growth.partitions import create
from bench.growth.served import World, cpu_s, steps
from bench.raw_connection import RawConnection
from strandline.errors import ErrorCode
from strandline.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from strandline.protocol.messages.find_coordinator import FindCoordinatorRequest
from strandline.protocol.messages.heartbeat import HeartbeatRequest
from strandline.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from strandline.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

MOST: Final = 1000
SESSION_MS: Final = 120_000
BEATS: Final = 5000
"""Of all members together."""
BETWEEN_ROUNDS_S: Final = 0.1
ASSIGNMENT: Final = b"\0" * 30
PATIENCE_S: Final = 120.0
_JOIN: Final = 7
_SYNC: Final = 5
_BEAT: Final = 4
_CONSUMER_BEAT: Final = 1
SETTINGS: Final = {
    "group.initial.rebalance.delay.ms": "1000",
    "group.consumer.max.size": "100000",
    "group.consumer.max.session.timeout.ms": str(SESSION_MS),
    "group.consumer.session.timeout.ms": str(SESSION_MS),
}


def curves(world: World, most: int) -> Iterator[Curve]:
    """Processor time of the broker; members are connections of their own."""
    formed: dict[str, list[Point]] = {"classic": [], "consumer": []}
    kept: dict[str, list[Point]] = {"classic": [], "consumer": []}
    for count in steps(min(most, MOST), thirds=True):
        for protocol, kind in (("classic", _Classic), ("consumer", _Consumer)):
            with world.serving(SETTINGS) as broker:
                create(broker, count)
                group = kind(broker, count)
                group.find_coordinator()
                before = cpu_s(broker)
                group.form()
                formed[protocol].append(Point(count, 1000 * (cpu_s(broker) - before)))
                before = cpu_s(broker)
                beats = -(-BEATS // count)
                for _ in range(beats):
                    group.beat()
                took = cpu_s(broker) - before
                kept[protocol].append(Point(count, 1e6 * took / beats / count))
                group.close()
        world.tell(f"{count:,} members")
    for protocol in formed:
        yield Curve(
            title=f"forming a group ({protocol})",
            unit="ms of a core",
            work="members",
            points=formed[protocol],
        )
        yield Curve(
            title=f"a heartbeat ({protocol})",
            unit="us of a core",
            work="members",
            points=kept[protocol],
            grows=False,
        )


class _Answer(Protocol):
    error_code: int


AnswerT = TypeVar("AnswerT", bound=_Answer)


class _Group:
    """So many members of one group, each with its connection."""

    def __init__(self, broker: SocketBroker, count: int) -> None:
        self.members = [RawConnection(broker.port) for _ in range(count)]
        self.ids = [""] * count

    def find_coordinator(self) -> None:
        """Until the topic of groups is there."""
        deadline = time.monotonic() + PATIENCE_S
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=["many"])
        while True:
            answer = self.members[0].answer(request, 4)
            if not answer.coordinators[0].error_code:
                return
            if time.monotonic() > deadline:
                raise SystemExit("There is no coordinator.")
            time.sleep(0.05)

    def close(self) -> None:
        for each in self.members:
            each.close()


class _Classic(_Group):
    generation = -1

    def form(self) -> None:
        """All join, the leader brings what each of them gets."""
        answers = self._join()
        self.ids = [answer.member_id for answer in answers]
        for number, member in enumerate(self.members):
            member.send(self._joining(self.ids[number]), _JOIN)
        joined = [_good(member.receive(JoinGroupResponse, _JOIN)) for member in self.members]
        self.generation = joined[0].generation_id
        (leader,) = (each for each in joined if each.leader == each.member_id)
        parts = [
            SyncGroupRequestAssignment(member_id=each.member_id, assignment=ASSIGNMENT)
            for each in leader.members
        ]
        for member_id, member in zip(self.ids, self.members, strict=True):
            own = parts if member_id == leader.member_id else []
            member.send(
                SyncGroupRequest(
                    group_id="many",
                    generation_id=self.generation,
                    member_id=member_id,
                    protocol_type="consumer",
                    protocol_name="range",
                    assignments=own,
                ),
                _SYNC,
            )
        for member in self.members:
            _good(member.receive(SyncGroupResponse, _SYNC))

    def beat(self) -> None:
        for member_id, member in zip(self.ids, self.members, strict=True):
            request = HeartbeatRequest(
                group_id="many", generation_id=self.generation, member_id=member_id
            )
            _good(member.answer(request, _BEAT))

    def _join(self) -> list[JoinGroupResponse]:
        """With an empty id: each is given one."""
        for member in self.members:
            member.send(self._joining(""), _JOIN)
        return [member.receive(JoinGroupResponse, _JOIN) for member in self.members]

    def _joining(self, member_id: str) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id="many",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=SESSION_MS,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=ASSIGNMENT)],
        )


class _Consumer(_Group):
    def __init__(self, broker: SocketBroker, count: int) -> None:
        super().__init__(broker, count)
        self.ids = [f"member-{number:06}" for number in range(count)]
        self.epochs = [0] * count
        self.owned: list[list[TopicPartitions]] = [[] for _ in range(count)]
        self._topics = [f"many-{first}" for first in range(0, count, 100)]

    def form(self) -> None:
        """All join; then each says what it has until every one has its partition."""
        for number in range(len(self.members)):
            self._beat_of(number, joins=True)
        deadline = time.monotonic() + PATIENCE_S
        while not all(self.owned) or len(set(self.epochs)) > 1:
            if time.monotonic() > deadline:
                raise SystemExit("The group does not settle.")
            time.sleep(BETWEEN_ROUNDS_S)
            self.beat()

    def beat(self) -> None:
        for number in range(len(self.members)):
            self._beat_of(number)

    def _beat_of(self, number: int, *, joins: bool = False) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id="many",
            member_id=self.ids[number],
            member_epoch=self.epochs[number],
            rebalance_timeout_ms=SESSION_MS if joins else -1,
            subscribed_topic_names=self._topics if joins else None,
            topic_partitions=self.owned[number],
        )
        answer = self.members[number].answer(request, _CONSUMER_BEAT)
        if not isinstance(answer, ConsumerGroupHeartbeatResponse):
            raise TypeError("That is another answer.")
        _good(answer)
        self.epochs[number] = answer.member_epoch
        if answer.assignment is not None:
            self.owned[number] = answer.assignment.topic_partitions


def _good(answer: AnswerT) -> AnswerT:
    """As it came, if it is no refusal."""
    if answer.error_code:
        raise SystemExit(f"A member was refused: {ErrorCode(answer.error_code).name}")
    return answer
