"""Small tools over confluent-kafka, the Python binding of librdkafka."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.clients.support import WAIT_SECONDS

Settings: TypeAlias = Mapping[str, Any]

LINGERLESS: Final = {"linger.ms": 0}


def create_topic(
    admin: AdminClient, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None
) -> str:
    """Create a topic and return its name."""
    new = NewTopic(
        topic, num_partitions=partitions, replication_factor=1, config=dict(config or {})
    )
    done(admin.create_topics([new])[topic])
    return topic


def delete_topic(admin: AdminClient, topic: str) -> None:
    """Delete a topic."""
    done(admin.delete_topics([topic])[topic])


def done(future: Any) -> Any:
    """The result of an admin call."""
    return future.result(WAIT_SECONDS)


class Deliveries:
    """A producer that remembers what became of each record."""

    def __init__(self, address: str, settings: Settings | None = None) -> None:
        self.delivered: list[Message] = []
        self.failed: list[KafkaError] = []
        self.producer = Producer(
            {
                "bootstrap.servers": address,
                **LINGERLESS,
                **(settings or {}),
                "on_delivery": self._report,
            }
        )

    def _report(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.delivered.append(message)
        else:
            self.failed.append(error)

    def send(self, topic: str, value: bytes | None, **more: Any) -> None:
        """Hand one record over, waiting if the producer's queue is full."""
        try:
            self.producer.produce(topic, value, **more)
        except BufferError:
            self.producer.poll(1.0)
            self.producer.produce(topic, value, **more)

    def flush(self) -> list[Message]:
        """Wait for all outcomes; fails if a record was not delivered."""
        self.settle()
        assert self.failed == [], f"{len(self.failed)} records were refused: {self.failed[:3]}"
        return self.delivered

    def refusals(self) -> list[int]:
        """Wait for all outcomes; the error codes of the records that were not delivered."""
        self.settle()
        codes = [error.code() for error in self.failed]
        self.failed.clear()
        return codes

    def settle(self) -> None:
        """Wait for all outcomes."""
        left = self.producer.flush(WAIT_SECONDS)
        assert left == 0, f"{left} records have no outcome after {WAIT_SECONDS} s"


def send_all(
    address: str,
    topic: str,
    values: Sequence[bytes | None],
    *,
    partition: int = 0,
    settings: Settings | None = None,
) -> list[Message]:
    """Write values to one partition and return the delivered messages."""
    deliveries = Deliveries(address, settings)
    for value in values:
        deliveries.send(topic, value, partition=partition)
    return deliveries.flush()


@contextmanager
def consuming(address: str, group: str, settings: Settings | None = None) -> Iterator[Consumer]:
    """A consumer that starts at the beginning, checks checksums and commits nothing by itself."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "check.crcs": True,
            "fetch.wait.max.ms": 100,
            "heartbeat.interval.ms": 200,
            "session.timeout.ms": 30_000,
            **(settings or {}),
        }
    )
    try:
        yield consumer
    finally:
        consumer.close()


def error_of(message: Message | None) -> KafkaError:
    """The error that came in place of a message."""
    assert message is not None
    error = message.error()
    assert error is not None
    return error


def values_of(messages: Iterable[Message]) -> list[bytes]:
    """Their values, of which there is one in each."""
    values = [message.value() for message in messages]
    assert None not in values
    return [value for value in values if value is not None]


def take(consumer: Consumer, count: int, *, seconds: float = WAIT_SECONDS) -> list[Message]:
    """Exactly `count` messages, in the order in which they come. Errors fail."""
    found: list[Message] = []
    deadline = time.monotonic() + seconds
    while len(found) < count:
        message = consumer.poll(0.2)
        assert time.monotonic() < deadline, f"{len(found)} of {count} messages in {seconds} s"
        if message is not None:
            assert message.error() is None, message.error()
            found.append(message)
    return found


def refused(address: str, topic: str, value: bytes) -> int:
    """The error code with which the broker refuses a record."""
    deliveries = Deliveries(address)
    deliveries.send(topic, value, partition=0)
    [code] = deliveries.refusals()
    return code


def read_partition(address: str, topic: str, partition: int, count: int) -> list[Message]:
    """The first `count` messages of a partition."""
    with consuming(address, "not-used") as consumer:
        consumer.assign([TopicPartition(topic, partition, 0)])
        return take(consumer, count)


def poll_all(
    consumers: Sequence[Consumer],
    condition: Callable[[], bool],
    what: str,
    *,
    seconds: float = WAIT_SECONDS,
) -> list[Message]:
    """Poll all consumers in turn until the condition holds; returns what they read."""
    found: list[Message] = []
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"Waited {seconds} s in vain for {what}."
        for consumer in consumers:
            message = consumer.poll(0.02)
            if message is not None:
                assert message.error() is None, message.error()
                found.append(message)
    return found


def assigned(consumer: Consumer) -> set[tuple[str, int]]:
    """The partitions that a consumer has now."""
    return {(part.topic, part.partition) for part in consumer.assignment()}
