"""A real cluster in a process that may open few files: it serves, and refuses what is too much."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.broker.harness import Wire, works

PATIENCE_S = 400.0
PARTITIONS, CLIENTS, ROUNDS = 200, 10, 3


@dataclass
class Serving:
    """`strandline serve` in a process of its own."""

    process: subprocess.Popen[str]
    port: int
    errors: Path
    ready: list[str]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def log(self) -> str:
        return self.errors.read_text()

    def open_files(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def handles(self) -> dict[str, Any]:
        """What the first broker says of them."""
        command = [sys.executable, "-m", "strandline.cli", "-b", self.address, "status", "--json"]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        found: dict[str, Any] = next(iter(json.loads(told).values()))["handles"]
        return found


@contextmanager
def serving(
    directory: Path, limit: int, *arguments: str, prepare: Callable[[], object] = int
) -> Iterator[Serving]:
    """Serve with so many open files at most (the hard limit, too); stopped cleanly at the end.

    `prepare` is called in the new process before it becomes the command.
    """

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(limit, 64), limit))
        prepare()

    errors = directory / "errors"
    with errors.open("w") as stream:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "strandline.cli", "serve"),
                *("--listen", "127.0.0.1:0", "--data-dir", str(directory / "data")),
                *arguments,
            ],
            stdout=subprocess.PIPE,
            stderr=stream,
            text=True,
            preexec_fn=limited,
        )
    try:
        assert process.stdout is not None
        ready: list[str] = []
        for line in process.stdout:
            ready.append(line)
            if line.startswith("ready"):
                break
        assert process.poll() is None, errors.read_text()
        (first, *_) = (line for line in ready if "listening" in line)
        served = Serving(process, int(first.split()[1].rpartition(":")[2]), errors, ready)
        yield served
        process.send_signal(signal.SIGTERM)
        rest = process.stdout.read()
        assert process.wait() == 0, (rest, served.log()[-2000:])
        assert "Stopped cleanly" in rest
    finally:
        process.kill()
        with process:
            pass


def until(condition: object, what: str) -> None:
    """Wait until a function says yes."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


class Group:
    """Consumers of one group in threads."""

    def __init__(self, address: str, topic: str, count: int) -> None:
        self.seen: set[tuple[int | None, int | None]] = set()
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._consume, args=(address, topic)) for _ in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def _consume(self, address: str, topic: str) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": "readers",
                "auto.offset.reset": "earliest",
                "log_level": 0,
            }
        )
        consumer.subscribe([topic])
        while not self._stop.is_set():
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                self.seen.add((message.partition(), message.offset()))
        consumer.close()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


@pytest.mark.timeout(900)
def test_three_brokers_in_256_open_files(tmp_path: Path) -> None:
    """A Mac's default. It was the end of the cluster when the first group came: `Every log
    directory is offline`, `The metadata journal failed before`."""
    with serving(tmp_path, 256, "--brokers", "3") as served:
        assert any("256 open files" in line for line in served.ready)
        admin = AdminClient({"bootstrap.servers": served.address, "log_level": 0})
        topic = NewTopic("many", PARTITIONS, 3)
        admin.create_topics([topic], request_timeout=PATIENCE_S)["many"].exception()

        def has_leaders() -> bool:
            partitions = admin.list_topics("many", timeout=60).topics["many"].partitions
            return len(partitions) == PARTITIONS and all(
                each.leader > 0 for each in partitions.values()
            )

        until(has_leaders, "leaders")
        failed: list[KafkaError] = []
        written: set[tuple[int | None, int | None]] = set()

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failed.append(error)
            else:
                written.add((message.partition(), message.offset()))

        producer = Producer(
            {
                "bootstrap.servers": served.address,
                "acks": "all",
                "message.timeout.ms": int(PATIENCE_S * 1000),
                "log_level": 0,
            }
        )
        group = Group(served.address, "many", CLIENTS)
        try:
            for number in range(PARTITIONS * ROUNDS):
                producer.produce(
                    "many", b"%d" % number, partition=number % PARTITIONS, on_delivery=delivered
                )
                producer.poll(0)
            assert producer.flush(PATIENCE_S) == 0
            assert not failed
            until(lambda: written <= group.seen, "every acknowledged record is read")
            assert served.open_files() <= 256
            handles = served.handles()
            assert handles["limit"] == 256
            assert handles["files"] <= handles["files_max"] < 256
            assert handles["opened"] > PARTITIONS * 3
        finally:
            group.stop()
        assert "Traceback" not in served.log()
        assert "offline" not in served.log()
        assert "failed before" not in served.log()


def test_connections_beyond_the_reserve_are_refused_and_the_others_served(tmp_path: Path) -> None:
    with serving(tmp_path, 128) as served:
        with Wire(served.port) as known:
            known.create_topic("orders")
            crowd: list[socket.socket] = []
            try:
                address = ("127.0.0.1", served.port)
                crowd += [socket.create_connection(address) for _ in range(200)]
                until(lambda: any(map(_is_closed, crowd)), "a connection is refused")
                known.create_topic("more")  # the old one is served
                assert served.open_files() <= 128
            finally:
                for each in crowd:
                    each.close()
            until(lambda: _works(served.port), "room is used again")
            handles = served.handles()
            assert handles["refused_connections"] > 0
        refusals = [line for line in served.log().splitlines() if "refused" in line]
        assert refusals
        assert len(refusals) < 10, "the same message once a minute"


def _is_closed(sock: socket.socket) -> bool:
    sock.setblocking(False)
    try:
        return sock.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def _works(port: int) -> bool:
    try:
        return works(port)
    except ConnectionError:
        return False
