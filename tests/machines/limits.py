"""Machines that have little: rows of `python -m tests.machines` for what runs out.

Each row is a function of an empty folder that says in a sentence what happened, or fails. They need
no Debian of their own; memory needs a cgroup that may be made (root).
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeAlias

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.broker.harness import Wire
from tests.cli.test_serve_handles import Group, Serving, serving, until
from tests.node.messages import batch, produce, produced

Place: TypeAlias = tuple[str | None, int | None, int | None]
"""Topic, partition and offset of a message."""

MIB: Final = 1 << 20
TOPICS, PARTITIONS = 20, 100
MEMORY: Final = 256 * MIB
LARGE: Final = 40 * MIB
CROWD: Final = 16
_CGROUPS: Final = (
    (Path("/sys/fs/cgroup"), "memory.max"),
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
)


def two_thousand_partitions(folder: Path) -> str:
    """2,000 partitions with three replicas, `__consumer_offsets`, a group, 1,024 open files."""
    began = time.monotonic()
    with serving(folder, 1024, "--brokers", "3") as served:
        admin = AdminClient({"bootstrap.servers": served.address, "log_level": 0})
        names = [f"many-{number}" for number in range(TOPICS)]
        for name in names:
            _create(admin, name)
        until(lambda: _have_leaders(admin, names), "leaders")
        made_s = time.monotonic() - began
        group = Group(served.address, names[0], 3)
        try:
            written = _write_to_each(served, names)
            wanted = {
                (partition, offset) for name, partition, offset in written if name == names[0]
            }
            until(lambda: wanted <= group.seen, "the group reads what was acknowledged")
            assert served.open_files() <= 1024
            handles = served.handles()
        finally:
            group.stop()
        log = served.log()
        for word in ("Traceback", "offline", "failed before"):
            assert word not in log, log[-2000:]
    return (
        f"{TOPICS * PARTITIONS:,} partitions led after {made_s:.0f} s; one record acknowledged by "
        f"all replicas in each; at the end {handles['files']} files and {handles['sockets']} "
        f"sockets open, {handles['opened']:,} openings; stopped cleanly"
    )


def _create(admin: AdminClient, name: str) -> None:
    """What becomes of it is seen by its leaders: a retry after a time-out finds it made."""
    admin.create_topics([NewTopic(name, PARTITIONS, 3)], request_timeout=600)[name].exception()


def _have_leaders(admin: AdminClient, names: Sequence[str]) -> bool:
    topics = admin.list_topics(timeout=60).topics
    return all(
        name in topics
        and len(topics[name].partitions) == PARTITIONS
        and all(each.leader > 0 for each in topics[name].partitions.values())
        for name in names
    )


def _write_to_each(served: Serving, names: Sequence[str]) -> set[Place]:
    """One record in each partition; where they are."""
    failed: list[KafkaError] = []
    written: set[Place] = set()

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failed.append(error)
        else:
            written.add((message.topic(), message.partition(), message.offset()))

    options = {"bootstrap.servers": served.address, "acks": "all", "message.timeout.ms": 600_000}
    producer = Producer({**options, "log_level": 0})
    for name in names:
        for partition in range(PARTITIONS):
            producer.produce(name, b"x", partition=partition, on_delivery=delivered)
            producer.poll(0)
    assert producer.flush(600) == 0
    assert not failed, failed[:3]
    return written


def little_memory(folder: Path) -> str:
    """Many large requests at once, in a cgroup that the kernel kills who is above its limit."""
    settings = ("--set", "message.max.bytes=100000000", "--set", "log.retention.ms=-1")

    with (
        _memory_of(MEMORY) as procs,
        serving(
            folder, 4096, *settings, prepare=lambda: procs.write_text(str(os.getpid()))
        ) as served,
        Wire(served.port) as wire,
    ):
        for topic in ("large", "small"):
            wire.create_topic(topic)
        answers: list[int] = []
        crowd = [
            threading.Thread(target=_write_large, args=(served.port, answers)) for _ in range(CROWD)
        ]
        for each in crowd:
            each.start()
        answered = 0
        while any(each.is_alive() for each in crowd):
            assert produced(wire.ask(produce(batch(b"x"), "small"), 9)).error_code == 0
            answered += 1
        assert answers == [0] * CROWD, answers
        peak = _peak_bytes(served.process.pid)
    return (
        f"{CROWD} requests of {LARGE // MIB} MiB at once are all written; another client was "
        f"served {answered} times meanwhile; {peak // MIB} MiB resident at most; stopped cleanly"
    )


def _write_large(port: int, answers: list[int]) -> None:
    with Wire(port) as wire:
        answer = wire.ask(produce(batch(bytes(LARGE)), "large", timeout_ms=60_000), 9)
        answers.append(int(produced(answer).error_code))


def _peak_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = (each for each in lines if each.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


@contextmanager
def _memory_of(limit: int) -> Iterator[Path]:
    """A cgroup of either version; the file to write a process into."""
    for root, name in _CGROUPS:
        group = root / f"strandline-{os.getpid()}"
        if not (root / "cgroup.procs").exists():
            continue
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            if not (group / name).exists():
                continue
            (group / name).write_text(str(limit))
            yield group / "cgroup.procs"
            return
        finally:
            group.rmdir()
    raise AssertionError("No cgroup for memory can be made here.")


def _tests(*arguments: str, **environment: str) -> Callable[[Path], str]:
    """A row that is a part of the tests."""

    def attempt(folder: Path) -> str:
        del folder
        run = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 0, run.stdout[-3000:]
        return "these tests pass"

    return attempt


LIMITS: Final[dict[str, tuple[str, Callable[[Path], str]]]] = {
    "256 open files": (
        "`serve --brokers 3`, 200 partitions, a group of 10",
        _tests("tests/cli/test_serve_handles.py"),
    ),
    "1,024 open files": (
        f"`serve --brokers 3`, {TOPICS * PARTITIONS:,} partitions, a group",
        two_thousand_partitions,
    ),
    "256 MiB of memory": (f"{CROWD} large requests at once", little_memory),
    "a full disk": ("logs and metadata on it", _tests("tests/broker/test_disks.py")),
    "no calls that only Linux has": (
        "a part of the tests",
        _tests("@tests/without_linux/tests.txt", PYTHONPATH="tests/without_linux"),
    ),
}
"""What is tried, and how, by the name of the machine."""
