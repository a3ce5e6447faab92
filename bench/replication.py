"""What is measured on clusters of three brokers: the price of acks=all, the start, a failover.

All raw workloads send to one broker that leads every partition, as `loadgen` wants it; replicas are
on the other brokers. acks=1 on the same replicated topic is the baseline: the followers fetch there
too, but the producer does not wait for them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from confluent_kafka import KafkaError, Message, Producer

from bench.brokers import Broker
from bench.clusters import NODES, ProcessCluster
from bench.goals import Goal
from bench.workloads import (
    ClientError,
    ClientProduce,
    Metrics,
    RawProduce,
    Setup,
    Startup,
    Workload,
)

ALL = -1
KIB = 1024
SUBJECTS = ("strandline-cluster", "strandline-processes")
RATE = 2000
SEND_INTERVAL_S = 0.002
STEADY_S = 1.0
RECOVERY_TIMEOUT_S = 60.0

GOALS: Sequence[Goal] = (
    Goal(
        "acks=all, two replicas, one-record requests",
        "all-r2-16x5",
        "requests_per_second",
        against="kafka-cluster",
        at_least=2,
        kinds=SUBJECTS,
    ),
    Goal(
        "p50 of acks=all, two replicas",
        "latency-all-r2",
        "p50_us",
        baseline="latency-one-r2",
        at_most=2.5,
        kinds=SUBJECTS,
    ),
    Goal(
        "three ready brokers [s]",
        "cluster-startup",
        "startup_seconds",
        at_most=1,
        kinds=("strandline-cluster",),
    ),
    Goal(
        "memory of three brokers [MiB]",
        "cluster-startup",
        "idle_rss_mib",
        at_most=150,
        kinds=("strandline-cluster",),
    ),
)


def workloads() -> Iterator[Workload]:
    """In the order in which they are run."""
    yield Startup(
        name="cluster-startup",
        title="Three brokers on empty directories until each knows the others; idle memory",
        nodes=NODES,
    )
    for acks, word in ((1, "one"), (ALL, "all")):
        for replicas in (2, 3):
            yield RawProduce(
                name=f"{word}-r{replicas}-16x5",
                title=f"One 100 B record per request, acks={word}, {replicas} replicas, 16 "
                "connections x 5 in flight",
                connections=16,
                inflight=5,
                record_bytes=100,
                records_per_batch=1,
                acks=acks,
                replicas=replicas,
                nodes=NODES,
            )
    yield RawProduce(
        name="all-r3-64kb",
        title="Batches of 64 KB (1 KB records), acks=all, 3 replicas, 4 connections x 4 in flight",
        connections=4,
        inflight=4,
        record_bytes=KIB,
        batch_bytes=64 * KIB,
        acks=ALL,
        replicas=3,
        nodes=NODES,
    )
    for acks, word in ((1, "one"), (ALL, "all")):
        for replicas in (2, 3):
            yield RawProduce(
                name=f"latency-{word}-r{replicas}",
                title=f"10 x 100 B per request at a fixed {RATE:,} requests/s over 8 connections, "
                f"acks={word}, {replicas} replicas",
                connections=8,
                inflight=256,
                record_bytes=100,
                records_per_batch=10,
                rate=RATE,
                acks=acks,
                replicas=replicas,
                nodes=NODES,
            )
    yield ClientProduce(
        name="produce-1kb-all-r3",
        title="librdkafka produce: 1 KB records, 16 KB batches, acks=all, 3 replicas",
        record_bytes=KIB,
        batch_bytes=16 * KIB,
        codec="none",
        acks=ALL,
        replicas=3,
        nodes=NODES,
    )
    yield Failover(
        name="failover",
        title="kill -9 of the leader: the longest time without an acknowledged record (acks=all, "
        "3 replicas, idempotent); sessions last 2 s on both sides",
        nodes=NODES,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Failover(Workload):
    """A fresh cluster of processes, since it does not get whole again for the next workload."""

    def suits(self, broker: Broker) -> bool:
        """One process of several must be killed, and no other broker with it."""
        return isinstance(broker, ProcessCluster)

    def run(self, broker: Broker, topic: str, setup: Setup) -> Metrics:
        """From the last acknowledgement before the kill to the first after it."""
        fresh = setup.fresh_broker(broker.label)
        try:
            if not isinstance(fresh, ProcessCluster):
                raise ClientError(f"{fresh.label} is no cluster of processes")
            fresh.start()
            fresh.create_topic(topic, 1, replicas=NODES)
            return {"failover_seconds": longest_gap(fresh, topic)}
        finally:
            fresh.stop()


def longest_gap(cluster: ProcessCluster, topic: str) -> float:
    """Send all the time, kill the leader, go on until acknowledgements have come for a while."""
    steady = Steady(cluster.address, topic)
    try:
        steady.wait_for_acks(since=time.monotonic(), seconds=STEADY_S)
        killed = time.monotonic()
        cluster.kill_first()
        steady.wait_for_acks(since=killed, seconds=STEADY_S)
    finally:
        steady.stop()
    return steady.longest_gap(around=killed)


class Steady:
    """An idempotent producer in a thread; remembers when acknowledgements came."""

    def __init__(self, address: str, topic: str) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": address,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 0,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 20,
                "topic.metadata.refresh.interval.ms": 500,
                "log_level": 0,
            }
        )
        self._topic = topic
        self._acks: list[float] = []
        self._failed: list[KafkaError] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def wait_for_acks(self, *, since: float, seconds: float) -> None:
        """Until a record that was acknowledged after `since` is so long ago. Raises ClientError."""
        deadline = time.monotonic() + RECOVERY_TIMEOUT_S
        while not any(since < ack < time.monotonic() - seconds for ack in self._acks[-5000:]):
            if self._failed:
                raise ClientError(f"a record was not delivered: {self._failed[0]}")
            if time.monotonic() > deadline:
                raise ClientError(f"nothing was acknowledged in {RECOVERY_TIMEOUT_S} s")
            self._stopping.wait(0.05)

    def longest_gap(self, *, around: float) -> float:
        """Between two acknowledgements, the later of which came after `around`."""
        acks = self._acks
        return max(later - earlier for earlier, later in pairwise(acks) if later > around)

    def stop(self) -> None:
        """No more records; what is under way may still be acknowledged."""
        self._stopping.set()
        self._thread.join(RECOVERY_TIMEOUT_S)

    def _run(self) -> None:
        while not self._stopping.wait(SEND_INTERVAL_S):
            self._producer.produce(self._topic, b"x" * 100, on_delivery=self._delivered)
            self._producer.poll(0)
        self._producer.flush(RECOVERY_TIMEOUT_S)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:  # noqa: ARG002
        if error is None:
            self._acks.append(time.monotonic())
        else:
            self._failed.append(error)
