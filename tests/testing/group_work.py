"""Members of a consumer group at work, and what must be true of it while coordinators fail.

Each member reads, commits what it has read, and notes whether the commit was acknowledged. Nothing
below an acknowledged commit may be handed to any member again: every owner of a partition begins at
the committed offset, so a lost or outdated one would show.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Self

import confluent_kafka
from confluent_kafka import KafkaException

from tests.delivered import offset_of, partition_of

PATIENCE_S = 120.0
TOPIC = "work"
GROUP = "workers"


class Ledger:
    """What was read and what was committed, by partition."""

    def __init__(self) -> None:
        self.read: dict[int, set[int]] = {}
        self.acknowledged: dict[int, int] = {}
        self.members: dict[int, str] = {}
        """Who committed last."""
        self.wrong: list[str] = []
        self._changed = threading.Condition()

    def note_read(self, member: str, partition: int, offset: int) -> None:
        with self._changed:
            committed = self.acknowledged.get(partition, 0)
            if offset < committed:
                self.wrong.append(f"{member} reads {partition}@{offset} after commit {committed}")
            self.read.setdefault(partition, set()).add(offset)

    def note_committed(self, member: str, offsets: Mapping[int, int]) -> None:
        with self._changed:
            self.acknowledged |= offsets
            self.members |= dict.fromkeys(offsets, member)
            self._changed.notify_all()

    def fail(self, sentence: str) -> None:
        with self._changed:
            self.wrong.append(sentence)
            self._changed.notify_all()

    def wait_until_shared(self, members: int) -> None:
        """Wait until so many members have work."""
        with self._changed:
            reached = self._changed.wait_for(
                lambda: self.wrong or len({*self.members.values()}) == members, PATIENCE_S
            )
        assert not self.wrong, self.wrong[0]
        assert reached, f"after {PATIENCE_S} s the work is done by {self.members}"

    def wait_for_commits(self, partitions: int, least: Mapping[int, int] | None = None) -> None:
        """Wait until every partition has a commit beyond `least`, or beyond what it has now."""
        with self._changed:
            floor = (
                dict(self.acknowledged) if least is None else {p: n - 1 for p, n in least.items()}
            )
            reached = self._changed.wait_for(
                lambda: (
                    self.wrong
                    or all(
                        self.acknowledged.get(each, 0) > floor.get(each, 0)
                        for each in range(partitions)
                    )
                ),
                PATIENCE_S,
            )
        assert not self.wrong, self.wrong[0]
        assert reached, f"after {PATIENCE_S} s {self.acknowledged}, waiting to get beyond {floor}"


class Member:
    """One member in a thread of its own, until it is left."""

    def __init__(self, name: str, servers: str, ledger: Ledger) -> None:
        self.name = name
        self._ledger = ledger
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name)
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": servers,
                "client.id": name,
                "group.id": GROUP,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 10_000,
                "heartbeat.interval.ms": 200,
                "fetch.wait.max.ms": 50,
                "retry.backoff.ms": 50,
                "reconnect.backoff.max.ms": 300,
                "topic.metadata.refresh.interval.ms": 500,
                "log_level": 0,
            }
        )
        self._consumer.subscribe([TOPIC])

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

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._work()
        except Exception as bug:  # noqa: BLE001 -- told to the test, which is another thread
            self._ledger.fail(f"{self.name} failed: {bug!r}")
        finally:
            self._consumer.close()

    def _work(self) -> None:
        offsets: dict[int, int] = {}
        for partition, offset in self._poll():
            self._ledger.note_read(self.name, partition, offset)
            offsets[partition] = offset + 1
        if offsets and self._commit(offsets):
            self._ledger.note_committed(self.name, offsets)

    def _poll(self) -> list[tuple[int, int]]:
        messages = self._consumer.consume(50, timeout=0.05)
        return [(partition_of(each), offset_of(each)) for each in messages if each.error() is None]

    def _commit(self, offsets: Mapping[int, int]) -> bool:
        wanted = [confluent_kafka.TopicPartition(TOPIC, p, at) for p, at in offsets.items()]
        try:
            done = self._consumer.commit(offsets=wanted, asynchronous=False)
        except KafkaException:
            return False
        return all(each.error is None for each in done)


class Feed:
    """A producer that gives the group something to do, a record every few milliseconds."""

    def __init__(self, servers: str, partitions: int) -> None:
        self.ends = dict.fromkeys(range(partitions), 0)
        """The ends of the log, as far as records were acknowledged."""
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "linger.ms": 1,
                "retry.backoff.ms": 50,
                "reconnect.backoff.max.ms": 300,
                "log_level": 0,
            }
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feed")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def stop(self) -> None:
        """Produce no more, and wait until all is acknowledged."""
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(PATIENCE_S) == 0

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _run(self) -> None:
        while not self._stop.wait(0.004):
            for partition in self.ends:
                self._producer.produce(TOPIC, b"x", partition=partition, on_delivery=self._note)
            self._producer.poll(0)

    def _note(
        self, error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message
    ) -> None:
        if error is None:
            partition, end = partition_of(message), offset_of(message) + 1
            self.ends[partition] = max(self.ends[partition], end)


def committed(servers: str, partitions: int) -> dict[int, int]:
    """What the group has committed, asked by a client that is no member."""
    asker = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": GROUP, "log_level": 0}
    )
    try:
        wanted = [confluent_kafka.TopicPartition(TOPIC, each) for each in range(partitions)]
        return {each.partition: each.offset for each in asker.committed(wanted, PATIENCE_S)}
    finally:
        asker.close()
