"""Three brokers in this process, and programs of others beside them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, KafkaError, Message, Producer

from bench.kafka_jars import connect_jars, kafka_jars, streams_jars
from strandline.testing import Cluster
from tests.java.processes import JAVA, Process

PATIENCE_S: Final = 180.0
_POLL_S: Final = 0.2
_JVM_FLAGS: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m")


class Rig:
    """Clusters by name, and virtual machines that end with it."""

    def __init__(self, home: Path, cache: Path) -> None:
        self.home = home
        self.cache = cache
        self._clusters: list[Cluster] = []
        self._programs: list[Process] = []

    def __enter__(self) -> Rig:
        return self

    def __exit__(self, *ended: object) -> None:
        for program in self._programs:
            program.kill()
        for cluster in self._clusters:
            cluster.__exit__(*ended)  # type: ignore[arg-type]

    def cluster(self) -> Cluster:
        """Another cluster of three brokers."""
        made = Cluster(brokers=3)
        made.__enter__()
        self._clusters.append(made)
        return made

    def java(self, main: str, *arguments: str) -> Process:
        """Start a program of Kafka's in a virtual machine."""
        assert JAVA is not None
        folders = (kafka_jars(self.cache), streams_jars(self.cache), connect_jars(self.cache))
        class_path = os.pathsep.join(f"{each}/*" for each in folders)
        errors = self.home / f"program-{len(self._programs)}.txt"
        program = Process([JAVA, *_JVM_FLAGS, "-cp", class_path, main, *arguments], errors, {})
        self._programs.append(program)
        return program

    def properties(self, name: str, settings: dict[str, object]) -> str:
        """The path of a file with settings."""
        path = self.home / name
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return str(path)


def until(condition: Callable[[], bool], what: str, complaint: Callable[[], str]) -> None:
    """Wait for a condition; fails with what was not there in time."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, f"After {PATIENCE_S:.0f} s: no {what}. {complaint()}"
        time.sleep(_POLL_S)


def produce(bootstrap: str, topic: str, records: list[tuple[str, str]]) -> None:
    """Write records with keys; fails unless all are acknowledged by all in-sync replicas."""
    failures: list[str] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error:
            failures.append(str(error))

    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for key, value in records:
        producer.produce(
            topic,
            value,
            key,
            headers=[("of", b"rig")],
            on_delivery=delivered,
        )
    assert producer.flush(PATIENCE_S) == 0
    assert not failures, failures[:3]


@contextmanager
def consumer(bootstrap: str, group: str, *topics: str) -> Iterator[Consumer]:
    """A member of a group that begins at the first record and reads what is committed."""
    made = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 1000,  # for topics that come later
        }
    )
    made.subscribe(list(topics))
    try:
        yield made
    finally:
        made.close()


def read(reader: Consumer, count: int, complaint: Callable[[], str]) -> list[tuple[str, str]]:
    """So many records; fails if they do not come."""
    found: list[tuple[str, str]] = []

    def more() -> bool:
        message = reader.poll(_POLL_S)
        if message is not None and message.error() is None:
            key, value = message.key(), message.value()
            found.append((_text(key), _text(value)))
        return len(found) >= count

    until(more, f"{count} records", lambda: f"{len(found)} came. {complaint()}")
    return found


def _text(data: str | bytes | None) -> str:
    return data.decode() if isinstance(data, bytes) else data or ""
