"""`python -m bench.takeover`: what a takeover of many partitions does to a topic apart from them.

Two brokers over ZooKeeper, each a process of its own in which an fsync takes a given time. Broker 1
leads all partitions of some topics and is killed; when its session has expired, broker 2 becomes
the controller and leads them. A topic apart, led by broker 2 alone, is written to all the while,
one record every 5 ms. Latency counts from when a record was due, so a broker that stands still for
a second counts with 200 records and not with one. When broker 2 leads everything, one record goes
to each of its new partitions: the first of an epoch may cost more.

Counted are the records that were due from shortly before the session can expire until two seconds
after all partitions were written to.

Several source trees are measured in turns: `--source before=PATH --source after=PATH`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench.brokers import Launch
from bench.environment import processor_name
from bench.kafka_jars import zookeeper_jars
from bench.native import default_cache
from bench.raw_connection import RawConnection
from bench.readiness import free_port, wait_until_ready
from bench.topics import Topics
from bench.zookeeper import ZooKeeper
from strandline.errors import ErrorCode
from strandline.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from strandline.records.builder import build_batch
from strandline.records.record import Record
from strandline.types import NO_OFFSET

PARTITIONS: Final = 1000
ROUNDS: Final = 3
DELAYS_MS: Final = (1.0, 10.0)
TOPIC_PARTITIONS: Final = 50
SESSION_S: Final = 2.0
BEFORE_SESSION_END_S: Final = 0.25
EVERY_S: Final = 0.005
PROBE_EVERY_S: Final = 0.05
AFTERWARDS_S: Final = 2.0
PATIENCE_S: Final = 300.0
PRODUCE_VERSION: Final = 9
_MOVED: Final = "moved"
_APART: Final = "apart"

BROKER: Final = """
import os, signal, sys, time
waits_s = [0.0]

def slow_fsync(descriptor):
    if waits_s[0]:
        time.sleep(waits_s[0])

os.fsync = os.fdatasync = slow_fsync
delay_s = float(sys.argv.pop(1)) / 1000
signal.signal(signal.SIGUSR1, lambda *_: waits_s.__setitem__(0, delay_s))

from strandline.cli.main import main
main()
"""
"""What a broker's process runs, on the source tree that is measured. In place of each fsync it
waits as long as it is told, from SIGUSR1 on, so that the topics are made in time; the figures do
not depend on the machine's disk and on who else uses it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    options = _parser().parse_args(arguments)
    sources = dict(each.split("=", 1) for each in options.source) or {"here": str(_here())}
    jars = zookeeper_jars(options.cache_dir)
    for delay_ms in options.fsync_ms:
        runs: dict[str, list[list[float]]] = {label: [] for label in sources}
        for _ in range(options.rounds):
            for label, source in sources.items():
                runs[label].append(_measure(Path(source), delay_ms, options.partitions, jars))
        for label, rounds in runs.items():
            print(_line(f"{options.partitions:,} partitions, fsync {delay_ms:g} ms", label, rounds))
    with open("/proc/cpuinfo", encoding="utf-8") as cpuinfo:
        name = processor_name(cpuinfo.read())
    load = os.getloadavg()[0]
    print(f"on {os.cpu_count()} x {name}; {options.rounds} rounds; load average {load:.1f}")
    return 0


