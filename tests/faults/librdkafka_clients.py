"""librdkafka under load: an idempotent producer and a reader that is assigned its partitions.

Whatever a client reports other than a delivery leaves the outcome unknown: an error that ends the
retries of a record says nothing about the attempts before it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from strandline.sim.history.operations import Acknowledged, Event

POLL_S: Final = 0.1
ASK_S: Final = 60.0
RESETS_MAX: Final = 20
PATIENT: Final = {
    # A node that hangs is given up after this; the default is a minute.
    "socket.timeout.ms": 2000,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 50,
    "topic.metadata.refresh.interval.ms": 1000,
    "log_level": 0,  # what matters comes back from calls and callbacks
}


class LibrdkafkaProducer:
    """With deliveries recorded where they are told."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        record: Callable[[Event], object],
        *,
        acks: str,
        idempotent: bool,
    ) -> None:
        self._topic = topic
        self._record = record
        self._fatal: KafkaError | None = None
        self._producer = Producer(
            {
                **PATIENT,
                "bootstrap.servers": bootstrap,
                "acks": acks,
                "enable.idempotence": idempotent,
                "linger.ms": 2,
                "request.timeout.ms": 2000,
                "message.timeout.ms": 240_000,
                "error_cb": self._failed,
            }
        )

    def send(self, partition: int, value: str) -> None:
        """Hand one record to the client."""
        try:
            self._producer.produce(
                self._topic,
                value.encode(),
                partition=partition,
                on_delivery=lambda error, message: self._delivered(error, message, value),
            )
        except KafkaException:
            self.turn()  # it says only that there was a fatal error; the callback says which
            raise

    def turn(self) -> None:
        """Run callbacks."""
        self._producer.poll(0)
        if self._fatal is not None:
            raise KafkaException(self._fatal)

    def finish(self, seconds: float) -> int:
        """Wait for outcomes; how many sends are still without one."""
        left: int = self._producer.flush(seconds)
        self.turn()
        return left

    def _delivered(self, error: KafkaError | None, message: Message, value: str) -> None:
        if error is None:
            offset = message.offset()
            known = offset if offset is not None and offset >= 0 else None
            self._record(Acknowledged(message.partition(), value, known))

    def _failed(self, error: KafkaError) -> None:
        if error.fatal():
            self._fatal = error


class LibrdkafkaReader:
    """Reads every partition from offset 0. `reset`: what to do when the offset where it goes on
    does not exist any more, "earliest" or "error".

    librdkafka forgets a partition's leader epoch with a leader that has vanished from the metadata.
    A zombie of an older epoch may be asked then where the newer one ended (KIP-320), rightly does
    not know, and is taken to have lost records. So an "error" is believed only when it is repeated:
    the reader goes on from where it was, and the checker judges what it is given there.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int, *, reset: str) -> None:
        self._topic = topic
        self._consumer = Consumer(
            {
                **PATIENT,
                "bootstrap.servers": bootstrap,
                "group.id": "reads-without-a-group",
                "enable.auto.commit": False,
                "auto.offset.reset": reset,
                "fetch.wait.max.ms": 100,
                "check.crcs": True,
            }
        )
        self._positions = dict.fromkeys(range(partitions), 0)
        self._resets = 0
        self._go_on()

    def poll(self) -> Mapping[int, Sequence[tuple[int, str]]]:
        """What came within a short time."""
        found: dict[int, list[tuple[int, str]]] = {}
        for message in self._consumer.consume(num_messages=500, timeout=POLL_S):
            error = message.error()
            if error is None:
                partition, offset = _known(message.partition()), _known(message.offset())
                found.setdefault(partition, []).append((offset, _known(message.value()).decode()))
                self._positions[partition] = offset + 1
            elif error.code() == KafkaError._FATAL:
                raise KafkaException(error)
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                self._resets += 1
                if self._resets > RESETS_MAX:
                    raise KafkaException(error)
                self._go_on()
                break  # what else is in hand was fetched before
        return found

    def _go_on(self) -> None:
        self._consumer.assign(
            [TopicPartition(self._topic, index, at) for index, at in self._positions.items()]
        )

    def ends(self) -> Mapping[int, int]:
        """The end of each partition, by asking the cluster now."""
        return {
            index: end_of(self._consumer, TopicPartition(self._topic, index))
            for index in self._positions
        }

    def close(self) -> None:
        """Let go of connections."""
        self._consumer.close()


def end_of(consumer: Consumer, partition: TopicPartition) -> int:
    """The end of the log. This call of librdkafka does not ask again by itself when the leader has
    changed since it last looked; asking for metadata makes it look."""
    deadline = time.monotonic() + ASK_S
    while True:
        try:
            return int(consumer.get_watermark_offsets(partition, timeout=ASK_S)[1])
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            consumer.list_topics(partition.topic, timeout=ASK_S)


def _known(value: Any) -> Any:
    assert value is not None
    return value
