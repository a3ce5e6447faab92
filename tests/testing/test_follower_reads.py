"""Consumers read from the replica in their own rack, where the cluster is told to let them
(KIP-392)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from strandline.testing import Cluster
from tests.delivered import value_of

SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
RACKS = ("east", "middle", "west")
PATIENCE_S = 120.0
LEADER, FOLLOWER = 1, 3
FOLLOWERS_RACK = "west"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """The topic `t` is led in the east and followed in the west."""
    settings = {"replica.selector.class": SELECTOR, "auto.leader.rebalance.enable": False}
    # A paused broker stays a member: no test here lets a paused broker's session end.
    with Cluster(3, racks=RACKS, settings=settings, session_timeout_ms=10_000) as running:
        running.create_topic("t", assignment={0: [LEADER, 2, FOLLOWER]})
        yield running


def produce(cluster: Cluster, *values: str) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    for value in values:
        producer.produce("t", value.encode(), partition=0)
    assert producer.flush(PATIENCE_S) == 0


class Reader:
    """A consumer of the topic that knows whom it reads from."""

    def __init__(self, cluster: Cluster, rack: str | None) -> None:
        self.source: int | None = None
        self._consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": "unused",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "statistics.interval.ms": 20,
                "stats_cb": self._note,
                "fetch.wait.max.ms": 100,
                "reconnect.backoff.max.ms": 200,
                "topic.metadata.refresh.interval.ms": 500,
                **({} if rack is None else {"client.rack": rack}),
            }
        )
        self._consumer.assign([TopicPartition("t", 0, 0)])
        self._deadline_polls = int(PATIENCE_S / 0.1)

    def _note(self, text: str) -> None:
        statistics: dict[str, Any] = json.loads(text)
        topic = statistics["topics"].get("t")
        if topic is not None:
            self.source = topic["partitions"]["0"]["broker"]

    def read(self, count: int) -> list[str]:
        """The next records."""
        found: list[str] = []
        self._poll(lambda: len(found) >= count, found, f"{count} records")
        return found

    def wait_for_source(self, broker_id: int) -> None:
        """Wait until it reads from that broker, and has nothing left to read."""
        found: list[str] = []
        self._poll(lambda: self.source == broker_id, found, f"source {broker_id}")
        assert not found

    def back_to_start(self) -> None:
        self._consumer.seek(TopicPartition("t", 0, 0))

    def close(self) -> None:
        self._consumer.close()

    def _poll(self, is_over: Callable[[], bool], found: list[str], what: str) -> None:
        for _ in range(self._deadline_polls):
            if is_over():
                return
            message = self._consumer.poll(0.1)
            if message is None:
                continue
            error = message.error()
            if error is None:
                found.append(value_of(message).decode())
            else:
                # Connections end when brokers do; everything else is wrong.
                assert error.code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN), error
        raise AssertionError(f"no {what}; read {found} from broker {self.source}")


@pytest.fixture
def readers() -> Iterator[list[Reader]]:
    opened: list[Reader] = []
    yield opened
    for each in opened:
        each.close()


def test_a_consumer_reads_in_its_own_rack_and_elsewhere_when_that_is_lost(
    cluster: Cluster, readers: list[Reader]
) -> None:
    produce(cluster, "m0", "m1")
    reader = Reader(cluster, FOLLOWERS_RACK)
    readers.append(reader)
    assert reader.read(2) == ["m0", "m1"]
    reader.wait_for_source(FOLLOWER)
    produce(cluster, "m2")
    assert reader.read(1) == ["m2"]
    # And it really is the follower that hands out records: the leader can do nothing now.
    cluster.pause(LEADER)
    reader.back_to_start()
    assert reader.read(3) == ["m0", "m1", "m2"]
    cluster.resume(LEADER)
    cluster.kill(FOLLOWER)
    produce(cluster, "m3")
    assert reader.read(1) == ["m3"]
    reader.wait_for_source(LEADER)
    cluster.start(FOLLOWER)
    cluster.wait_until_in_sync("t")
    reader.wait_for_source(FOLLOWER)
    produce(cluster, "m4")
    assert reader.read(1) == ["m4"]


@pytest.mark.parametrize("rack", [None, "elsewhere", RACKS[LEADER - 1]])
def test_others_read_from_the_leader(
    cluster: Cluster, readers: list[Reader], rack: str | None
) -> None:
    produce(cluster, "m0")
    reader = Reader(cluster, rack)
    readers.append(reader)
    assert reader.read(1) == ["m0"]
    produce(cluster, "m1")
    assert reader.read(1) == ["m1"]
    reader.wait_for_source(LEADER)
