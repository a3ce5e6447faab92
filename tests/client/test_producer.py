"""The producer against a real broker, and against one whose answers get lost."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from strandline.client.admin import Admin
from strandline.client.cluster import ClusterClient
from strandline.client.consumer import Consumer
from strandline.client.partitioner import partition_for_key
from strandline.client.producer import Producer, ProducerSettings
from strandline.client.start import Start
from strandline.errors import ErrorCode, ProtocolError
from strandline.protocol.apis import KNOWN, ApiKey
from strandline.protocol.framing import parse_response_header, response_frame
from strandline.protocol.messages.produce import ProduceResponse
from strandline.protocol.schema import decode_response
from strandline.records.codec import Codec
from strandline.records.record import Record
from strandline.types import NO_OFFSET, TopicPartition
from tests.client.between import Between
from tests.client.conftest import FAST
from tests.node.world import joined


def read_all(cluster: ClusterClient, topic: str) -> dict[int, list[Record]]:
    consumer = Consumer(cluster)
    partitions = [TopicPartition(topic, each) for each in cluster.topic(topic).partitions]
    consumer.assign(dict.fromkeys(partitions, Start.earliest()))
    found: dict[int, list[Record]] = {each.partition: [] for each in partitions}
    ends = consumer.end_offsets()
    while any(consumer.positions[each] < end for each, end in ends.items()):
        for fetched in consumer.poll(60_000):
            found[fetched.topic_partition.partition] += fetched.records
    return found


@pytest.mark.parametrize("codec", list(Codec))
def test_records_come_back_as_they_were(cluster: ClusterClient, name: str, codec: Codec) -> None:
    Admin(cluster).topics.create(name, partitions=3)
    sent: dict[tuple[int, int], Record] = {}
    deliveries = []
    with Producer(cluster, ProducerSettings(codec=codec, batch_bytes=2000)) as producer:
        for number in range(500):
            record = Record(
                timestamp=1_700_000_000_000 + number,
                key=None if number % 3 else b"key %d" % number,
                value=None if number % 7 == 0 else b"value %d" % number,
                headers=(("h", b"1"), ("h", None)) if number % 5 == 0 else (),
            )
            delivery = producer.send(
                name,
                record.value,
                key=record.key,
                headers=record.headers,
                timestamp=record.timestamp,
            )
            deliveries.append((delivery, record))
        assert producer.flush().delivered == 500
        assert producer.buffered_bytes == 0
    for delivery, record in deliveries:
        partition = delivery.topic_partition.partition
        if record.key is not None:
            assert partition == partition_for_key(record.key, 3)
        sent[partition, delivery.result()] = record
    found = read_all(cluster, name)
    came = {(p, r.offset): r._replace(offset=NO_OFFSET) for p in found for r in found[p]}
    assert came == sent


def test_a_batch_above_the_limit_is_split_until_it_fits(cluster: ClusterClient, name: str) -> None:
    Admin(cluster).topics.create(name, configs={"max.message.bytes": "1000"})
    producer = Producer(cluster)
    deliveries = [producer.send(name, b"x" * 100) for _ in range(100)]
    too_large = producer.send(name, b"y" * 2000)
    after = producer.send(name, b"z")
    result = producer.flush()
    assert (result.delivered, len(result.failed)) == (101, 1)
    assert [each.result() for each in deliveries] == list(range(100))
    assert after.result() == 100
    with pytest.raises(ProtocolError) as refused:
        too_large.result()
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert refused.value.definite
    with pytest.raises(ProtocolError):
        result.raise_failure()


def test_what_is_not_flushed_has_no_outcome_yet(cluster: ClusterClient, name: str) -> None:
    producer = Producer(cluster)
    delivery = producer.send(name, b"v")
    with pytest.raises(ProtocolError, match="still on its way"):
        delivery.result()
    producer.flush()
    assert delivery.result() == 0


def test_memory_is_bounded(cluster: ClusterClient, name: str) -> None:
    Admin(cluster).topics.create(name, partitions=8)
    settings = ProducerSettings(buffer_bytes_max=20_000, batch_bytes=5000)
    with Producer(cluster, settings) as producer:
        for number in range(500):
            producer.send(name, bytes(500), partition=number % 8)
            assert producer.buffered_bytes <= 20_000
        with pytest.raises(ProtocolError, match="does not fit"):
            producer.send(name, bytes(20_001))
    assert sum(map(len, read_all(cluster, name).values())) == 500


@pytest.mark.parametrize("acks", [0, 1])
def test_weaker_acks(cluster: ClusterClient, name: str, acks: int) -> None:
    Admin(cluster).topics.create(name)
    with Producer(cluster, ProducerSettings(acks=acks)) as producer:
        delivery = producer.send(name, b"v")
    assert delivery.result() == (NO_OFFSET if acks == 0 else 0)
    # Requests of one connection are served in order, so the record is there for the next one.
    assert [record.value for record in read_all(cluster, name)[0]] == [b"v"]


def test_unknown_places_are_refused_at_once(cluster: ClusterClient, name: str) -> None:
    producer = Producer(cluster, ProducerSettings(may_create_topics=False))
    with pytest.raises(ProtocolError, match="There is no topic"):
        producer.send(name, b"v")
    Admin(cluster).topics.create(name)
    with pytest.raises(ProtocolError, match="no partition 5"):
        producer.send(name, b"v", partition=5)


def test_a_topic_deleted_meanwhile_fails_its_records(broker: Any, name: str) -> None:
    with ClusterClient(broker.address, replace(FAST, topic_wait_ms=500)) as cluster:
        Admin(cluster).topics.create(name)
        producer = Producer(cluster, ProducerSettings(may_create_topics=False))
        delivery = producer.send(name, b"v")
        with ClusterClient(broker.address, FAST) as other:
            assert Admin(other).topics.delete([name]) == {name: None}
        failed = producer.flush().failed
    assert [(each.count, each.error.code) for each in failed] == [
        (1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    ]
    assert delivery.is_done


def test_a_broken_connection_is_made_anew(cluster: ClusterClient, name: str) -> None:
    producer = Producer(cluster)
    producer.send(name, b"1")
    producer.flush().raise_failure()
    cluster.close()
    second = producer.send(name, b"2")
    producer.flush().raise_failure()
    assert second.result() == 1


def test_a_broker_may_be_away_for_a_while(start_broker_at: Callable[..., Any]) -> None:
    broker = start_broker_at()
    with (
        ClusterClient(broker.address, FAST) as cluster,
        ClusterClient(broker.address, FAST) as reading,
    ):
        producer = Producer(cluster)
        producer.send("t", b"before")
        producer.flush().raise_failure()
        consumer = Consumer(reading)
        consumer.assign({TopicPartition("t", 0): Start.latest()})
        broker.stop()
        during = producer.send("t", b"during")
        assert consumer.poll(50) == []
        assert consumer.trouble is not None
        returns = threading.Timer(0.2, broker.start)
        returns.start()
        producer.flush().raise_failure()
        returns.join()
        assert during.result() == 1
        assert [each.value for each in consumer.poll(60_000)[0].records] == [b"during"]
        assert consumer.trouble is None


@pytest.mark.parametrize(
    ("record", "refusal"),
    [
        ({"value": "text"}, TypeError),
        ({"value": 7}, TypeError),
        ({"value": b"v", "key": "text"}, TypeError),
        ({"value": b"v", "headers": [("h", "text")]}, TypeError),
        ({"value": b"v", "headers": [(b"h", b"1")]}, TypeError),
        ({"value": b"v", "headers": [("\ud800", b"1")]}, ValueError),
        ({"value": b"v", "timestamp": 2**63}, ValueError),
        ({"value": b"v", "timestamp": -2}, ValueError),
        ({"value": b"v", "timestamp": 1.5}, TypeError),
    ],
)
def test_what_is_no_record_is_refused_at_once_and_harms_no_other(
    cluster: ClusterClient, name: str, record: dict[str, Any], refusal: type[Exception]
) -> None:
    producer = Producer(cluster)
    producer.send(name, b"before")
    with pytest.raises(refusal):
        producer.send(name, **record)
    # Bytes that may change are taken too, though its type does not promise it.
    after: Any = bytearray(b"after")
    producer.send(name, after, headers=[("\udcff", None)], timestamp=-1)
    producer.flush().raise_failure()
    assert [each.value for each in read_all(cluster, name)[0]] == [b"before", b"after"]


def test_a_broker_that_stays_away_fails_records(start_broker_at: Callable[..., Any]) -> None:
    broker = start_broker_at()
    with ClusterClient(broker.address, FAST) as cluster:
        patient = Producer(cluster)
        patient.send("t", b"before")
        patient.flush().raise_failure()
        producer = Producer(cluster, ProducerSettings(delivery_timeout_ms=100))
        broker.stop()
        delivery = producer.send("t", b"lost")
        failed = producer.flush().failed
        assert [each.count for each in failed] == [1]
        with pytest.raises(ProtocolError):
            delivery.result()
        assert producer.buffered_bytes == 0
    broker.start()


class LosesAnAnswer(Between):
    """Stands between clients and a broker and drops the answer to the first produce request."""

    def __init__(self) -> None:
        self.lost = 0
        super().__init__()

    def serve(self, near: socket.socket) -> None:
        """One request at a time, which is how this client uses a new connection."""
        with near, socket.create_connection(self.target) as far:
            while request := _frame(near):
                far.sendall(request)
                answer = _frame(far)
                if request[4:6] == b"\x00\x00":
                    spoilt = self._spoil(request, answer)
                    if spoilt is None:
                        return
                    answer = spoilt
                near.sendall(answer)

    def _spoil(self, request: bytes, answer: bytes) -> bytes | None:
        """What the client gets instead of the answer to a produce; None: nothing any more."""
        if self.lost:
            return answer
        self.lost += 1
        return None


class SaysNotLeader(LosesAnAnswer):
    """Answers produces of one value as a leader does that is deposed while it waits for others."""

    def _spoil(self, request: bytes, answer: bytes) -> bytes:
        if b"unlucky" not in request:
            return answer
        self.lost += 1
        api, version = KNOWN[ApiKey.PRODUCE], int.from_bytes(request[6:8], "big")
        correlation_id, position = parse_response_header(memoryview(answer[4:]), api, version)
        message = decode_response(api.key, version, answer[4:], position)
        assert isinstance(message, ProduceResponse)
        (partition,) = message.responses[0].partition_responses
        assert partition.error_code == 0 or self.lost > 1
        partition.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        partition.base_offset = -1
        return joined(response_frame(api, version, correlation_id, message))


def _frame(sock: socket.socket) -> bytes:
    data = b""
    while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
        more = sock.recv(65536)
        if not more:
            return b""
        data += more
    return data


@pytest.mark.parametrize("is_idempotent", [True, False])
def test_a_lost_answer_repeats_records_only_without_idempotence(
    start_broker_at: Callable[..., Any], is_idempotent: bool
) -> None:
    proxy = LosesAnAnswer()
    broker = start_broker_at(f"advertised.listeners=PLAINTEXT://127.0.0.1:{proxy.port}")
    proxy.target = ("127.0.0.1", broker.port)
    try:
        with ClusterClient(f"127.0.0.1:{proxy.port}", FAST) as cluster:
            producer = Producer(cluster, ProducerSettings(is_idempotent=is_idempotent))
            delivery = producer.send("t", b"once?")
            producer.flush().raise_failure()
            found = [record.value for record in read_all(cluster, "t")[0]]
    finally:
        proxy.close()
    assert proxy.lost == 1
    assert found == [b"once?"] * (1 if is_idempotent else 2)
    assert delivery.result() == (0 if is_idempotent else 1)


def test_a_batch_that_may_be_written_gives_its_number_to_no_other(
    start_broker_at: Callable[..., Any],
) -> None:
    """With acks=all NOT_LEADER_OR_FOLLOWER may come behind the append (I-41). The next batch under
    the same sequence number would be taken for a repetition, and be lost although acknowledged."""
    proxy = SaysNotLeader()
    broker = start_broker_at(f"advertised.listeners=PLAINTEXT://127.0.0.1:{proxy.port}")
    proxy.target = ("127.0.0.1", broker.port)
    try:
        with ClusterClient(f"127.0.0.1:{proxy.port}", FAST) as cluster:
            Admin(cluster).topics.create("t")
            producer = Producer(cluster, ProducerSettings(delivery_timeout_ms=5000))
            producer.send("t", b"first")
            producer.flush().raise_failure()
            producer.send("t", b"unlucky")
            (failed,) = producer.flush().failed
            assert failed.maybe_written
            producer.send("t", b"third")
            producer.flush().raise_failure()
            found = [record.value for record in read_all(cluster, "t")[0]]
    finally:
        proxy.close()
    assert proxy.lost > 0
    assert found == [b"first", b"unlucky", b"third"]
