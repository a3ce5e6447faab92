"""Our own clients beside librdkafka and kafka-python: what one writes the others read."""

from __future__ import annotations

import warnings
from typing import Any

import confluent_kafka
import pytest

import strandline
from tests.clients.librdkafka import create_topic
from tests.clients.support import WAIT_SECONDS, BrokerProcess

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer
    from kafka.structs import TopicPartition as TheirPartition

pytestmark = pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning")

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
HEADERS = [("h", b"1"), ("h", b"\xff"), ("none", None)]
Fields = tuple[int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]
"""Offset, timestamp, key, value, headers."""


def records(count: int) -> list[Fields]:
    """All that a record can have: repeated and null headers, nulls, old timestamps."""
    return [
        (
            number,
            1_500_000_000_000 + number,
            None if number % 3 == 0 else b"key %d" % number,
            None if number % 7 == 0 and number % 3 else b"value" * (number % 50),
            HEADERS if number % 5 == 0 else [],
        )
        for number in range(count)
    ]


def ours_of(broker: BrokerProcess, topic: str, count: int) -> list[Fields]:
    settings = {"bootstrap.servers": broker.address, "auto.offset.reset": "earliest"}
    found: list[Fields] = []
    with strandline.Consumer(settings) as consumer:
        consumer.assign([strandline.TopicPartition(topic, 0)])
        while len(found) < count:
            polled = consumer.poll(int(WAIT_SECONDS * 1000))
            assert polled
            found += [
                (each.offset, each.timestamp_ms, each.key, each.value, list(each.headers))
                for each in polled
            ]
    return found


@pytest.mark.parametrize("codec", CODECS)
def test_others_read_what_ours_writes(broker: BrokerProcess, topic: str, codec: str) -> None:
    settings = {"bootstrap.servers": broker.address, "compression.type": codec, "batch.size": 2000}
    sent = records(300)
    with strandline.Producer(settings) as producer:
        for _, timestamp, key, value, headers in sent:
            producer.send(
                topic, value, key=key, headers=headers, partition=0, timestamp_ms=timestamp
            )
    assert ours_of(broker, topic, 300) == sent
    assert by_librdkafka(broker, topic, 300) == sent
    assert by_kafka_python(broker, topic, 300) == sent


def by_librdkafka(broker: BrokerProcess, topic: str, count: int) -> list[Fields]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.address, "group.id": topic, "check.crcs": True}
    )
    found: list[Fields] = []
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        while len(found) < count:
            message = consumer.poll(WAIT_SECONDS)
            assert message is not None
            assert message.error() is None
            headers: Any = message.headers() or []
            found.append(
                (
                    message.offset() or 0,
                    message.timestamp()[1],
                    message.key(),
                    message.value(),
                    headers,
                )
            )
    finally:
        consumer.close()
    return found


def by_kafka_python(broker: BrokerProcess, topic: str, count: int) -> list[Fields]:
    consumer = KafkaConsumer(
        bootstrap_servers=broker.address,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=int(WAIT_SECONDS * 1000),
    )
    try:
        consumer.assign([TheirPartition(topic, 0)])
        found = [next(consumer) for _ in range(count)]
    finally:
        consumer.close()
    return [
        (each.offset, each.timestamp, each.key, each.value, list(each.headers)) for each in found
    ]


@pytest.mark.parametrize("codec", CODECS)
def test_ours_reads_what_librdkafka_writes(broker: BrokerProcess, topic: str, codec: str) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.address, "compression.type": codec}
    )
    sent = records(300)
    for _, timestamp, key, value, headers in sent:
        named: list[tuple[str, str | bytes | None]] = [*headers]
        producer.produce(topic, value, key, 0, timestamp=timestamp, headers=named)
    assert producer.flush(WAIT_SECONDS) == 0
    assert ours_of(broker, topic, 300) == sent


@pytest.mark.parametrize("codec", CODECS)
def test_ours_reads_what_kafka_python_writes(broker: BrokerProcess, topic: str, codec: str) -> None:
    # It writes no header without a value.
    sent = [(*rest, [each for each in headers if each[1]]) for *rest, headers in records(300)]
    with KafkaProducer(
        bootstrap_servers=broker.address, compression_type=None if codec == "none" else codec
    ) as producer:
        for _, timestamp, key, value, headers in sent:
            producer.send(topic, value, key, headers, 0, timestamp)
        producer.flush(WAIT_SECONDS)
    assert ours_of(broker, topic, 300) == sent


def test_keys_go_where_librdkafka_and_java_put_them(
    broker: BrokerProcess, admin: Any, name: str
) -> None:
    topic = create_topic(admin, name, 7)
    keys = [b"key %d" % number for number in range(100)]
    theirs: dict[bytes, int] = {}

    def told(error: object, message: confluent_kafka.Message) -> None:
        assert error is None
        theirs[message.key()] = message.partition() or 0  # type: ignore[index]

    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.address, "partitioner": "murmur2_random"}
    )
    for key in keys:
        producer.produce(topic, b"v", key, on_delivery=told)
    assert producer.flush(WAIT_SECONDS) == 0
    with strandline.Producer({"bootstrap.servers": broker.address}) as mine:
        ours = {key: mine.send(topic, b"v", key=key).topic_partition.partition for key in keys}
    assert ours == theirs
