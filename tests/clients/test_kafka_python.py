"""kafka-python: producing, consuming, groups and administration in our own words.

Its own tests run in `test_kafka_python_own_suite`; these add what they leave out.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from tests.clients.support import WAIT_SECONDS, BrokerProcess, until

with warnings.catch_warnings():
    # The library reads its own files through a deprecated function while it is imported.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
    from kafka.admin import NewTopic, OffsetSpec
    from kafka.errors import (
        CommitFailedError,
        MessageSizeTooLargeError,
        RebalanceInProgressError,
        UnknownTopicOrPartitionError,
    )
    from kafka.structs import OffsetAndMetadata, TopicPartition

# And whenever it needs another message's schema for the first time.
pytestmark = pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning")

WAIT_MS = int(WAIT_SECONDS * 1000)


def consumer_of(broker: BrokerProcess, *topics: str, **settings: Any) -> KafkaConsumer:
    consumer = KafkaConsumer(
        *topics,
        **{
            "bootstrap_servers": broker.address,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "check_crcs": True,
            "heartbeat_interval_ms": 200,
            "consumer_timeout_ms": WAIT_MS,
            **settings,
        },
    )
    # A leader that does not know its topics yet assigns nothing, and kafka-python 3.0 does not
    # always notice when it learns of them.
    for topic in topics:
        consumer.partitions_for_topic(topic)
    return consumer


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", [1, "all"])
def test_records(broker: BrokerProcess, topic: str, codec: str | None, acks: int | str) -> None:
    with KafkaProducer(
        bootstrap_servers=broker.address,
        compression_type=codec,
        acks=acks,
        enable_idempotence=acks == "all",
        linger_ms=5,
    ) as producer:
        futures = [
            producer.send(
                topic, b"v" * (n % 700), key=b"%d" % n, partition=1, headers=[("n", b"%d" % n)]
            )
            for n in range(1000)
        ]
        assert [future.get(WAIT_SECONDS).offset for future in futures] == list(range(1000))
    with consumer_of(broker, group_id=None) as consumer:
        consumer.assign([TopicPartition(topic, 1)])
        for n in range(1000):
            record = next(consumer)
            assert (record.offset, record.key, record.value) == (n, b"%d" % n, b"v" * (n % 700))
            assert list(record.headers) == [("n", b"%d" % n)]


def test_not_acknowledged(broker: BrokerProcess, topic: str) -> None:
    with KafkaProducer(
        bootstrap_servers=broker.address, acks=0, enable_idempotence=False
    ) as producer:
        for n in range(100):
            producer.send(topic, b"%d" % n, partition=0)
        producer.flush(WAIT_SECONDS)
    with consumer_of(broker, group_id=None) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert [next(consumer).value for _ in range(100)] == [b"%d" % n for n in range(100)]


def test_null_values(broker: BrokerProcess, topic: str) -> None:
    with KafkaProducer(bootstrap_servers=broker.address) as producer:
        producer.send(topic, None, key=b"gone", partition=0).get(WAIT_SECONDS)
    with consumer_of(broker, group_id=None) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        record = next(consumer)
        assert (record.key, record.value) == (b"gone", None)


def test_refusals(broker: BrokerProcess, name: str) -> None:
    with KafkaAdminClient(bootstrap_servers=broker.address) as admin:
        small = {"max.message.bytes": "1000"}
        admin.create_topics([NewTopic(name, 1, 1, topic_configs=small)])
        # For its idempotent producer the library takes any refusal as the end of that producer.
        with KafkaProducer(bootstrap_servers=broker.address, enable_idempotence=False) as producer:
            with pytest.raises(MessageSizeTooLargeError):
                producer.send(name, b"x" * 5000).get(WAIT_SECONDS)
            assert producer.send(name, b"x").get(WAIT_SECONDS).offset == 0
        admin.delete_topics([name])
        with pytest.raises(UnknownTopicOrPartitionError):
            admin.delete_topics([name])


def test_group(broker: BrokerProcess, topic: str, name: str) -> None:
    """Two members share the partitions; what they commit is where the next one starts."""
    with KafkaProducer(bootstrap_servers=broker.address) as producer:
        for n in range(80):
            producer.send(topic, b"%d" % n, partition=n % 4)
        producer.flush(WAIT_SECONDS)
    first = consumer_of(broker, topic, group_id=name)
    second = consumer_of(broker, topic, group_id=name)
    seen: list[bytes] = []

    def poll(consumer: KafkaConsumer) -> None:
        for records in consumer.poll(timeout_ms=50).values():
            seen.extend(record.value for record in records)
            with suppress(CommitFailedError, RebalanceInProgressError):
                consumer.commit()  # refused in a rebalance; the next owner reads again

    def both_have_two() -> bool:
        beside = threading.Thread(target=poll, args=(second,))
        beside.start()
        poll(first)
        beside.join()
        return len(first.assignment()) == len(second.assignment()) == 2

    with first, second:
        until(both_have_two, "a balanced group")
        assert not first.assignment() & second.assignment()
        until(lambda: both_have_two() and len(set(seen)) == 80, "all records")
        parts = {TopicPartition(topic, n) for n in range(4)}
        all_read = dict.fromkeys(parts, 20)
        until(
            lambda: both_have_two() and {each: first.committed(each) for each in parts} == all_read,
            "all commits",
        )
    with consumer_of(broker, topic, group_id=name) as third:
        assert {part: third.committed(part) for part in parts} == all_read


def test_commit_with_metadata(broker: BrokerProcess, topic: str, name: str) -> None:
    part = TopicPartition(topic, 1)
    with consumer_of(broker, group_id=name) as consumer:
        consumer.assign([part])
        consumer.commit({part: OffsetAndMetadata(12, "note", 0)})
        assert consumer.committed(part, metadata=True) == OffsetAndMetadata(12, "note", 0)


def test_administration(broker: BrokerProcess, topic: str, name: str) -> None:
    part = TopicPartition(topic, 0)
    with (
        KafkaProducer(bootstrap_servers=broker.address) as producer,
        KafkaAdminClient(bootstrap_servers=broker.address) as admin,
    ):
        for n in range(10):
            producer.send(topic, b"v", partition=0, timestamp_ms=1_700_000_000_000 - n).get(
                WAIT_SECONDS
            )

        def offset(spec: OffsetSpec) -> int:
            found: int = admin.list_partition_offsets({part: spec})[part].offset
            return found

        assert [offset(s) for s in (OffsetSpec.EARLIEST, OffsetSpec.LATEST)] == [0, 10]
        assert offset(OffsetSpec.MAX_TIMESTAMP) == 0
        admin.delete_records({part: 4})
        assert offset(OffsetSpec.EARLIEST) == 4
        with consumer_of(broker, group_id=name) as consumer:
            consumer.assign([part])
            consumer.commit({part: OffsetAndMetadata(7, "", -1)})
        assert admin.list_group_offsets(name)[name][part].offset == 7
        assert admin.delete_groups([name]) == {name: "OK"}


def test_everything_at_once(broker: BrokerProcess, topic: str) -> None:
    """Several producers and readers in threads, each on its own connections."""

    def write(partition: int) -> None:
        with KafkaProducer(bootstrap_servers=broker.address, linger_ms=1) as producer:
            for n in range(300):
                producer.send(topic, b"%d" % n, partition=partition)
            producer.flush(WAIT_SECONDS)

    read: dict[int, list[bytes]] = {}

    def follow(partition: int) -> None:
        with consumer_of(broker, group_id=None) as consumer:
            consumer.assign([TopicPartition(topic, partition)])
            read[partition] = [next(consumer).value for _ in range(300)]

    def start(work: Callable[[int], None], partition: int) -> threading.Thread:
        thread = threading.Thread(target=work, args=(partition,))
        thread.start()
        return thread

    threads = [start(work, partition) for partition in range(4) for work in (follow, write)]
    for thread in threads:
        thread.join(WAIT_SECONDS)
    assert read == {partition: [b"%d" % n for n in range(300)] for partition in range(4)}
