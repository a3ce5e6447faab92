"""`consume --group` as a member: sharing, taking over, and who sees it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Thread

import pytest
from confluent_kafka import Consumer as LibrdkafkaConsumer

from tests.cli.conftest import DEADLINE_S, Ended, Serving

Run = Callable[..., Ended]

PARTITIONS = 4
SETTINGS = (
    *("--set", "group.initial.rebalance.delay.ms=0"),
    *("--set", "group.min.session.timeout.ms=500"),
    *("--set", "group.consumer.min.heartbeat.interval.ms=200"),
    *("--set", "group.consumer.heartbeat.interval.ms=200"),
)
QUICK = ("-X", "session.timeout.ms=2000", "-X", "heartbeat.interval.ms=200")


class Reader:
    """A `consume --group` that runs, and the lines that it prints."""

    def __init__(self, address: str, topic: str, *arguments: str) -> None:
        # In the consumer protocol a broker has these times.
        times = () if "consumer" in arguments else QUICK
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "strandline.cli", "consume", topic, "--group", topic),
                *("--format", "%p %s\\n", *times, *arguments),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "STRANDLINE_BOOTSTRAP": address},
        )
        self._lines: SimpleQueue[str] = SimpleQueue()
        self._thread = Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.rstrip())

    def lines(self) -> list[str]:
        """What was printed since the last call; waits a moment for it."""
        found: list[str] = []
        with suppress(Empty):
            found.append(self._lines.get(timeout=0.05))
            while True:
                found.append(self._lines.get_nowait())
        return found

    def end(self) -> str:
        """Ctrl-C; what it said on standard error but for what it waits for."""
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(DEADLINE_S) == 0
        assert self.process.stderr is not None
        said = self.process.stderr.readlines()
        assert said.pop().startswith("Stopping when what was printed is committed")
        return "".join(said)

    def close(self) -> None:
        """Nothing of it is left."""
        if self.process.poll() is None:
            self.process.kill()
        self._thread.join(DEADLINE_S)
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()
        self.process.wait(DEADLINE_S)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a broker listens that takes short sessions."""
    data = tmp_path_factory.mktemp("data")
    serving = Serving("serve", "--data-dir", str(data), "--listen", "127.0.0.1:0", *SETTINGS)
    yield serving.address
    serving.stop()


@pytest.fixture
def begin(address: str) -> Iterator[Callable[..., Reader]]:
    readers: list[Reader] = []

    def start(topic: str, *arguments: str) -> Reader:
        readers.append(Reader(address, topic, *arguments))
        return readers[-1]

    yield start
    for each in readers:
        each.close()


def write(spawn: Run, topic: str, word: str) -> list[str]:
    """One record for each partition; the lines that readers print of them."""
    for partition in range(PARTITIONS):
        spawn("produce", topic, "--partition", str(partition), stdin=f"{word}\n".encode())
    return [f"{partition} {word}" for partition in range(PARTITIONS)]


def until_printed(expected: Sequence[str], *readers: Reader) -> list[set[str]]:
    """Wait until the readers have printed these lines; which lines each of them has printed."""
    printed: list[set[str]] = [set() for _ in readers]
    deadline = time.monotonic() + DEADLINE_S
    while not set(expected) <= set().union(*printed):
        assert time.monotonic() < deadline, printed
        for lines, reader in zip(printed, readers, strict=True):
            lines.update(reader.lines())
    return printed


