"""Transactions: a producer that commits every 100 records, and copies from a topic to another one.

The client is librdkafka, called from Python in a process of its own, the same for every broker:

    python -m bench.transactions produce|copy BOOTSTRAP TOPIC --producers N --milliseconds MS

It prints one JSON object. Each producer has a thread, a transactional id and a partition of its
own. A commit's latency counts from the call of `commit_transaction`, which first sends what is
still buffered, to its return.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from bench.brokers import Broker
from bench.clusters import NODES
from bench.goals import Goal
from bench.workloads import Metrics, Setup, Workload, measure

RECORDS = 100
RECORD_BYTES = 1024
PATIENCE_S = 60.0
SOURCE_RECORDS = 20_000
"""What copies read; from the beginning again when it is used up."""

_CLUSTERS = ("strandline-cluster", "strandline-processes")


def workloads() -> Iterator[Workload]:
    """On one broker, then on three with every partition on all of them."""
    for nodes, suffix in ((1, ""), (NODES, "-r3")):
        for producers in (1, 4):
            yield Transactions(
                name=f"txn-{producers}{suffix}",
                title=f"librdkafka, transactions of {RECORDS} x 1 KB, {producers} producer(s), "
                f"{nodes} replica(s)",
                mode="produce",
                producers=producers,
                nodes=nodes,
            )
        yield Transactions(
            name=f"txn-copy{suffix}",
            title=f"librdkafka, read {RECORDS} x 1 KB, write them, offsets and commit in a "
            f"transaction, {nodes} replica(s)",
            mode="copy",
            producers=1,
            nodes=nodes,
        )


def _goals() -> Iterator[Goal]:
    for suffix, against, kinds in (
        ("", "kafka", ("strandline",)),
        ("-r3", "kafka-cluster", _CLUSTERS),
    ):
        where = "three brokers" if suffix else "one broker"
        for name in (f"txn-1{suffix}", f"txn-4{suffix}", f"txn-copy{suffix}"):
            rate = "transactions_per_second"
            yield Goal(f"{name}, {where}", name, rate, against, at_least=1.5, kinds=kinds)
        name = f"txn-1{suffix}"
        yield Goal(
            f"p50 of a commit, {where}", name, "commit_p50_us", against, at_most=0.8, kinds=kinds
        )


GOALS: Sequence[Goal] = tuple(_goals())


@dataclass(frozen=True, slots=True, kw_only=True)
class Transactions(Workload):
    """`mode` is `produce` or `copy`."""

    mode: str
    producers: int

    def run(self, broker: Broker, topic: str, setup: Setup) -> Metrics:
        """Rate and latency of the measured time; broker CPU over the whole run."""
        for name in (topic, f"{topic}-source"):
            broker.create_topic(name, self.producers, replicas=self.nodes)
        command = [sys.executable, "-m", "bench.transactions", self.mode, broker.address, topic]
        command += ["--producers", str(self.producers)]
        command += ["--milliseconds", str(setup.effort.milliseconds)]
        command += ["--warmup-ms", str(setup.effort.warmup_ms)]
        measured = measure(broker, command)
        for name in (topic, f"{topic}-source"):
            broker.delete_topic(name)
        client = measured.client
        return {
            "transactions_per_second": client["transactions_per_second"],
            "cpu_us_per_transaction": measured.broker_cpu_seconds
            * 1e6
            / client["total_transactions"],
            "commit_p50_us": client["commit_p50_us"],
            "commit_p99_us": client["commit_p99_us"],
        } | measured.noise()


# ---- the client


class Client:
    """One transactional producer in a thread of its own."""

    def __init__(self, bootstrap: str, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.latencies: list[tuple[float, float]] = []
        """When each commit ended, and how long it took, in seconds."""
        self.error: BaseException | None = None
        self.producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": f"{topic}-{partition}",
                "linger.ms": 5,
                "batch.size": 1_000_000,
            }
        )
        self.producer.init_transactions(PATIENCE_S)

    def values(self) -> list[bytes]:
        """What the next transaction writes."""
        return [b"x" * RECORD_BYTES] * RECORDS

    def before_commit(self) -> None:
        """What else belongs to the transaction."""

    def run(self, until: float) -> None:
        """Transactions until that time of the monotonic clock."""
        try:
            while time.monotonic() < until:
                values = self.values()
                self.producer.begin_transaction()
                for value in values:
                    self.producer.produce(self.topic, value, partition=self.partition)
                self.before_commit()
                began = time.monotonic()
                self.producer.commit_transaction(PATIENCE_S)
                ended = time.monotonic()
                self.latencies.append((ended, ended - began))
        except (KafkaException, BufferError) as error:
            self.error = error


class CopyingClient(Client):
    """Reads committed records, and commits its position with what it writes."""

    def __init__(self, bootstrap: str, topic: str, partition: int) -> None:
        super().__init__(bootstrap, topic, partition)
        self._source = TopicPartition(f"{topic}-source", partition)
        _fill(bootstrap, self._source)
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"{topic}-{partition}",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
            }
        )
        self._next = 0
        self._rewind()

    def values(self) -> list[bytes]:
        if self._next + RECORDS > SOURCE_RECORDS:
            self._rewind()
        found: list[bytes] = []
        while len(found) < RECORDS:
            for message in self._consumer.consume(RECORDS - len(found), PATIENCE_S):
                value = message.value()
                if message.error() or not isinstance(value, bytes):
                    raise KafkaException(message.error())
                found.append(value)
        self._next += RECORDS
        return found

    def before_commit(self) -> None:
        position = TopicPartition(self._source.topic, self._source.partition, self._next)
        group = self._consumer.consumer_group_metadata()
        self.producer.send_offsets_to_transaction([position], group, PATIENCE_S)

    def _rewind(self) -> None:
        self._next = 0
        self._consumer.assign([TopicPartition(self._source.topic, self._source.partition, 0)])


def _fill(bootstrap: str, source: TopicPartition) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for _ in range(SOURCE_RECORDS):
        producer.produce(source.topic, b"x" * RECORD_BYTES, partition=source.partition)
    producer.flush(PATIENCE_S)


CLIENTS: dict[str, Callable[[str, str, int], Client]] = {"produce": Client, "copy": CopyingClient}


def main() -> None:
    """Run the producers and print what came of it."""
    parser = argparse.ArgumentParser(prog="python -m bench.transactions", description=__doc__)
    parser.add_argument("mode", choices=tuple(CLIENTS))
    parser.add_argument("bootstrap")
    parser.add_argument("topic")
    parser.add_argument("--producers", type=int, default=1)
    parser.add_argument("--milliseconds", type=int, default=3000)
    parser.add_argument("--warmup-ms", type=int, default=500)
    given = parser.parse_args()
    make = CLIENTS[given.mode]
    clients = [make(given.bootstrap, given.topic, number) for number in range(given.producers)]
    began = time.monotonic() + given.warmup_ms / 1000
    until = began + given.milliseconds / 1000
    threads = [threading.Thread(target=client.run, args=(until,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    failed = next((client.error for client in clients if client.error is not None), None)
    if failed is not None:
        sys.exit(f"a transaction failed: {failed}")
    print(json.dumps(_report(clients, began)))


def _report(clients: Sequence[Client], began: float) -> dict[str, float]:
    commits = [commit for client in clients for commit in client.latencies]
    counted = [(ended, took) for ended, took in commits if ended >= began]
    if len(counted) < 2:
        sys.exit(f"only {len(counted)} transactions were committed in the measured time")
    took = sorted(each for _, each in counted)
    last = max(ended for ended, _ in counted)
    return {
        "transactions_per_second": len(counted) / (last - began),
        "total_transactions": len(commits),
        "commit_p50_us": statistics.median(took) * 1e6,
        "commit_p99_us": took[min(len(took) - 1, int(len(took) * 0.99))] * 1e6,
        "client_cpu_seconds": time.process_time(),
    }


if __name__ == "__main__":
    main()
