"""Continuous load by foreign clients, recorded as a history: producers and readers, each a thread.

Two kinds of each, librdkafka's and kafka-python's, behind one small interface. A value names its
producer and counts up, so that the order of sends can be checked. The load is paced, not as fast as
possible: the machine also runs the cluster, and what matters is that something is always under way.
Tests use it through `load_process`: threads of clients would starve the network of the test.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Final, Protocol, Self

from strandline.sim.history.operations import Acknowledged, Assigned, Event, Polled, Sent
from tests.faults.group_reader import GROUP, GroupReader
from tests.faults.kafka_python_clients import KafkaPythonProducer, KafkaPythonReader
from tests.faults.librdkafka_clients import LibrdkafkaProducer, LibrdkafkaReader

PAUSE_S: Final = 0.01
"""Between two sends of one producer: often enough that a fault meets sends on their way, and not
oftener, as each send is work for three brokers and all readers, in all of the tests."""
LAST_READERS: Final = ("librdkafka-last", "kafka-python-last")
SETTLE_S: Final = 120.0
"""All sends have an outcome, and readers came to the end, within this time after the faults."""


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


class _Running(threading.Thread):
    """A thread that goes on until told to stop and keeps the error that ended it."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.stopping = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.work()
        except Exception as error:  # noqa: BLE001 - raised in the thread that stops it
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

    def work(self) -> None:
        client = self._make()
        number = 0
        while not self.stopping.wait(PAUSE_S):
            value, partition = f"{self.name}-{number}", number % self._partitions
            self._history.events.append(Sent(self.name, partition, value))
            client.send(partition, value)
            client.turn()
            number += 1
        unsettled = client.finish(SETTLE_S)
        if unsettled:
            raise LoadError(f"{unsettled} sends of {self.name} have no outcome after {SETTLE_S} s.")


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


class GroupReading(_Running):
    """The consumer group at work."""

    def __init__(self, name: str, reader: GroupReader) -> None:
        super().__init__(name)
        self._reader = reader

    def work(self) -> None:
        self._reader.run(self.stopping.is_set, SETTLE_S)


class Load:
    """Producers and readers of one topic. `with` starts them; `finish` stops them and judges."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        *,
        acks: str = "all",
        may_lose: bool = False,
        with_group: bool = False,
        producers: Sequence[str] = ("librdkafka", "kafka-python"),
    ) -> None:
        """`may_lose`: without idempotence, which ends for good when its own records are gone, and
        with readers that begin again when the log is shorter than they were."""
        self.history = History()
        self._counted = 0
        self._acknowledged = 0
        self._partitions = partitions
        self._bootstrap, self._topic = bootstrap, topic
        self._reset = "earliest" if may_lose else "error"
        kinds: dict[str, Callable[..., ProducerClient]] = {
            "librdkafka": LibrdkafkaProducer,
            "kafka-python": KafkaPythonProducer,
        }
        made = {
            name: partial(
                kinds[name],
                bootstrap,
                topic,
                self.history.events.append,
                acks=acks,
                idempotent=not may_lose,
            )
            for name in producers
        }
        self._producers = [
            Sending(name, make, partitions, self.history) for name, make in made.items()
        ]
        self._readers: list[_Running] = [
            self._reader("librdkafka-live", LibrdkafkaReader),
            self._reader("kafka-python-live", KafkaPythonReader),
        ]
        if with_group:
            group = GroupReader(bootstrap, topic, partitions, self.history.events.append)
            self._readers.append(GroupReading(GROUP, group))

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
        """How many sends were acknowledged so far. Asked often: it looks at what is new."""
        new = self.history.events[self._counted :]
        self._counted += len(new)
        self._acknowledged += sum(isinstance(event, Acknowledged) for event in new)
        return self._acknowledged

    def finish(self) -> None:
        """Stop producers, then readers, and read everything again from the start with new readers.
        Raises LoadError when a client failed or could not read to the end."""
        for producer in self._producers:
            producer.end()
        for reader in self._readers:
            reader.end()
        kinds: Sequence[Callable[..., ReaderClient]] = (LibrdkafkaReader, KafkaPythonReader)
        for name, kind in zip(LAST_READERS, kinds, strict=True):
            last = self._reader(name, kind)
            last.start()
            last.end()

    def _reader(self, name: str, kind: Callable[..., ReaderClient]) -> Reading:
        make = partial(kind, self._bootstrap, self._topic, self._partitions, reset=self._reset)
        return Reading(name, make, self._partitions, self.history)
