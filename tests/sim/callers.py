"""Clients for tests of simulated machines: real bytes over wires, and nothing more."""

from __future__ import annotations

from collections import deque
from typing import Any

from strandline.errors import ErrorCode
from strandline.protocol.apis import KNOWN, Api
from strandline.protocol.framing import parse_response_header, request_frame
from strandline.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from strandline.protocol.messages.init_producer_id import InitProducerIdRequest
from strandline.protocol.schema import decode_response
from strandline.records.batch import iterate_headers
from strandline.records.record import read_records
from strandline.sim.settled import log_bytes
from strandline.sim.wires import Wire
from strandline.sim.world import World
from strandline.types import BrokerId, TopicPartition
from tests.node.messages import batch, produce, produced

PATIENCE_US = 3_000_000
PAUSE_US = 20_000


class Caller:
    """One connection of a client; see `wires.Peer`."""

    def __init__(self, world: World, name: str, broker_id: int) -> None:
        self.world = world
        self.answers: list[Any] = []
        self.ending: str | None = None
        self._asked: deque[tuple[Api, int, int]] = deque()
        self._unsent: list[bytes] = []
        self._is_open = False
        self._correlation_id = 0
        self._wire: Wire = world.network.dial(name, BrokerId(broker_id), self)

    def send(self, message: object, version: int) -> None:
        """Send a request now, or as soon as the connection stands."""
        name = type(message).__name__.removesuffix("Request")
        api = next(api for api in KNOWN.values() if api.name == name)
        self._correlation_id += 1
        chunks: list[Any] = request_frame(api, version, self._correlation_id, "test", message)
        self._asked.append((api, version, self._correlation_id))
        self._unsent.append(b"".join(chunks))
        if self._is_open:
            self.opened()

    def ask(self, message: object, version: int) -> Any:
        """Send a request and let time pass until it is answered."""
        before = len(self.answers)
        self.send(message, version)
        self.world.run_until(lambda: self.ending is not None or len(self.answers) > before)
        assert len(self.answers) > before, self.ending
        return self.answers[-1]

    def close(self) -> None:
        """The client hangs up."""
        self._wire.close()

    def opened(self) -> None:
        self._is_open = True
        unsent, self._unsent = self._unsent, []
        for frame in unsent:
            self._wire.send(frame)

    def received(self, frame: bytes) -> None:
        api, version, correlation_id = self._asked.popleft()
        found, position = parse_response_header(memoryview(frame), api, version)
        assert found == correlation_id, "answers are out of order"
        self.answers.append(decode_response(api.key, version, memoryview(frame), position))

    def closed(self, reason: str) -> None:
        self.ending = reason


class Writer:
    """Writes numbers to one partition, one batch at a time, with acks=all and a producer id; each
    until it is acknowledged, to the leader in the metadata."""

    def __init__(self, world: World, name: str, at: TopicPartition) -> None:
        self.world = world
        self.name = name
        self.at = at
        self.acknowledged: dict[bytes, int] = {}
        self.is_stopping = False
        self.is_done = False
        self._caller: Caller | None = None
        self._give_up_us = 0
        self._number = 0
        self.producer_id = (
            controller_caller(world, f"{name}-id")
            .ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4)
            .producer_id
        )
        self._tick()

    @property
    def _value(self) -> bytes:
        return f"{self.name}-{self._number}".encode()

    def _tick(self) -> None:
        caller, now_us = self._caller, self.world.schedule.now_us
        if caller is not None and caller.answers:
            self._take(produced(caller.answers.pop()))
        elif caller is not None and (caller.ending is not None or now_us >= self._give_up_us):
            self._hang_up()
        if self._give_up_us == 0:
            if self.is_stopping:
                self.is_done = True
                return
            self._number += 1
            self._send()
        elif self._caller is None:
            self._send()
        self.world.schedule.after(PAUSE_US, self._tick)

    def _take(self, answer: Any) -> None:
        if answer.error_code == ErrorCode.NONE:
            self.acknowledged[self._value] = answer.base_offset
            self._give_up_us = 0
        else:
            self._hang_up()

    def _hang_up(self) -> None:
        if self._caller is not None:
            self._caller.close()
            self._caller = None

    def _send(self) -> None:
        self._give_up_us = self.world.schedule.now_us + PATIENCE_US
        state = self.world.image.partition(self.at)
        if self._caller is None:
            if state is None or state.leader not in self.world.machines:
                return
            self._caller = Caller(self.world, self.name, state.leader)
        records = batch(
            self._value, producer_id=self.producer_id, epoch=0, sequence=self._number - 1
        )
        self._caller.send(produce(records, *self.at, acks=-1, timeout_ms=2_000), 9)


def controller_caller(world: World, name: str) -> Caller:
    """A connection to the controller, once there is one."""
    assert world.run_until(lambda: world.controller is not None)
    controller = world.controller
    assert controller is not None
    return Caller(world, name, controller.broker_id)


def create_topic(
    world: World, name: str, *assignments: tuple[int, ...], configs: dict[str, str] | None = None
) -> None:
    """Make a topic with these replicas per partition, and wait until all follow."""
    topic = CreatableTopic(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            CreatableReplicaAssignment(partition_index=number, broker_ids=list(brokers))
            for number, brokers in enumerate(assignments)
        ],
        configs=[
            CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()
        ],
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
    answer = controller_caller(world, f"create {name}").ask(request, 5)
    assert [item.error_code for item in answer.topics] == [0], answer
    assert world.run_until(world.is_settled), str(world)


def values_of(world: World, broker_id: int, at: TopicPartition) -> dict[int, bytes]:
    """Every value in a replica's log by its offset."""
    data = log_bytes(world, broker_id, at)
    found: dict[int, bytes] = {}
    for position, _ in iterate_headers(data):
        for record in read_records(data, position):
            assert record.offset not in found
            found[record.offset] = record.value or b""
    return found