def until_members(spawn: Run, topic: str, count: int) -> list[dict[str, object]]:
    """Wait until so many members share the topic, each with a part."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        assert time.monotonic() < deadline
        found = spawn("groups", "describe", topic, "--json")
        if found.code == 0:
            members: list[dict[str, object]] = found.json["members"]
            if found.json["state"] == "Stable" and len(members) == count:
                assert all(each["partitions"] for each in members)
                return members


def test_two_share_and_hand_over(begin: Callable[..., Reader], spawn: Run, name: str) -> None:
    spawn("topics", "create", name, "--partitions", str(PARTITIONS))
    one = begin(name)
    until_printed(write(spawn, name, "first"), one)
    two = begin(name)
    until_members(spawn, name, 2)
    by_one, by_two = until_printed(write(spawn, name, "shared"), one, two)
    assert by_one
    assert by_two
    assert not by_one & by_two
    assert two.end() == ""
    (again,) = until_printed(write(spawn, name, "alone"), one)
    assert {line for line in again if "shared" in line} <= by_one  # what two printed is committed
    assert one.end() == ""
    assert spawn("groups", "describe", name, "--json").json["members"] == []


def test_a_member_that_is_killed_is_replaced(
    begin: Callable[..., Reader], spawn: Run, name: str
) -> None:
    spawn("topics", "create", name, "--partitions", str(PARTITIONS))
    one, two = begin(name), begin(name)
    until_members(spawn, name, 2)
    until_printed(write(spawn, name, "shared"), one, two)
    two.process.kill()
    two.process.wait(DEADLINE_S)
    until_printed(write(spawn, name, "alone"), one)
    assert len(until_members(spawn, name, 1)) == 1
    assert one.end() == ""


def test_a_command_and_librdkafka_share_a_group(
    address: str, begin: Callable[..., Reader], spawn: Run, name: str
) -> None:
    spawn("topics", "create", name, "--partitions", str(PARTITIONS))
    ours = begin(name, "-X", "partition.assignment.strategy=cooperative-sticky")
    until_printed(write(spawn, name, "first"), ours)
    theirs = LibrdkafkaConsumer(
        {
            "bootstrap.servers": address,
            "group.id": name,
            "partition.assignment.strategy": "cooperative-sticky",
        }
    )
    try:
        theirs.subscribe([name])
        deadline = time.monotonic() + DEADLINE_S
        while len(theirs.assignment()) != PARTITIONS // 2:
            assert time.monotonic() < deadline
            theirs.poll(0.1)
        members = until_members(spawn, name, 2)
        assert {each["client_id"] for each in members} == {"strandline-cli", "rdkafka"}
    finally:
        theirs.close()
    until_printed(write(spawn, name, "alone"), ours)
    assert ours.end() == ""


def test_commands_of_both_protocols_share_a_group(
    begin: Callable[..., Reader], spawn: Run, name: str
) -> None:
    spawn("topics", "create", name, "--partitions", str(PARTITIONS))
    first = begin(name, "-X", "partition.assignment.strategy=range")
    until_printed(write(spawn, name, "first"), first)
    second = begin(name, "--protocol", "consumer")
    until_members(spawn, name, 2)
    until_printed(write(spawn, name, "shared"), first, second)
    described = spawn("groups", "describe", name, "--json").json
    assert described["type"] == "consumer"
    assert {each["protocol"] for each in described["members"]} == {"classic", "consumer"}
    assert first.end() == ""
    until_printed(write(spawn, name, "alone"), second)
    assert second.end() == ""
    at_end = spawn(
        *("consume", name, "--group", name, "-X", "group.protocol=consumer", "-e"),
    )
    assert (at_end.code, at_end.out) == (0, "")


def test_settings_that_are_none_are_refused(spawn: Run, name: str) -> None:
    for arguments, sentence in (
        (("-X", "fetch.size=1"), "There is no setting 'fetch.size' here"),
        (("-X", "session.timeout.ms=soon"), "session.timeout.ms takes milliseconds"),
        (("-X", "auto.offset.reset=none-such"), "auto.offset.reset takes earliest, latest, none"),
        (("--partition", "0", "-X", "session.timeout.ms=2000"), "-X is for members"),
        (("--partition", "0", "--protocol", "consumer"), "--protocol is for members"),
        (("--protocol", "consumer", "-X", "session.timeout.ms=2000"), "cannot be set with"),
    ):
        ended = spawn("consume", name, "--group", name, *arguments)
        assert (ended.code, sentence in ended.err) == (2, True), ended.err


def test_a_reset_of_latest_prints_what_comes_from_now_on(
    begin: Callable[..., Reader], spawn: Run, name: str
) -> None:
    spawn("topics", "create", name, "--partitions", str(PARTITIONS))
    write(spawn, name, "before")
    reader = begin(name, "-X", "auto.offset.reset=latest", "-X", "group.instance.id=one")
    (member,) = until_members(spawn, name, 1)
    assert member["instance_id"] == "one"
    # Its positions are looked up after it is a member: what is written until then may be skipped.
    deadline = time.monotonic() + DEADLINE_S
    printed: set[str] = set()
    while not printed:
        assert time.monotonic() < deadline
        write(spawn, name, "after")
        printed.update(reader.lines())
    assert all(line.endswith("after") for line in printed)
    assert reader.end() == ""
