"""Three brokers over ZooKeeper, programs of Kafka's beside them, and kills of brokers by turns."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, KafkaError, Message

from bench.kafka_jars import kafka_jars, streams_jars
from tests.faults.processes import until
from tests.faults.zookeeper_cluster import ZooKeeperCluster
from tests.java.processes import JAVA, Process, compile_sources

PATIENCE_S: Final = 300.0
PROGRAMS: Final = Path(__file__).parent / "programs"
_JVM_FLAGS: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx384m")
SETTINGS: Final = {
    "transaction.state.log.num.partitions": "3",
    "offsets.topic.num.partitions": "3",
    # A busy machine is no fault: only killed brokers are to be missed.
    "zookeeper.session.timeout.ms": "12000",
    "replica.lag.time.max.ms": "20000",
    # What a killed program left open ends soon.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}


class Rig:
    """See the module."""

    def __init__(self, home: Path, cache: Path) -> None:
        self.home = home
        self.cluster = ZooKeeperCluster(home, settings=SETTINGS)
        self._jars = f"{kafka_jars(cache)}/*{os.pathsep}{streams_jars(cache)}/*"
        self._classes = home / "classes"
        self._programs: list[Process] = []

    def __enter__(self) -> Rig:
        self._classes.mkdir()
        compile_sources(PROGRAMS, self._classes, self._jars)
        self.cluster.__enter__()
        return self

    def __exit__(self, *ended: object) -> None:
        for program in self._programs:
            program.kill()
        self.cluster.__exit__(*ended)  # type: ignore[arg-type]

    def java(self, main: str, *arguments: str) -> Process:
        """Start a program of Kafka's or of ours in a virtual machine."""
        assert JAVA is not None
        class_path = f"{self._classes}{os.pathsep}{self._jars}"
        errors = self.home / f"program-{len(self._programs)}.txt"
        command = [JAVA, *_JVM_FLAGS, "-cp", class_path, main, *arguments]
        program = Process(command, errors, {})
        self._programs.append(program)
        return program

    def kill_by_turns(
        self, rounds: int, topics: dict[str, int], progress: Callable[[], int], step: int
    ) -> None:
        """Kill each broker so many times. After each kill the work must go on by `step` before the
        broker comes back, and by as much again before the next one is killed."""
        for number in range(rounds * len(self.cluster.ids)):
            broker = self.cluster.ids[number % len(self.cluster.ids)]
            self.cluster.kill(broker)
            self._wait_for(progress, progress() + step)
            self.cluster.start(broker)
            for topic, partitions in topics.items():
                for partition in range(partitions):
                    self.cluster.wait_until_in_sync(topic, partition)
            self._wait_for(progress, progress() + step)
            self.cluster.note(f"progress: {progress()}")

    def _wait_for(self, progress: Callable[[], int], wanted: int) -> None:
        until(
            lambda: progress() >= wanted,
            f"progress to {wanted}",
            seconds=PATIENCE_S,
            complaint=lambda: f"It stands at {progress()}.\n{self.cluster.account()}",
        )


class Committed:
    """All committed records of a topic, read in a thread as they come."""

    def __init__(self, bootstrap: str, topic: str, group: str = "judge") -> None:
        self.records: list[tuple[int, bytes, bytes]] = []
        """(partition, key, value), each partition in its order."""
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "check.crcs": True,
            }
        )
        self._consumer.subscribe([topic])
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while not self._is_over.is_set():
            message = self._consumer.poll(0.2)
            if message is not None and not _error(message):
                key, value, partition = message.key(), message.value(), message.partition()
                assert partition is not None
                self.records.append((partition, _bytes(key), _bytes(value)))

    def close(self) -> None:
        """Stop to read."""
        self._is_over.set()
        self._thread.join()
        self._consumer.close()


@contextmanager
def committed(bootstrap: str, topic: str, group: str = "judge") -> Iterator[Committed]:
    """Read a topic while the block runs."""
    reading = Committed(bootstrap, topic, group)
    try:
        yield reading
    finally:
        reading.close()


def _bytes(data: str | bytes | None) -> bytes:
    return data.encode() if isinstance(data, str) else data or b""


def _error(message: Message) -> KafkaError | None:
    # Brokers are killed: what is only about one of them is no news.
    return message.error()
