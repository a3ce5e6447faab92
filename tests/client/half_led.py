"""A topic of two partitions, one of which no broker gives for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from strandline.client.cluster import ClusterClient
from strandline.client.producer import Producer
from strandline.testing import Cluster
from strandline.types import TopicPartition
from tests.client.conftest import FAST

HEALTHY, ORPHAN = TopicPartition("t", 0), TopicPartition("t", 1)
_OWNER = 2
"""Who has the second partition, and nothing else that a client needs."""
VALUES = {HEALTHY: [b"0", b"1", b"2"], ORPHAN: [b"3"]}


@contextmanager
def half_led(*, is_noticed: bool) -> Iterator[Cluster]:
    """The partition's only broker has died, and the cluster has noticed it, or does not yet."""
    session_timeout_ms = 1_000 if is_noticed else 6_000
    with Cluster(brokers=3, session_timeout_ms=session_timeout_ms) as brokers:
        brokers.create_topic("t", assignment={0: (1,), 1: (_OWNER,)})
        for at in VALUES:
            brokers.wait_for_leader("t", at.partition)
        with ClusterClient(brokers.bootstrap_servers, FAST) as cluster:
            producer = Producer(cluster)
            for at, values in VALUES.items():
                for value in values:
                    producer.send("t", value, partition=at.partition)
            producer.flush().raise_failure()
        brokers.kill(_OWNER)
        if is_noticed:
            brokers.wait_until(
                lambda status: not status.brokers[_OWNER - 1].is_registered, "it is noticed"
            )
        yield brokers


def comes_back(brokers: Cluster) -> None:
    """The broker starts again."""
    brokers.start(_OWNER)
