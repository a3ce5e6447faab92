"""Brokers that do not agree on `min.insync.replicas`, as during a rolling change of their files."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tests.faults.run import TOPIC
from tests.faults.zookeeper_cluster import STEADY, ZooKeeperCluster

MIN_IN_SYNC: Final = "min.insync.replicas"
RECORDS: Final = 100
READ_S: Final = 60.0


class Row(NamedTuple):
    """The minimum of the leader, and of the two others, of which one is the controller."""

    leader: int
    others: int
    is_killed: bool
    acknowledged: int


@pytest.mark.parametrize(
    "row",
    [
        Row(leader=1, others=2, is_killed=True, acknowledged=0),
        Row(leader=1, others=2, is_killed=False, acknowledged=0),
        Row(leader=2, others=1, is_killed=True, acknowledged=0),
        Row(leader=1, others=1, is_killed=True, acknowledged=RECORDS),
        Row(leader=2, others=2, is_killed=True, acknowledged=0),
    ],
    ids=str,
)
def test_c1_brokers_with_different_minimums_lose_nothing_that_was_acknowledged(
    needs_zookeeper: None, tmp_path: Path, row: Row
) -> None:
    """The leader goes by one number, the controller calls replicas complete by another. The leader
    acknowledged alone, and the follower was elected as complete without these records."""
    settings = {
        **STEADY, MIN_IN_SYNC: str(row.others), "auto.leader.rebalance.enable": "false"
    }  # fmt: skip
    with ZooKeeperCluster(tmp_path, settings=settings) as cluster:
        leader, follower = cluster.others(cluster.controller())
        change_file(cluster, leader, row.leader)
        cluster.create_topic(TOPIC, replicas=[leader, follower])
        assert cluster.leader_of(TOPIC) == leader
        cluster.stop(follower)
        cluster.wait_until_out_of_sync(TOPIC, follower)
        acknowledged, refused = produce_all(cluster)
        if row.is_killed:
            cluster.kill(leader)
        else:
            cluster.stop(leader)
        cluster.start(follower)
        cluster.start(leader)
        cluster.wait_until_in_sync(TOPIC, count=2)
        assert acknowledged <= read_all(cluster)
        assert len(acknowledged) == row.acknowledged
        assert set(refused) <= {KafkaError.NOT_ENOUGH_REPLICAS}


def change_file(cluster: ZooKeeperCluster, broker: int, minimum: int) -> None:
    """The broker is restarted with another setting, as in a rolling change."""
    cluster.own_settings[broker][MIN_IN_SYNC] = str(minimum)
    cluster.stop(broker)
    cluster.start(broker)


def produce_all(cluster: ZooKeeperCluster) -> tuple[set[bytes], Counter[int]]:
    """Send records with acks=all, each once; what was acknowledged, and why the others were not."""
    acknowledged: set[bytes] = set()
    refused: Counter[int] = Counter()

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is None:
            acknowledged.add(message.value() or b"")
        else:
            refused[error.code()] += 1

    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "retries": 0})
    for number in range(RECORDS):
        producer.produce(TOPIC, b"%d" % number, partition=0, on_delivery=delivered)
        producer.flush()
    return acknowledged, refused


def read_all(cluster: ZooKeeperCluster) -> set[bytes]:
    """Everything that the partition has in the end."""
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "all", "enable.partition.eof": True}
    )
    values = set()
    try:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        while True:
            message = consumer.poll(READ_S)
            assert message is not None, "the partition cannot be read"
            error = message.error()
            if error is None:
                values.add(message.value() or b"")
            elif error.code() == KafkaError._PARTITION_EOF:
                return values
            else:
                assert error.retriable(), error
    finally:
        consumer.close()
