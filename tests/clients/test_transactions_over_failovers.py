"""Transactions of librdkafka and kafka-python whose brokers change in the middle.

A copy from one topic to another, in transactions with the offsets of what was read. In the middle
of each transaction another broker begins to lead what it needs: the coordinator of the id, the
partition that is written, or the coordinator of the group. Afterwards everything is there once.

Both clients can wait for ever when a broker is killed, with every Kafka: kafka-python 3.0.12
forgets a request when the connection to its coordinator is refused, and librdkafka 2.16 a broker
that went from the metadata and comes back as the group's coordinator. So brokers are killed only
under librdkafka's transactions without offsets. Java's clients stand it: `tests.java.eos`.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from strandline.client.admin_replicas import Election, ReplicaAdmin
from strandline.client.cluster import ClusterClient
from strandline.cluster.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from strandline.protocol.coordinator_log import partition_for
from strandline.testing import Cluster
from strandline.types import BrokerId
from strandline.types import TopicPartition as Partition

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # its reading of its own resources
    from kafka import KafkaProducer
    from kafka.errors import KafkaError
    from kafka.structs import OffsetAndMetadata
    from kafka.structs import TopicPartition as PythonPartition

# kafka-python leaves its wake-up sockets to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning"),
]
WAIT_S = 60
RECORDS = 12
PER_TRANSACTION = 4
VALUES = [f"{number}".encode() for number in range(RECORDS)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    settings = {
        "transaction.state.log.num.partitions": "3",
        "offsets.topic.num.partitions": "3",
        "min.insync.replicas": "2",
    }
    with Cluster(brokers=3, settings=settings) as running:
        yield running


class Librdkafka:
    """librdkafka. An error that is retriable is the application's to repeat."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self._name = name
        self._source = TopicPartition(f"{name}-from", 0)
        self._group = Consumer({"bootstrap.servers": bootstrap, "group.id": name})
        self._producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
        self._retry(self._producer.init_transactions)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def write(self, values: Sequence[bytes], next_offset: int | None = None) -> None:
        for value in values:
            self._producer.produce(f"{self._name}-to", value, partition=0)
        if next_offset is None:
            return
        offset = TopicPartition(self._source.topic, 0, next_offset)
        group = self._group.consumer_group_metadata()
        self._retry(self._producer.send_offsets_to_transaction, [offset], group)

    def commit(self) -> None:
        self._retry(self._producer.commit_transaction)

    def close(self) -> None:
        self._group.close()

    def _retry(self, attempt: Any, *arguments: Any) -> None:
        while True:
            try:
                return attempt(*arguments, WAIT_S)  # type: ignore[no-any-return]
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise


class KafkaPython:
    """kafka-python. `next_offset`: where the group is to go on."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self._name = name
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap.split(","), transactional_id=name, retry_backoff_ms=50
        )
        self._producer.init_transactions()

    def begin(self) -> None:
        self._producer.begin_transaction()

    def write(self, values: Sequence[bytes], next_offset: int | None = None) -> None:
        for value in values:
            self._producer.send(f"{self._name}-to", value, partition=0)
        if next_offset is None:
            return
        offset = OffsetAndMetadata(next_offset, "", -1)
        self._producer.send_offsets_to_transaction(
            {PythonPartition(f"{self._name}-from", 0): offset}, self._name
        )

    def commit(self) -> None:
        self._producer.commit_transaction()

    def close(self) -> None:
        with contextlib.suppress(KafkaError):
            self._producer.close(timeout=WAIT_S)


def needed(role: str, name: str) -> Partition:
    """What a transaction of that name needs."""
    return {
        "coordinator": Partition(TRANSACTION_STATE, partition_for(name, 3)),
        "leader": Partition(f"{name}-to", 0),
        "group": Partition(CONSUMER_OFFSETS, partition_for(name, 3)),
    }[role]


def leader_of(cluster: Cluster, partition: Partition) -> int:
    leader = cluster.leader_of(*partition)
    assert leader is not None
    return leader


def give_to_another(cluster: Cluster, role: str, name: str) -> None:
    """Have another broker lead what plays that role."""
    partition = needed(role, name)
    former = leader_of(cluster, partition)
    others = [BrokerId(each) for each in (1, 2, 3) if each != former]
    with ClusterClient(cluster.bootstrap_servers) as client:
        admin = ReplicaAdmin(client)
        assert admin.move({partition: [*others, BrokerId(former)]}) == {partition: None}
        # The move may be over first, and the leader that is no replica any more has gone with it.
        (refused,) = admin.elect([partition], Election.PREFERRED).values()
        assert refused is None or "ELECTION_NOT_NEEDED" in str(refused)
    assert cluster.wait_for_leader(*partition, other_than=former) == others[0]


def committed(cluster: Cluster, topic: str, count: int) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": f"judge-{topic}",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    while True:
        message = consumer.poll(WAIT_S)
        assert message is not None, f"{len(values)} of {count} came"
        error = message.error()
        if error is None:
            value = message.value()
            assert isinstance(value, bytes)
            values.append(value)
        elif error.name() == "_PARTITION_EOF" and len(values) >= count:
            break
    consumer.close()
    return values


@pytest.mark.parametrize("client", [Librdkafka, KafkaPython])
@pytest.mark.parametrize("role", ["coordinator", "leader", "group"])
def test_a_copy_is_there_once_whatever_gets_another_leader(
    cluster: Cluster, name: str, client: type[Librdkafka | KafkaPython], role: str
) -> None:
    cluster.create_topic(f"{name}-from", partitions=1)
    cluster.create_topic(f"{name}-to", partitions=1)
    copier = client(cluster.bootstrap_servers, name)
    for first in range(0, RECORDS, PER_TRANSACTION):
        copier.begin()
        copier.write(VALUES[first : first + PER_TRANSACTION], first + PER_TRANSACTION)
        give_to_another(cluster, role, name)
        copier.commit()
    copier.close()
    assert committed(cluster, f"{name}-to", RECORDS) == VALUES
    reader = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": name})
    [found] = reader.committed([TopicPartition(f"{name}-from", 0)], WAIT_S)
    reader.close()
    assert found.offset == RECORDS


@pytest.mark.parametrize("role", ["coordinator", "leader"])
def test_records_are_there_once_whichever_broker_is_killed(
    cluster: Cluster, name: str, role: str
) -> None:
    cluster.create_topic(f"{name}-to", partitions=1)
    copier = Librdkafka(cluster.bootstrap_servers, name)
    for first in range(0, RECORDS, PER_TRANSACTION):
        copier.begin()
        copier.write(VALUES[first : first + PER_TRANSACTION])
        victim = leader_of(cluster, needed(role, name))
        cluster.kill(victim)
        copier.commit()
        cluster.start(victim)
        cluster.wait_until_in_sync()
    copier.close()
    assert committed(cluster, f"{name}-to", RECORDS) == VALUES
