"""kafka-python under load: an idempotent producer and a reader that is assigned its partitions."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from strandline.sim.history.operations import Acknowledged, Event

with warnings.catch_warnings():
    # The library reads its own files through a deprecated function while it is imported.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer
    from kafka.errors import KafkaTimeoutError
    from kafka.structs import TopicPartition

POLL_MS: Final = 100
ERRORS_TOLD: Final = 5
ASK_S: Final = 60.0
PATIENT: Final = {
    # A node that hangs is given up after this; the default is half a minute.
    "request_timeout_ms": 4000,
    "reconnect_backoff_ms": 20,
    "reconnect_backoff_max_ms": 200,
    "retry_backoff_ms": 50,
    "metadata_max_age_ms": 1000,
}


class KafkaPythonProducer:
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
        # Each of the two counters is moved by one thread only.
        self._handed_over = 0
        self._settled = 0
        self._told = 0
        self._producer = KafkaProducer(
            # The library gives up for good when no broker answers in time what its producer id is.
            **{**PATIENT, "request_timeout_ms": 15_000},
            bootstrap_servers=bootstrap,
            acks=acks if acks == "all" else int(acks),
            enable_idempotence=idempotent,
            linger_ms=2,
            delivery_timeout_ms=240_000,
            max_block_ms=120_000,
        )

    def send(self, partition: int, value: str) -> None:
        """Hand one record to the client."""
        self._handed_over += 1
        future = self._producer.send(self._topic, value.encode(), partition=partition)
        future.add_callback(self._delivered, value)
        future.add_errback(self._failed)

    def turn(self) -> None:
        """The client runs callbacks in a thread of its own."""

    def finish(self, seconds: float) -> int:
        """Wait for outcomes; how many sends are still without one."""
        deadline = time.monotonic() + seconds
        with suppress(KafkaTimeoutError):  # the return value says so
            self._producer.flush(seconds)
        left = self._handed_over - self._settled
        self._producer.close(timeout=max(0.0, deadline - time.monotonic()))
        return left

    def _delivered(self, value: str, metadata: Any) -> None:
        self._settled += 1
        known = metadata.offset if metadata.offset >= 0 else None
        self._record(Acknowledged(metadata.partition, value, known))

    def _failed(self, error: BaseException) -> None:
        self._settled += 1
        self._told += 1
        if self._told <= ERRORS_TOLD:  # in the load's log, for the account of a failing test
            print(f"A send of kafka-python failed: {error!r}", file=sys.stderr, flush=True)


class KafkaPythonReader:
    """Reads every partition from offset 0. `reset`: what to do when the offset where it goes on
    does not exist any more, "earliest" or "error"."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, *, reset: str) -> None:
        self._consumer = KafkaConsumer(
            **PATIENT,
            bootstrap_servers=bootstrap,
            auto_offset_reset="none" if reset == "error" else reset,
            enable_auto_commit=False,
            check_crcs=True,
            fetch_max_wait_ms=100,
        )
        self._partitions = [TopicPartition(topic, index) for index in range(partitions)]
        self._consumer.assign(self._partitions)
        for partition in self._partitions:
            self._consumer.seek(partition, 0)

    def poll(self) -> Mapping[int, Sequence[tuple[int, str]]]:
        """What came within a short time."""
        return {
            partition.partition: [(record.offset, record.value.decode()) for record in records]
            for partition, records in self._consumer.poll(timeout_ms=POLL_MS).items()
        }

    def ends(self) -> Mapping[int, int]:
        """The end of each partition, by asking the cluster now."""
        deadline = time.monotonic() + ASK_S
        while True:
            try:
                found = self._consumer.end_offsets(self._partitions)
            except KafkaTimeoutError:  # a request's time, which a busy machine may need for itself
                if time.monotonic() > deadline:
                    raise
            else:
                return {partition.partition: end for partition, end in found.items()}

    def close(self) -> None:
        """Let go of connections."""
        self._consumer.close()
