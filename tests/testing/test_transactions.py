"""Transactions on three real brokers, with librdkafka (version 1 of the protocol)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from strandline.testing import Cluster
from tests.testing.load import PATIENCE_S

TOPIC = "transfers"
STATE = "__transaction_state"
LAST = b"end"
"""Written behind everything else, without a transaction."""


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """All transactional ids have the leader of one partition as their coordinator."""
    settings = {
        "transaction.state.log.num.partitions": 1,
        "transaction.state.log.min.isr": 1,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200,
        "offsets.topic.num.partitions": 1,
        "replica.lag.time.max.ms": 2000,
        "auto.leader.rebalance.enable": False,
    }
    with Cluster(brokers=3, settings=settings) as running:
        running.create_topic(TOPIC, 3, min_insync_replicas=2)
        yield running


def transactional(cluster: Cluster, name: str = "mover", **settings: Any) -> Producer:
    """A producer that may begin."""
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "transactional.id": name,
            "retry.backoff.ms": 50,
            "reconnect.backoff.max.ms": 500,
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
    )
    producer.init_transactions(PATIENCE_S)
    return producer


def write(producer: Producer, *values: bytes, topic: str = TOPIC) -> None:
    """Write to the partitions in turn, and wait until the brokers have it."""
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % 3)
    assert producer.flush(PATIENCE_S) == 0


def read(cluster: Cluster, isolation: str, topic: str = TOPIC) -> list[bytes]:
    """Every value up to an end that is written now to each partition. Once per topic."""
    plain = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    left = set(range(3))
    for number in left:
        plain.produce(topic, LAST, partition=number)
    assert plain.flush(PATIENCE_S) == 0
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "reader",
            "isolation.level": isolation,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(3)])
    found: list[bytes] = []
    while left:
        message = consumer.poll(PATIENCE_S)
        assert message is not None, f"{found} and then nothing"
        assert message.error() is None
        value = message.value()
        assert value is not None
        if value == LAST:
            left.discard(message.partition() or 0)
        else:
            found.append(value)
    consumer.close()
    return sorted(found)


def test_what_is_committed_is_read_and_what_is_aborted_is_not(cluster: Cluster) -> None:
    producer = transactional(cluster)
    for number in range(3):
        producer.begin_transaction()
        write(producer, *(b"yes %d %d" % (number, each) for each in range(4)))
        producer.commit_transaction(PATIENCE_S)
        producer.begin_transaction()
        write(producer, *(b"no %d %d" % (number, each) for each in range(4)))
        producer.abort_transaction(PATIENCE_S)

    committed = sorted(b"yes %d %d" % (number, each) for number in range(3) for each in range(4))
    assert read(cluster, "read_committed") == committed
    assert len(read(cluster, "read_uncommitted")) == 24


def test_an_open_transaction_holds_readers_of_committed_records(cluster: Cluster) -> None:
    producer = transactional(cluster)
    producer.begin_transaction()
    write(producer, b"open")
    plain = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    write(plain, b"plain")

    at = TopicPartition(TOPIC, 0)
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "held",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    first = consumer.poll(PATIENCE_S)
    assert first is not None
    error = first.error()
    assert error is not None
    assert error.code() == KafkaError._PARTITION_EOF
    partition = cluster.status().partition(TOPIC)
    assert {replica.high_watermark for replica in partition.replicas} == {2}
    producer.commit_transaction(PATIENCE_S)
    values: list[bytes | None] = []
    while len(values) < 2:
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        if message.error() is None:
            values.append(message.value())
    assert values == [b"open", b"plain"]
    assert consumer.get_watermark_offsets(at)[1] == 3
    consumer.close()


def test_a_transaction_past_its_timeout_is_aborted(cluster: Cluster) -> None:
    producer = transactional(cluster, transaction_timeout_ms=1000, message_timeout_ms=1000)
    producer.begin_transaction()
    write(producer, b"forgotten")

    assert read(cluster, "read_committed") == []
    with pytest.raises(KafkaException) as caught:
        producer.commit_transaction(PATIENCE_S)
    assert caught.value.args[0].fatal()


def test_the_older_of_two_producers_is_fenced(cluster: Cluster) -> None:
    zombie = transactional(cluster)
    zombie.begin_transaction()
    write(zombie, b"zombie")
    heir = transactional(cluster)
    heir.begin_transaction()
    write(heir, b"heir")
    heir.commit_transaction(PATIENCE_S)

    with pytest.raises(KafkaException) as caught:
        zombie.commit_transaction(PATIENCE_S)
    assert caught.value.args[0].code() == KafkaError._FENCED
    assert read(cluster, "read_committed") == [b"heir"]


def test_offsets_are_committed_with_the_transaction(cluster: Cluster) -> None:
    """Read, double, write: what is aborted halfway is read again, and nothing is there twice."""
    cluster.create_topic("doubled", 3, min_insync_replicas=2)
    plain = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    write(plain, *(b"%d" % number for number in range(30)))
    producer = transactional(cluster)
    done, rounds = 0, 0
    while done < 30:
        consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": "doubler",
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe([TOPIC])
        messages = consumer.consume(6, PATIENCE_S)
        assert len(messages) == 6
        producer.begin_transaction()
        for message in messages:
            value = b"%d" % (2 * int(message.value() or b""))
            producer.produce("doubled", value, partition=message.partition() or 0)
        ends: dict[int, int] = {}
        for message in messages:
            ends[message.partition() or 0] = (message.offset() or 0) + 1
        producer.send_offsets_to_transaction(
            [TopicPartition(TOPIC, number, end) for number, end in ends.items()],
            consumer.consumer_group_metadata(),
            PATIENCE_S,
        )
        rounds += 1
        if rounds % 2:
            producer.abort_transaction(PATIENCE_S)
        else:
            producer.commit_transaction(PATIENCE_S)
            done += len(messages)
        consumer.close()

    expected = sorted(b"%d" % (2 * number) for number in range(30))
    assert read(cluster, "read_committed", "doubled") == expected


@pytest.mark.parametrize("commit", [True, False])
def test_the_next_coordinator_ends_what_the_killed_one_had_decided(
    cluster: Cluster, commit: bool
) -> None:
    """The partition's leader is out of reach between the decision and its marker."""
    producer = transactional(cluster)
    cluster.wait_until_in_sync()
    coordinator = cluster.leader_of(STATE)
    leaders = {cluster.leader_of(TOPIC, number): number for number in range(3)}
    away, number = next(each for each in leaders.items() if each[0] != coordinator)
    assert away is not None
    assert coordinator is not None
    producer.begin_transaction()
    producer.produce(TOPIC, b"decided", partition=number)
    assert producer.flush(PATIENCE_S) == 0
    cluster.partition([away], [coordinator], metadata_with=[1, 2, 3])
    if commit:
        producer.commit_transaction(PATIENCE_S)
    else:
        producer.abort_transaction(PATIENCE_S)
    cluster.kill(coordinator)
    cluster.wait_for_leader(STATE, other_than=coordinator)
    cluster.heal()

    assert read(cluster, "read_committed") == ([b"decided"] if commit else [])
