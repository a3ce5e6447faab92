"""Clients that work while brokers fail, and what must be true of their work afterwards."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from strandline.testing import Cluster
from tests.delivered import offset_of, value_of

PATIENCE_S = 120.0


class Load:
    """An idempotent producer with acks=all that numbers its records, in a thread, until it is
    left. `topic` has one partition, so the order of the numbers is the order of the log."""

    def __init__(
        self, cluster: Cluster, topic: str, settings: Mapping[str, Any] | None = None
    ) -> None:
        self.topic = topic
        self.acknowledged: dict[int, int] = {}
        """Offsets by number."""
        self.failed: list[KafkaError] = []
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "enable.idempotence": True,
                "linger.ms": 1,
                "retry.backoff.ms": 50,
                "reconnect.backoff.max.ms": 500,
                "socket.timeout.ms": 3000,
                "message.timeout.ms": 60_000,
                **(settings or {}),
            }
        )
        self._stop = threading.Event()
        self._progress = threading.Condition()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()

    def wait_for_more(self, count: int = 50) -> None:
        """Wait until so many further records are acknowledged."""
        with self._progress:
            target = len(self.acknowledged) + count
            reached = self._progress.wait_for(
                lambda: len(self.acknowledged) >= target or self.failed, PATIENCE_S
            )
        assert not self.failed, self.failed[0]
        assert reached, f"{len(self.acknowledged)} of {target} acknowledged in {PATIENCE_S} s"

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            if number - len(self.acknowledged) < 500:
                value = str(number).encode()
                self._producer.produce(self.topic, value, partition=0, on_delivery=self._report)
                number += 1
                self._producer.poll(0)
            self._producer.poll(0.002)
        assert self._producer.flush(PATIENCE_S) == 0

    def _report(self, error: KafkaError | None, message: Message) -> None:
        with self._progress:
            if error is None:
                self.acknowledged[int(value_of(message))] = offset_of(message)
            else:
                self.failed.append(error)
            self._progress.notify_all()


def read_all(cluster: Cluster, topic: str, count: int) -> list[tuple[int, int]]:
    """The first records of partition 0 as (offset, number)."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "unused",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    found: list[tuple[int, int]] = []
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        while True:
            message = consumer.poll(PATIENCE_S)
            assert message is not None, f"{len(found)} of {count} records in {PATIENCE_S} s"
            error = message.error()
            if error is None:
                found.append((offset_of(message), int(value_of(message))))
            elif error.code() == KafkaError._PARTITION_EOF and len(found) >= count:
                return found
    finally:
        consumer.close()


def check(cluster: Cluster, load: Load) -> None:
    """Nothing that was acknowledged is lost, doubled, out of order or at another offset, and all
    replicas have the same."""
    assert not load.failed
    cluster.wait_until_in_sync(load.topic)
    records = read_all(cluster, load.topic, len(load.acknowledged))
    assert {number: offset for offset, number in records} == load.acknowledged
    assert [number for _, number in records] == sorted(load.acknowledged)
    ends = {each.log_end for each in cluster.status().partition(load.topic).replicas}
    assert len(ends) == 1, cluster.status()
