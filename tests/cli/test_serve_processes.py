"""Brokers in processes of their own under one supervisor, as people start them."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message, Producer

from strandline.lakehouse.tables.definition import TableSpec
from strandline.lakehouse.tables.spec import save_spec
from tests.cli.conftest import COMMAND, DEADLINE_S, run_here
from tests.faults.processes import ServerProcess, until

SETTINGS = ("offsets.topic.num.partitions=1", "zookeeper.session.timeout.ms=3000")
BATCH = 200


class Supervised(ServerProcess):
    """`strandline serve`, with or without processes, on one directory."""

    def __init__(self, directory: Path) -> None:
        super().__init__("serve", directory / "serve.log")
        self.data = directory / "data"

    def serve(self, *more: str) -> str:
        """Start, and wait for it; returns the first broker's address."""
        settings = [part for each in SETTINGS for part in ("--set", each)]
        arguments = ["--data-dir", str(self.data), "--listen", "127.0.0.1:0", *settings, *more]
        self.start([*COMMAND, "serve", "--brokers", "3", *arguments])
        self.said("ready in")
        return self.said(r"PLAINTEXT://(127\.0\.0\.1:\d+)  broker 1")[1]

    def said(self, pattern: str) -> re.Match[str]:
        return self.wait_for(lambda text: re.search(pattern, text), pattern)

    def broker_pid(self, broker_id: int) -> int:
        """Of the newest process of a broker."""
        return int(re.findall(rf"Broker {broker_id} is process (\d+)\.", self.output())[-1])

    def interrupt(self) -> int:
        """Ctrl-C; returns the status."""
        process = self._running()
        process.send_signal(signal.SIGINT)
        return process.wait(DEADLINE_S)


@pytest.fixture
def supervised() -> Iterator[Supervised]:
    with tempfile.TemporaryDirectory(prefix="procs") as directory:  # sockets have short paths
        running = Supervised(Path(directory))
        yield running
        running.kill()


def is_gone(pid: int) -> bool:
    """Whether there is no such process; a child of ours or of init that has ended counts."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def partition(address: str) -> Any:
    (topic,) = run_here(["topics", "describe", "orders", "--json"], address).json
    return topic["partitions"][0]


def produce(address: str, begin: int, amid: Callable[[], None] = lambda: None) -> None:
    """Write numbers with acks=all; something happens in the middle. Every one is acknowledged."""
    failed: list[Any] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error:
            failed.append(error)

    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 0})
    for number in range(begin, begin + BATCH):
        if number == begin + BATCH // 2:
            producer.poll(0.1)
            amid()
        producer.produce("orders", b"%d" % number, on_delivery=delivered)
    assert producer.flush(DEADLINE_S) == 0
    assert not failed


def tables_on_page(supervised: Supervised) -> Any:
    """What the page beside the brokers shows of tables."""
    where = supervised.said(r"page +(http://\S+)")[1]
    with urllib.request.urlopen(f"{where}api/tables", timeout=DEADLINE_S) as answer:
        return json.load(answer)["tables"]


def test_a_life_in_processes(supervised: Supervised, tmp_path: Path) -> None:
    save_spec(TableSpec(name="orders", topics=("orders",), location=str(tmp_path / "orders")))
    page = ("--ui", "--ui-port", "0", "--tables", str(tmp_path))
    first = supervised.serve("--processes", *page)
    pids = [supervised.broker_pid(number) for number in (1, 2, 3)]
    addresses = ",".join(re.findall(r"PLAINTEXT://(127[.\d:]+)", supervised.output()))
    mode = (supervised.data / "metadata.sock").stat().st_mode
    assert (stat.S_ISSOCK(mode), stat.S_IMODE(mode)) == (True, 0o600)
    config = ("--config", "min.insync.replicas=2")
    assert run_here(["topics", "create", "orders", *config], first).code == 0

    [table] = tables_on_page(supervised)
    assert (table["name"], table["topics"]) == ("orders", ["orders"])

    # The leader is killed while records are written: another leads, nothing is lost, it returns.
    leader = partition(first)["leader"]
    produce(addresses, 0, lambda: os.kill(supervised.broker_pid(leader), signal.SIGKILL))
    supervised.said(rf"The process of broker {leader} was ended by SIGKILL; it is started again")
    supervised.said(f"Broker {leader} is ready again")
    assert supervised.broker_pid(leader) not in pids
    complete = "all replicas in sync"
    until(lambda: len(partition(addresses)["in_sync"]) == 3, complete, seconds=DEADLINE_S)

    # One hangs: its session ends by silence, the others go on; it comes back as it was.
    hung = partition(addresses)["leader"]
    os.kill(supervised.broker_pid(hung), signal.SIGSTOP)
    supervised.said(f"Nothing was heard of broker {hung} for 3.0 s")
    produce(addresses, BATCH)
    os.kill(supervised.broker_pid(hung), signal.SIGCONT)
    until(lambda: len(partition(addresses)["in_sync"]) == 3, complete, seconds=DEADLINE_S)

    # One is told to stop: it stops cleanly, and is started again.
    for broker, number in ((1, signal.SIGTERM), (2, signal.SIGHUP)):
        before = supervised.broker_pid(broker)
        os.kill(before, number)
        supervised.said(f"The process of broker {broker} ended with status 0; it is started again")
        until(lambda: supervised.broker_pid(broker) != before, "a new process", seconds=DEADLINE_S)  # noqa: B023 - called here
        until(lambda: len(partition(addresses)["in_sync"]) == 3, complete, seconds=DEADLINE_S)

    out = run_here(["consume", "orders", "-e"], addresses).out
    assert sorted(map(int, out.split())) == list(range(2 * BATCH))
    lines = supervised.output().splitlines()
    assert any(re.search(r"INFO broker 2: ", line) for line in lines)
    assert not any("Traceback" in line for line in lines), supervised.complaint()

    # One Ctrl-C ends all, and one process may serve what three have written.
    pids = [supervised.broker_pid(number) for number in (1, 2, 3)]
    assert supervised.interrupt() == 0, supervised.complaint()
    assert "Stopped cleanly." in supervised.output()
    assert all(map(is_gone, pids))
    assert not (supervised.data / "metadata.sock").exists()
    one = supervised.serve(*page)
    assert "not clean" not in supervised.output()
    assert tables_on_page(supervised) == [table]
    assert partition(one)["high_watermark"] == 2 * BATCH
    assert supervised.interrupt() == 0

    # Back in processes, whose supervisor is killed: they end.
    supervised.serve("--processes")
    pids = [supervised.broker_pid(number) for number in (1, 2, 3)]
    supervised.kill()
    until(lambda: all(map(is_gone, pids)), "the brokers' end", seconds=DEADLINE_S)


def test_an_address_in_use_ends_the_start_with_its_sentence(tmp_path: Path) -> None:
    deep = tmp_path / ("long" * 30)  # no socket could have such a path
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = subprocess_of("--data-dir", str(deep), "--listen", f"127.0.0.1:{port}")
    assert ended.returncode == 1
    assert f"127.0.0.1:{port} cannot be bound: Address already in use. " in ended.stderr
    assert "--listen" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert all(is_gone(int(pid)) for pid in re.findall(r"is process (\d+)", ended.stderr))


def subprocess_of(*arguments: str) -> Any:
    return subprocess.run(
        [sys.executable, "-m", "strandline.cli", "serve", "--processes", *arguments],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


def test_faults_are_for_one_process() -> None:
    ended = run_here(["serve", "--processes", "--faults"])
    assert ended.code == 2
    assert "--faults is for brokers in one process: leave out --processes." in ended.err