def _measure(source: Path, delay_ms: float, partitions: int, jars: Path) -> list[float]:
    """Latencies, in seconds, of the topic apart."""
    topics = [f"{_MOVED}{number}" for number in range(partitions // TOPIC_PARTITIONS)]
    with _zookeeper(jars) as address, tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        ports = free_port(), free_port()
        with (
            _broker(source, 1, ports[0], delay_ms, address, directory) as first,
            _broker(source, 2, ports[1], delay_ms, address, directory) as second,
        ):
            deadline = time.monotonic() + PATIENCE_S
            if not all(wait_until_ready(port, deadline=deadline, brokers=2) for port in ports):
                raise SystemExit(f"The brokers of {source} did not start.")
            admin = Topics(f"127.0.0.1:{ports[1]}")
            for topic in topics:
                admin.create(topic, TOPIC_PARTITIONS, leader_port=ports[0], replicas=2)
            admin.create(_APART, 1, leader_port=ports[1], replicas=1)
            for broker in (first, second):
                broker.send_signal(signal.SIGUSR1)
            return list(_latencies(first, ports[1], topics))


@contextmanager
def _zookeeper(jars: Path) -> Iterator[str]:
    directory = Path(tempfile.mkdtemp(dir="/dev/shm"))
    launch = Launch((), None, Path(), jars)
    server = ZooKeeper("ZooKeeper", directory / "zookeeper", launch)
    server.start()
    try:
        yield server.address
    finally:
        server.stop()
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def _broker(
    source: Path, node: int, port: int, delay_ms: float, zookeeper: str, directory: str
) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", BROKER, str(delay_ms), "broker"]
    command += ["--zookeeper", zookeeper, "--id", str(node), "--listen", f"127.0.0.1:{port}"]
    command += ["--data-dir", f"{directory}/{node}"]
    for setting in (
        f"zookeeper.session.timeout.ms={SESSION_S * 1000:.0f}",
        "auto.leader.rebalance.enable=false",
    ):
        command += ["--set", setting]
    environment = {**os.environ, "PYTHONPATH": str(source / "src")}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _latencies(first: subprocess.Popen[bytes], port: int, topics: Sequence[str]) -> Iterator[float]:
    """One for each record that was due, from shortly before broker 1's session can expire."""
    apart = _Producer(port)
    for _ in range(20):
        apart.produce(_APART, [0])
    first.kill()
    time.sleep(SESSION_S - BEFORE_SESSION_END_S)
    takeover = _Takeover(port, topics)
    takeover.start()
    began = due = time.perf_counter()
    while takeover.ended_at is None or due < takeover.ended_at + AFTERWARDS_S:
        if due - began > PATIENCE_S:
            raise SystemExit("Broker 2 did not take the partitions over.")
        time.sleep(max(0.0, due - time.perf_counter()))
        if apart.produce(_APART, [0]):
            raise SystemExit("A record to the topic apart was refused.")
        yield time.perf_counter() - due
        due += EVERY_S
    takeover.join()
    apart.close()


class _Takeover(threading.Thread):
    """Writes to the partitions that move, over a connection of its own, until all took a record."""

    def __init__(self, port: int, topics: Sequence[str]) -> None:
        super().__init__(daemon=True)
        self._producer = _Producer(port)
        self._topics = topics
        self.ended_at: float | None = None

    def run(self) -> None:
        """A probe of one partition of each topic now and then; then all of them."""
        left = list(self._topics)
        while left:
            if self._producer.produce(left[-1], [TOPIC_PARTITIONS - 1]):
                time.sleep(PROBE_EVERY_S)
            elif not self._producer.produce(left[-1], range(TOPIC_PARTITIONS)):
                left.pop()
        self.ended_at = time.perf_counter()
        self._producer.close()


class _Producer:
    """One connection; one request at a time."""

    def __init__(self, port: int) -> None:
        self._connection = RawConnection(port)
        self._record = build_batch([Record(NO_OFFSET, 1_700_000_000_000, None, b"." * 100)])

    def produce(self, topic: str, partitions: Sequence[int]) -> list[ErrorCode]:
        """One record to each, with acks=1; the refusals."""
        data = [
            PartitionProduceData(index=each, records=memoryview(bytearray(self._record)))
            for each in partitions
        ]
        request = ProduceRequest(
            acks=1,
            timeout_ms=30_000,
            topic_data=[TopicProduceData(name=topic, partition_data=data)],
        )
        answer = self._connection.answer(request, PRODUCE_VERSION)
        codes = [p.error_code for t in answer.responses for p in t.partition_responses]
        return [ErrorCode(code) for code in codes if code]

    def close(self) -> None:
        self._connection.close()


def _line(what: str, label: str, rounds: list[list[float]]) -> str:
    took = statistics.median(len(each) * EVERY_S for each in rounds)

    def median_of(quantile: float) -> str:
        values = [sorted(each)[min(len(each) - 1, int(quantile * len(each)))] for each in rounds]
        shown = ", ".join(f"{1000 * value:.0f}" for value in values)
        return f"{1000 * statistics.median(values):.0f} ms ({shown})"

    return (
        f"{what}, {label}: p50 {median_of(0.5)}, p99 {median_of(0.99)}, "
        f"longest {median_of(1.0)}; took {took:.1f} s"
    )


def _here() -> Path:
    return Path(__file__).resolve().parents[1]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.takeover", description=(__doc__ or "").split("\n")[0]
    )
    add = parser.add_argument
    add(
        "--partitions",
        type=int,
        default=PARTITIONS,
        help="that broker 1 leads, 50 a topic (default: 1000)",
    )
    add("--rounds", type=int, default=ROUNDS, help="of each source tree (default: 3)")
    add(
        "--fsync-ms",
        type=float,
        nargs="+",
        default=list(DELAYS_MS),
        help="how long an fsync takes (default: 1 10)",
    )
    add(
        "--source",
        action="append",
        default=[],
        metavar="LABEL=PATH",
        help="a source tree to measure, with its kernels compiled; this one by default",
    )
    add("--cache-dir", type=Path, default=default_cache(), help="ZooKeeper's jars")
    return parser


if __name__ == "__main__":
    sys.exit(main())
