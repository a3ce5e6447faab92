"""Produce requests with batches that a client may not write: refused as a real Kafka refuses them.

Every request goes to both brokers; compared is each partition's error code, and where it has none
its offset. `docs/compatibility.md` has the rulings on what differs; it is listed here, too.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from typing import Final

import pytest

from strandline.client.clock import SystemClock
from strandline.client.connection import Connection
from strandline.client.settings import ClientSettings, parse_addresses
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from strandline.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from strandline.records.batch import CONTROL_BIT, HEADER_BYTES, TRANSACTIONAL_BIT, parse_header
from strandline.records.builder import build_batch, join_batch
from strandline.records.codec import Codec
from strandline.records.record import Record
from strandline.types import ProducerEpoch, ProducerId
from tests.java.kafka_broker import Kafka
from tests.java.processes import Broker, ToolServer, Workshop
from tests.records.lies import (
    LIES,
    LOOSE_LIES,
    ODDITIES,
    Claim,
    batch_of,
    broken_streams,
)

Answer = tuple[int, int]
_PARTITIONS: Final = 3
_SERVER_ERROR: Final = -1
_DIFFERENT: Final = {
    "LIES": (_SERVER_ERROR,),
    "LOOSE_LIES": (0, _SERVER_ERROR),
    "STREAMS": (_SERVER_ERROR,),
    "twice": (0, _SERVER_ERROR),
}
"""What Kafka may answer where Strandline says INVALID_RECORD: an error of the server in place of
one of the client, and 0 where it does not look."""


class Side:
    """One of the two brokers."""

    def __init__(self, address: str) -> None:
        (where,) = parse_addresses(address)
        self._connection = Connection.open(where, ClientSettings(), SystemClock())

    def create(self, topic: str) -> None:
        wanted = CreatableTopic(name=topic, num_partitions=_PARTITIONS, replication_factor=1)
        request = CreateTopicsRequest(topics=[wanted], timeout_ms=60_000)
        made = self._connection.call(ApiKey.CREATE_TOPICS, CreateTopicsResponse, request)
        assert [each.error_code for each in made.topics] == [0]
        # A broker may hear later than its controller that it leads.
        deadline = time.monotonic() + 60
        for index in range(_PARTITIONS):
            while self.send(topic, {index: batch()})[index][0] != 0:
                assert time.monotonic() < deadline

    def send(
        self,
        topic: str,
        batches: dict[int, bytes],
        *,
        acks: int = 1,
        transactional_id: str | None = None,
        version: int = 12,
    ) -> dict[int, Answer]:
        """Error code and base offset of each partition."""
        data = [
            PartitionProduceData(index=index, records=memoryview(records))
            for index, records in batches.items()
        ]
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=acks,
            timeout_ms=30_000,
            topic_data=[TopicProduceData(name=topic, partition_data=data)],
        )
        answer = self._connection.call(ApiKey.PRODUCE, ProduceResponse, request, highest=version)
        return {
            each.index: (each.error_code, each.base_offset)
            for topic_answer in answer.responses
            for each in topic_answer.partition_responses
        }

    def close(self) -> None:
        """Hang up."""
        self._connection.close()


class Both:
    """Both brokers, asked the same."""

    def __init__(self, theirs: Side, ours: Side) -> None:
        self._sides = theirs, ours
        self._topics = 0

    def new_topic(self) -> str:
        self._topics += 1
        topic = f"refused-{self._topics}"
        for side in self._sides:
            side.create(topic)
        return topic

    def send(
        self,
        topic: str,
        batches: dict[int, bytes],
        *,
        acks: int = 1,
        transactional_id: str | None = None,
        version: int = 12,
    ) -> dict[int, int]:
        """The error code of each partition, on which both agree."""
        theirs, ours = (
            side.send(topic, batches, acks=acks, transactional_id=transactional_id, version=version)
            for side in self._sides
        )
        assert ours == theirs
        return {index: code for index, (code, _) in ours.items()}

    def send_apart(
        self, topic: str, batches: dict[int, bytes]
    ) -> tuple[dict[int, Answer], dict[int, Answer]]:
        """The answers of Kafka and of Strandline, which may differ."""
        theirs, ours = (side.send(topic, batches) for side in self._sides)
        return theirs, ours


@pytest.fixture(scope="module")
def both(workshop: Workshop, tools: ToolServer, broker: Broker) -> Iterator[Both]:
    kafka = Kafka(workshop, tools, workshop.directory / "kafka")
    kafka.start()
    with closing(Side(kafka.address)) as theirs, closing(Side(broker.address)) as ours:
        yield Both(theirs, ours)


def batch(attributes: int = 0, producer_id: int = -1) -> bytes:
    """A batch of one record with these attributes, under a right checksum."""
    has_producer = producer_id >= 0
    plain = build_batch(
        [Record(timestamp=int(time.time() * 1000), key=b"k", value=b"v")],
        producer_id=ProducerId(producer_id),
        producer_epoch=ProducerEpoch(0 if has_producer else -1),
        base_sequence=0 if has_producer else -1,
    )
    header = parse_header(plain)._replace(attributes=attributes)
    return bytes(join_batch(header, plain[HEADER_BYTES:]))


def changed(at: int, replacement: bytes, attributes: int = TRANSACTIONAL_BIT) -> bytes:
    """A batch with other bytes somewhere in its header."""
    out = bytearray(batch(attributes, 77))
    out[at : at + len(replacement)] = replacement
    return bytes(out)


@pytest.mark.parametrize("version", range(3, 13))
def test_c3_a_transactional_batch_without_an_id(both: Both, version: int) -> None:
    topic = both.new_topic()
    for producer_id in (-1, 77):
        for attributes in (TRANSACTIONAL_BIT, TRANSACTIONAL_BIT | CONTROL_BIT):
            wrong = batch(attributes, producer_id)
            assert both.send(topic, {0: wrong}, version=version) == {0: 53}
            assert both.send(topic, {1: batch(), 0: wrong}, version=version) == {0: 53, 1: 53}
    assert both.send(topic, {0: batch(), 1: batch()}) == {0: 0, 1: 0}


def test_c3_which_batch_of_a_request_decides(both: Both) -> None:
    topic = both.new_topic()
    wrong = batch(TRANSACTIONAL_BIT, 77)
    cut = wrong[:-3]
    bad_checksum = changed(17, b"\x09\x09\x09\x09")
    for first, code in {
        cut: {0: 87, 1: 0},
        wrong[:40]: {0: 87, 1: 0},
        batch() + wrong: {0: 87, 1: 0},
        b"": {0: 87, 1: 0},
        changed(8, (10).to_bytes(4, "big")): {0: 2, 1: 2},
        changed(16, b"\x01"): {0: 87, 1: 0},
        changed(16, b"\x09"): {0: 2, 1: 2},
    }.items():
        assert both.send(topic, {0: first, 1: batch()}) == code, first
    assert both.send(topic, {0: wrong}, acks=7) == {0: 53}
    assert both.send(topic, {0: batch()}, acks=7) == {0: 21}
    for damaged in (bad_checksum, changed(8, (28).to_bytes(4, "big"))[:40]):
        # Kafka believes the transactional bit of a batch whose checksum is wrong.
        theirs, ours = both.send_apart(topic, {0: damaged, 1: batch()})
        assert {number: code for number, (code, _) in theirs.items()} == {0: 53, 1: 53}
        assert {number: code for number, (code, _) in ours.items()} == {0: 2, 1: 0}


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("names", ["LIES", "LOOSE_LIES", "ODDITIES", "STREAMS"])
def test_c4_what_is_in_a_batch(both: Both, names: str, codec: Codec) -> None:
    """Sent once to each; only what `_DIFFERENT` lists is answered in another way."""
    topic = both.new_topic()
    now_ms = int(time.time() * 1000)
    if names == "STREAMS":
        batches = {
            name: batch_of(packed, Claim(b""), now_ms, codec)
            for name, packed in broken_streams(codec).items()
        }
    else:
        claims = {"LIES": LIES, "LOOSE_LIES": LOOSE_LIES, "ODDITIES": ODDITIES}[names]
        batches = {name: claim.batch(now_ms, codec) for name, claim in claims.items()}
    for name, data in batches.items():
        different = _DIFFERENT.get(name) or _DIFFERENT.get(names, ())
        theirs, ours = both.send_apart(topic, {0: data})
        assert ours[0][0] == (0 if names == "ODDITIES" else 87), name
        assert theirs[0][0] == ours[0][0] or theirs[0][0] in different, name
    assert both.send_apart(topic, {1: batch()})[0][1][0] == 0


def test_control_batches_and_ids_without_transactions(both: Both) -> None:
    topic = both.new_topic()
    assert both.send(topic, {0: batch(CONTROL_BIT), 1: batch()}) == {0: 87, 1: 0}
    assert both.send(topic, {0: batch()}, transactional_id="tx") == {0: 0}
