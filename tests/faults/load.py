"""Continuous load by foreign clients, recorded as a history: producers and readers, each a thread.

Two kinds of each, librdkafka's and kafka-python's, behind one small interface. A value names its
producer and counts up, so that the order of sends can be checked. The load is paced, not as fast as
possible: the machine also runs the cluster, and what matters is that something is always under way.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Protocol, Self

from tests.faults.kafka_python_clients import KafkaPythonProducer, KafkaPythonReader
from tests.faults.librdkafka_clients import LibrdkafkaProducer, LibrdkafkaReader
from tests.history.checker import check
from tests.history.operations import Assigned, Event, Polled, Refused, Sent
from tests.history.report import Report

PAUSE_S: Final = 0.004
"""Between two sends of one producer."""
SETTLE_S: Final = 40.0
"""All sends have an outcome, and readers came to the end, within this time after the faults."""
OUTSTANDING_MAX: Final = 2_000


class LoadError(Exception):
    """A client did something that no fault excuses; the sentence says which and what."""


class ProducerClient(Protocol):
    """Sends without waiting; outcomes are recorded from callbacks."""

    def send(self, partition: int, value: str) -> None:
        """Hand one record to the client."""

    def turn(self) -> None:
        """Let the client run callbacks that are due."""

    def finish(self, seconds: float) -> int:
        """Wait for outcomes; how many sends are still without one."""


class ReaderClient(Protocol):
    """Reads all partitions from their beginning."""

    def poll(self) -> Mapping[int, Sequence[tuple[int, str]]]:
        """What came within a short time, by partition."""

    def ends(self) -> Mapping[int, int]:
        """The end of each partition, by asking the cluster now."""

    def close(self) -> None:
        """Let go of connections."""


@dataclass(slots=True)
class History:
    """The events of one run, written by many threads."""

    events: list[Event] = field(default_factory=list)

    def of_readers(self, names: set[str]) -> list[Event]:
        """The same history as if only these readers had been there."""
        return [
            event
            for event in self.events
            if not isinstance(event, Polled | Assigned) or event.consumer in names
        ]


class _Running(threading.Thread):
    """A thread that goes on until told to stop and keeps the error that ended it."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.stopping = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.work()
        except Exception as error:  # noqa: BLE001 - told to whoever stops the thread
            self.error = error

    def work(self) -> None:
        """What the thread does."""
        raise NotImplementedError

    def end(self) -> None:
        """Stop it; raises what ended it early."""
        self.stopping.set()
        self.join(2 * SETTLE_S)
        if self.is_alive():
            raise LoadError(f"{self.name} does not end.")
        if self.error is not None:
            raise LoadError(f"{self.name} failed: {self.error!r}") from self.error


class Sending(_Running):
    """One producer at work."""

    def __init__(
        self, name: str, make: Callable[[], ProducerClient], partitions: int, history: History
    ) -> None:
        super().__init__(name)
        self._make = make
        self._partitions = partitions
        self._history = history
        self.unsettled = 0

    def work(self) -> None:
        client = self._make()
        number = 0
        while not self.stopping.wait(PAUSE_S):
            value, partition = f"{self.name}-{number}", number % self._partitions
            self._history.events.append(Sent(self.name, partition, value))
            client.send(partition, value)
            client.turn()
            number += 1
        self.unsettled = client.finish(SETTLE_S)


class Reading(_Running):
    """One reader at work. When told to stop it goes on to where the log ended at that moment."""

    def __init__(
        self, name: str, make: Callable[[], ReaderClient], partitions: int, history: History
    ) -> None:
        super().__init__(name)
        self._make = make
        self._history = history
        self._positions = dict.fromkeys(range(partitions), 0)

    def work(self) -> None:
        client = self._make()
        try:
            for partition in self._positions:
                self._history.events.append(Assigned(self.name, partition, 0))
            while not self.stopping.is_set():
                self._take(client)
            self._read_on_to(client, client.ends())
        finally:
            client.close()

    def _read_on_to(self, client: ReaderClient, ends: Mapping[int, int]) -> None:
        deadline = time.monotonic() + SETTLE_S
        while any(self._positions[partition] < end for partition, end in ends.items()):
            if time.monotonic() > deadline:
                raise LoadError(f"The log ends at {ends}, but {self.name} is at {self._positions}.")
            self._take(client)

    def _take(self, client: ReaderClient) -> None:
        for partition, records in client.poll().items():
            if records:
                self._history.events.append(Polled(self.name, partition, records))
                self._positions[partition] = records[-1][0] + 1


class Load:
    """Producers and readers of one topic. `with` starts them; `finish` stops them and judges."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        *,
        acks: str = "all",
        producers: Sequence[str] = ("librdkafka", "kafka-python"),
    ) -> None:
        self.history = History()
        self._partitions = partitions
        self._bootstrap, self._topic = bootstrap, topic
        record = self.history.events.append
        makers: dict[str, Callable[[], ProducerClient]] = {
            "librdkafka": lambda: LibrdkafkaProducer(bootstrap, topic, acks, record),
            "kafka-python": lambda: KafkaPythonProducer(bootstrap, topic, acks, record),
        }
        self._producers = [
            Sending(name, makers[name], partitions, self.history) for name in producers
        ]
        self._readers = [
            self._reader("librdkafka-live", LibrdkafkaReader),
            self._reader("kafka-python-live", KafkaPythonReader),
        ]

    def __enter__(self) -> Self:
        for thread in (*self._readers, *self._producers):
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for thread in (*self._producers, *self._readers):
            thread.stopping.set()
        for thread in (*self._producers, *self._readers):
            thread.join(SETTLE_S)

    def acknowledged(self) -> int:
        """How many sends were acknowledged so far."""
        return check(self.history.events[:]).acknowledged

    def finish(self) -> Report:
        """Stop producers, then readers, read everything again from the start with new readers,
        and judge. Raises LoadError when a client failed or records are left without an outcome."""
        for producer in self._producers:
            producer.end()
        for reader in self._readers:
            reader.end()
        for name, kind in (("librdkafka-last", LibrdkafkaReader), ("last", KafkaPythonReader)):
            last = self._reader(name, kind)
            last.start()
            last.end()
        return check(self.history.events)

    def _reader(self, name: str, kind: Callable[[str, str, int], Any]) -> Reading:
        def make() -> ReaderClient:
            client: ReaderClient = kind(self._bootstrap, self._topic, self._partitions)
            return client

        return Reading(name, make, self._partitions, self.history)
