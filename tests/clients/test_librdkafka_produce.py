"""librdkafka's producer: what it writes is what a checking consumer reads."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    KafkaError,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from tests.clients.librdkafka import (
    Deliveries,
    consuming,
    create_topic,
    read_partition,
    send_all,
    take,
    values_of,
)
from tests.clients.support import WAIT_SECONDS, BrokerProcess

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def some_values(seed: int, count: int, size_max: int) -> list[bytes]:
    source = random.Random(seed)
    kinds: list[Callable[[int], bytes]] = [source.randbytes, lambda size: b"x" * size]
    return [b"%06d " % n + source.choice(kinds)(source.randrange(size_max)) for n in range(count)]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
def test_codecs(broker: BrokerProcess, topic: str, codec: str, idempotent: bool) -> None:
    values = some_values(seed=7, count=1500, size_max=400)
    messages = send_all(
        broker.address,
        topic,
        values,
        settings={"compression.type": codec, "enable.idempotence": idempotent, "linger.ms": 5},
    )
    assert [message.offset() for message in messages] == list(range(len(values)))
    read = read_partition(broker.address, topic, 0, len(values))
    assert [message.value() for message in read] == values
    assert [message.offset() for message in read] == list(range(len(values)))


@pytest.mark.parametrize("acks", ["1", "all"])
def test_acknowledged(broker: BrokerProcess, topic: str, acks: str) -> None:
    values = some_values(seed=1, count=300, size_max=100)
    messages = send_all(broker.address, topic, values, settings={"acks": acks})
    assert [message.offset() for message in messages] == list(range(300))
    assert [m.value() for m in read_partition(broker.address, topic, 0, 300)] == values


def test_not_acknowledged(broker: BrokerProcess, topic: str) -> None:
    """acks=0 has no answers, so nothing but the records tells that they arrived."""
    values = some_values(seed=2, count=300, size_max=100)
    messages = send_all(broker.address, topic, values, settings={"acks": "0"})
    assert len(messages) == 300
    assert [m.value() for m in read_partition(broker.address, topic, 0, 300)] == values


def test_requests_without_and_with_answers_on_one_broker(broker: BrokerProcess, topic: str) -> None:
    """acks is per topic in librdkafka, so one connection carries both kinds."""
    silent = Deliveries(broker.address, {"acks": "0"})
    loud = Deliveries(broker.address, {"acks": "all"})
    for n in range(200):
        silent.send(topic, b"%d" % n, partition=0)
        loud.send(topic, b"%d" % n, partition=1)
    silent.flush()
    assert [message.offset() for message in loud.flush()] == list(range(200))
    expected = [b"%d" % n for n in range(200)]
    assert [m.value() for m in read_partition(broker.address, topic, 0, 200)] == expected


def test_null_and_empty(broker: BrokerProcess, topic: str) -> None:
    deliveries = Deliveries(broker.address)
    for key in (None, b"", b"key"):
        for value in (None, b"", b"value"):
            deliveries.send(topic, value, key=key, partition=0)
    deliveries.flush()
    read = read_partition(broker.address, topic, 0, 9)
    assert [(m.key(), m.value()) for m in read] == [
        (key, value) for key in (None, b"", b"key") for value in (None, b"", b"value")
    ]


def test_headers(broker: BrokerProcess, topic: str) -> None:
    headers = [
        ("a", b"1"),
        ("a", b"2"),
        ("null", None),
        ("empty", b""),
        ("ключ", b"\x00\xff" * 500),
    ]
    deliveries = Deliveries(broker.address, {"compression.type": "zstd"})
    deliveries.send(topic, b"with", headers=headers, partition=2)
    deliveries.send(topic, b"without", partition=2)
    deliveries.flush()
    first, second = read_partition(broker.address, topic, 2, 2)
    assert first.headers() == headers
    assert second.headers() is None


def test_keys_spread_over_partitions(broker: BrokerProcess, topic: str) -> None:
    deliveries = Deliveries(broker.address, {"partitioner": "murmur2_random", "linger.ms": 20})
    for n in range(2000):
        deliveries.send(topic, b"%d" % n, key=b"key-%d" % (n % 50))
    delivered = deliveries.flush()
    by_partition: dict[int, list[bytes | None]] = {}
    for message in sorted(delivered, key=lambda m: (m.partition(), m.offset())):
        partition = message.partition()
        assert partition is not None
        by_partition.setdefault(partition, []).append(message.value())
    assert sorted(by_partition) == [0, 1, 2, 3]
    for partition, values in by_partition.items():
        read = read_partition(broker.address, topic, partition, len(values))
        assert [message.value() for message in read] == values


def test_many_topics_in_one_request(broker: BrokerProcess, admin: AdminClient, name: str) -> None:
    topics = [create_topic(admin, f"{name}-{n}", 3) for n in range(4)]
    deliveries = Deliveries(broker.address, {"linger.ms": 50})
    for n in range(600):
        deliveries.send(topics[n % 4], b"%d" % n, partition=n % 3)
    assert len(deliveries.flush()) == 600
    for index, topic in enumerate(topics):
        for partition in range(3):
            expected = [b"%d" % n for n in range(600) if n % 4 == index and n % 3 == partition]
            read = read_partition(broker.address, topic, partition, len(expected))
            assert [message.value() for message in read] == expected


def test_big_batches(broker: BrokerProcess, topic: str) -> None:
    """Batches near the limit of 1 MiB, and requests of several megabytes."""
    values = some_values(seed=3, count=400, size_max=60_000)
    send_all(
        broker.address,
        topic,
        values,
        settings={"linger.ms": 100, "batch.size": 1_000_000, "message.max.bytes": 1_000_000},
    )
    assert [m.value() for m in read_partition(broker.address, topic, 0, 400)] == values


def test_record_that_is_too_large(broker: BrokerProcess, admin: AdminClient, name: str) -> None:
    topic = create_topic(admin, name, 1, {"max.message.bytes": "10000"})
    deliveries = Deliveries(broker.address, {"message.max.bytes": 100_000})
    deliveries.send(topic, b"x" * 20_000)
    assert deliveries.refusals() == [KafkaError.MSG_SIZE_TOO_LARGE]
    deliveries.send(topic, b"x" * 9_000)
    assert [message.offset() for message in deliveries.flush()] == [0]


def test_timestamps(broker: BrokerProcess, admin: AdminClient, name: str) -> None:
    by_client = create_topic(admin, name)
    by_broker = create_topic(
        admin, f"{name}-append", 1, {"message.timestamp.type": "LogAppendTime"}
    )
    deliveries = Deliveries(broker.address)
    for topic in (by_client, by_broker):
        deliveries.send(topic, b"v", timestamp=1_600_000_000_123)
    deliveries.flush()
    [created] = read_partition(broker.address, by_client, 0, 1)
    [appended] = read_partition(broker.address, by_broker, 0, 1)
    assert created.timestamp() == (TIMESTAMP_CREATE_TIME, 1_600_000_000_123)
    kind, at_ms = appended.timestamp()
    assert kind == TIMESTAMP_LOG_APPEND_TIME
    assert at_ms > 1_600_000_000_123
    reported = {message.topic(): message.timestamp() for message in deliveries.delivered}
    assert reported[by_broker] == (kind, at_ms)


def test_timestamp_outside_the_limits(broker: BrokerProcess, admin: AdminClient, name: str) -> None:
    topic = create_topic(admin, name, 1, {"message.timestamp.after.max.ms": "1000"})
    deliveries = Deliveries(broker.address)
    deliveries.send(topic, b"far", timestamp=4_000_000_000_000)
    assert deliveries.refusals() == [KafkaError.INVALID_TIMESTAMP]


def test_recompression_by_the_topic(broker: BrokerProcess, admin: AdminClient, name: str) -> None:
    values = some_values(seed=4, count=500, size_max=300)
    for codec in ("gzip", "snappy", "lz4", "zstd", "uncompressed"):
        topic = create_topic(admin, f"{name}-{codec}", 1, {"compression.type": codec})
        for sent in ("none", "lz4"):
            send_all(
                broker.address, topic, values, settings={"compression.type": sent, "linger.ms": 5}
            )
        read = read_partition(broker.address, topic, 0, 1000)
        assert [message.value() for message in read] == values * 2


def test_compacted_topic_wants_keys(broker: BrokerProcess, admin: AdminClient, name: str) -> None:
    topic = create_topic(admin, name, 1, {"cleanup.policy": "compact"})
    deliveries = Deliveries(broker.address)
    deliveries.send(topic, b"no key")
    assert deliveries.refusals() == [KafkaError.INVALID_RECORD]
    deliveries.send(topic, b"value", key=b"key")
    assert len(deliveries.flush()) == 1


def test_several_producers_share_a_partition(broker: BrokerProcess, topic: str) -> None:
    producers = [
        Deliveries(broker.address, {"enable.idempotence": n % 2 == 0, "linger.ms": 1})
        for n in range(4)
    ]
    for n in range(500):
        for number, deliveries in enumerate(producers):
            deliveries.send(topic, b"%d:%d" % (number, n), partition=0)
    offsets: list[int] = []
    for deliveries in producers:
        sent = [message.offset() or 0 for message in deliveries.flush()]
        assert sent == sorted(sent)
        offsets += sent
    assert sorted(offsets) == list(range(2000))
    values = values_of(read_partition(broker.address, topic, 0, 2000))
    for number in range(4):
        own = [value for value in values if value.startswith(b"%d:" % number)]
        assert own == [b"%d:%d" % (number, n) for n in range(500)]


def test_transactions_on_a_single_broker(broker: BrokerProcess, topic: str, name: str) -> None:
    producer = Producer({"bootstrap.servers": broker.address, "transactional.id": name})
    producer.init_transactions(WAIT_SECONDS)
    for value, end in (
        (b"aborted", producer.abort_transaction),
        (b"committed", producer.commit_transaction),
    ):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        assert producer.flush(WAIT_SECONDS) == 0
        end(WAIT_SECONDS)
    with consuming(broker.address, "not-used") as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        message = consumer.poll(WAIT_SECONDS)
        assert message is not None
        assert message.value() == b"committed"


def test_a_reader_at_the_tail_gets_records_as_they_come(broker: BrokerProcess, topic: str) -> None:
    with consuming(broker.address, "not-used") as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        deliveries = Deliveries(broker.address)
        for n in range(50):
            deliveries.send(topic, b"%d" % n, partition=0)
            deliveries.flush()
            [message] = take(consumer, 1)
            assert (message.value(), message.offset()) == (b"%d" % n, n)
