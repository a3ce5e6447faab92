"""librdkafka's consumer without a group: assignment, seeking, and lookups of offsets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from tests.clients.librdkafka import (
    Deliveries,
    assigned,
    consuming,
    create_topic,
    done,
    error_of,
    send_all,
    take,
    values_of,
)
from tests.clients.support import WAIT_SECONDS, BrokerProcess

START_MS = 1_700_000_000_000


@pytest.fixture
def filled(broker: BrokerProcess, topic: str) -> str:
    """A topic whose four partitions have 100 records each, in batches of ten, 10 ms apart."""
    deliveries = Deliveries(broker.address, {"linger.ms": 1000, "batch.num.messages": 10})
    for n in range(100):
        for partition in range(4):
            deliveries.send(
                topic, b"%d:%d" % (partition, n), partition=partition, timestamp=START_MS + 10 * n
            )
    deliveries.flush()
    return topic


@pytest.fixture
def consumer(broker: BrokerProcess, name: str) -> Iterator[Consumer]:
    with consuming(broker.address, name) as made:
        yield made


def take_values(consumer: Consumer, count: int) -> list[bytes]:
    return values_of(take(consumer, count))


def test_assign_from_offsets(consumer: Consumer, filled: str) -> None:
    consumer.assign([TopicPartition(filled, partition, 90 + partition) for partition in range(4)])
    read = take(consumer, 10 + 9 + 8 + 7)
    for partition in range(4):
        offsets = [m.offset() for m in read if m.partition() == partition]
        assert offsets == list(range(90 + partition, 100))


def test_offsets_inside_batches(consumer: Consumer, filled: str) -> None:
    """A fetch gets whole batches; the client skips what it did not ask for."""
    for offset in range(0, 100, 7):
        consumer.assign([TopicPartition(filled, 0, offset)])
        assert take_values(consumer, 1) == [b"0:%d" % offset]


def test_seek(consumer: Consumer, filled: str) -> None:
    consumer.assign([TopicPartition(filled, 0, 0)])
    assert take_values(consumer, 5) == [b"0:%d" % n for n in range(5)]
    consumer.seek(TopicPartition(filled, 0, 77))
    assert take_values(consumer, 3) == [b"0:77", b"0:78", b"0:79"]
    consumer.seek(TopicPartition(filled, 0, OFFSET_BEGINNING))
    assert take_values(consumer, 1) == [b"0:0"]
    consumer.seek(TopicPartition(filled, 0, 99))
    assert take_values(consumer, 1) == [b"0:99"]


def test_end_and_pause(consumer: Consumer, filled: str, broker: BrokerProcess) -> None:
    first, second = TopicPartition(filled, 0, OFFSET_END), TopicPartition(filled, 1, 0)
    consumer.assign([first, second])
    consumer.pause([first])
    assert {m.partition() for m in take(consumer, 100)} == {1}
    send_all(broker.address, filled, [b"later"], partition=1)
    assert take_values(consumer, 1) == [b"later"]


def test_incremental_assignment(consumer: Consumer, filled: str) -> None:
    consumer.incremental_assign([TopicPartition(filled, 0, 0)])
    assert {m.partition() for m in take(consumer, 100)} == {0}
    consumer.incremental_assign([TopicPartition(filled, 1, 50), TopicPartition(filled, 2, 99)])
    assert assigned(consumer) == {(filled, 0), (filled, 1), (filled, 2)}
    read = take(consumer, 51)
    assert {m.partition() for m in read} == {1, 2}
    consumer.incremental_unassign([TopicPartition(filled, 0), TopicPartition(filled, 1)])
    assert assigned(consumer) == {(filled, 2)}


@pytest.mark.parametrize(
    ("settings", "count"),
    [
        ({"fetch.message.max.bytes": 1}, 100),
        ({"fetch.message.max.bytes": 400, "fetch.max.bytes": 1_000_000}, 400),
        ({"fetch.min.bytes": 100_000, "fetch.wait.max.ms": 10}, 400),
        ({"fetch.min.bytes": 1, "fetch.wait.max.ms": 0}, 400),
        ({"isolation.level": "read_uncommitted"}, 400),
    ],
    ids=["tiny", "small", "min-bytes", "no-wait", "uncommitted"],
)
def test_fetch_limits(
    broker: BrokerProcess, filled: str, name: str, settings: dict[str, object], count: int
) -> None:
    with consuming(broker.address, name, settings) as consumer:
        consumer.assign([TopicPartition(filled, partition, 0) for partition in range(4)])
        read = take(consumer, count)
        for partition in range(4):
            offsets = [m.offset() for m in read if m.partition() == partition]
            assert offsets == list(range(len(offsets)))


def test_watermarks(consumer: Consumer, filled: str, admin: AdminClient) -> None:
    part = TopicPartition(filled, 2)
    assert consumer.get_watermark_offsets(part, WAIT_SECONDS) == (0, 100)
    done(admin.delete_records([TopicPartition(filled, 2, 30)])[part])
    assert consumer.get_watermark_offsets(part, WAIT_SECONDS) == (30, 100)
    with pytest.raises(KafkaException) as caught:
        consumer.get_watermark_offsets(TopicPartition(filled, 99), WAIT_SECONDS)
    assert caught.value.args[0].code() in (
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    )


def test_offsets_for_times(consumer: Consumer, filled: str) -> None:
    wanted = {
        START_MS - 1: 0,
        START_MS: 0,
        START_MS + 1: 1,
        START_MS + 500: 50,
        START_MS + 995: OFFSET_END,
        START_MS + 555: 56,
        START_MS + 990: 99,
        0: 0,
    }
    for timestamp, offset in wanted.items():
        [found] = consumer.offsets_for_times([TopicPartition(filled, 0, timestamp)], WAIT_SECONDS)
        assert found.error is None
        assert found.offset == offset, timestamp


def test_offset_out_of_range(broker: BrokerProcess, filled: str, name: str) -> None:
    with consuming(broker.address, name, {"auto.offset.reset": "latest"}) as consumer:
        consumer.assign([TopicPartition(filled, 0, 5000)])
        # The reset to the end happens before new records count: write until one is seen.
        seen = None
        deliveries = Deliveries(broker.address)
        for _ in range(200):
            deliveries.send(filled, b"after", partition=0)
            deliveries.flush()
            seen = consumer.poll(0.1)
            if seen is not None:
                break
        assert seen is not None
        assert seen.value() == b"after"
    with consuming(broker.address, name, {"auto.offset.reset": "error"}) as consumer:
        consumer.assign([TopicPartition(filled, 1, 5000)])
        message = consumer.poll(WAIT_SECONDS)
        assert error_of(message).code() == KafkaError._AUTO_OFFSET_RESET


def test_partition_end_is_told(broker: BrokerProcess, filled: str, name: str) -> None:
    with consuming(broker.address, name, {"enable.partition.eof": True}) as consumer:
        consumer.assign([TopicPartition(filled, 3, 95)])
        for offset in range(95, 100):
            message = consumer.poll(WAIT_SECONDS)
            assert message is not None
            assert message.offset() == offset
        end = consumer.poll(WAIT_SECONDS)
        assert error_of(end).code() == KafkaError._PARTITION_EOF
        assert end is not None
        assert end.offset() == 100


def test_records_deleted_under_a_reader(
    broker: BrokerProcess, admin: AdminClient, filled: str, name: str
) -> None:
    done(admin.delete_records([TopicPartition(filled, 0, 42)])[TopicPartition(filled, 0)])
    with consuming(broker.address, name) as consumer:
        consumer.assign([TopicPartition(filled, 0, 10)])
        read = take(consumer, 58)
        assert [message.offset() for message in read] == list(range(42, 100))


def test_position_and_metadata(consumer: Consumer, filled: str, broker: BrokerProcess) -> None:
    consumer.assign([TopicPartition(filled, 0, 0)])
    take(consumer, 12)
    [position] = consumer.position([TopicPartition(filled, 0)])
    assert position.offset == 12
    [untouched] = consumer.position([TopicPartition(filled, 1)])
    assert untouched.offset == OFFSET_INVALID
    metadata = consumer.list_topics(filled, WAIT_SECONDS)
    [node] = metadata.brokers.values()
    assert f"{node.host}:{node.port}" == broker.address
    partitions = metadata.topics[filled].partitions
    assert sorted(partitions) == [0, 1, 2, 3]
    assert all(part.replicas == part.isrs == [node.id] for part in partitions.values())


def test_segments_roll_under_a_reader(
    broker: BrokerProcess, admin: AdminClient, consumer: Consumer, name: str
) -> None:
    """Many small segments: reads cross from one file into the next."""
    topic = create_topic(admin, f"{name}-rolling", 1, {"segment.bytes": "1048576"})
    values = [b"%08d" % n + bytes(4000) for n in range(2000)]
    send_all(broker.address, topic, values, settings={"batch.size": 50_000, "linger.ms": 5})
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert take_values(consumer, len(values)) == values
