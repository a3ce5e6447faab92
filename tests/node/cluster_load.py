"""Producers that write to a simulated cluster without pause, and what they were told.

Each has one batch under way at a time, with acks=all and a producer id, and sends it until it is
acknowledged, to the leader in the metadata. So every value is in the log exactly once and in
order, if the brokers keep their promises.
"""

from __future__ import annotations

from typing import Any

from strandline.errors import ErrorCode
from strandline.protocol.messages.init_producer_id import InitProducerIdRequest
from strandline.records.batch import iterate_headers
from strandline.records.record import read_records
from strandline.types import TopicPartition
from tests.node.cluster_world import Broker, ClusterWorld
from tests.node.messages import batch, produce, produced
from tests.node.world import Client

PATIENCE_MS = 3000
PAUSE_US = 40_000
_TEMPORARY = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.KAFKA_STORAGE_ERROR,
}


class Producer:
    """Writes to one partition until it is told to stop."""

    def __init__(self, world: ClusterWorld, topic: str, partition: int = 0) -> None:
        self.world = world
        self.at = TopicPartition(topic, partition)
        self.acknowledged: dict[bytes, int] = {}
        self.is_stopping = False
        self.is_done = False
        self._sent: set[bytes] = set()
        self._sequence = 0
        self._client: Client | None = None
        self._answers = 0
        self._give_up_ms = 0
        answer = world.controller.connect().ask(
            InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4
        )
        assert answer.error_code == 0
        self.producer_id = answer.producer_id
        self._tick()

    def stop(self) -> None:
        """Write no new value, but get the present one through."""
        self.is_stopping = True

    @property
    def _value(self) -> bytes:
        return b"%d-%d" % (self.producer_id, self._sequence)

    def _tick(self) -> None:
        if self._client is not None:
            self._look(self._client)
        if self._client is None:
            if self.is_stopping and self._value not in self._unsure:
                self.is_done = True
                return
            self._send()
        self.world.schedule.after(PAUSE_US, self._tick)

    @property
    def _unsure(self) -> set[bytes]:
        return self._sent - self.acknowledged.keys()

    def _look(self, client: Client) -> None:
        if client.answers:
            self._take(produced(client.answers[-1]))
            self._forget(client)
        elif client.closed is not None or self.world.schedule.now_ms >= self._give_up_ms:
            self._forget(client)

    def _forget(self, client: Client) -> None:
        client.close()
        self._client = None

    def _take(self, answer: Any) -> None:
        code = ErrorCode(answer.error_code)
        if code == ErrorCode.NONE:
            self.acknowledged[self._value] = answer.base_offset
            self._sequence += 1
        else:
            assert code in _TEMPORARY, f"{self._value!r} was refused with {code.name}"

    def _send(self) -> None:
        leader = self.world.partition(*self.at).leader
        machine = self.world.machines.get(leader)
        if machine is None or not machine.is_up:
            return
        self._client = client = machine.connect()
        self._give_up_ms = self.world.schedule.now_ms + PATIENCE_MS
        records = batch(self._value, producer_id=self.producer_id, epoch=0, sequence=self._sequence)
        self._sent.add(self._value)
        request = produce(records, *self.at, acks=-1, timeout_ms=PATIENCE_MS)
        machine.event(lambda node, now: _send(client, request))


def _send(client: Client, request: object) -> None:
    if client.closed is None:
        client.send(request, 9)


def values_of(broker: Broker, topic: str, partition: int = 0) -> dict[int, bytes]:
    """Every value in a replica's log by its offset."""
    data = broker.world.log_bytes(broker.broker_id, topic, partition)
    found: dict[int, bytes] = {}
    for position, _ in iterate_headers(data):
        for record in read_records(data, position):
            assert record.offset not in found
            found[record.offset] = record.value or b""
    return found
