"""`python -m bench.takeover`: what a takeover of many partitions does to a topic apart from them.

Two brokers in a process of their own, where each fsync takes a given time. Broker 1 leads all
partitions of a topic and is killed; broker 2 takes them over. A topic apart, led by broker 2 alone,
is written to all the while, one record every 5 ms. Latency counts from when a record was due, so a
broker that stands still for a second counts with 200 records and not with one. When broker 2 leads
everything, one record goes to each of its new partitions: the first of an epoch may cost more.

Several source trees are measured in turns: `--source before=PATH --source after=PATH`.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from struct import Struct
from typing import Any, Final

from bench.environment import processor_name
from strandline.errors import ErrorCode
from strandline.protocol.apis import KNOWN, ApiKey
from strandline.protocol.framing import parse_response_header, request_frame
from strandline.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from strandline.protocol.schema import decode_response
from strandline.records.builder import build_batch
from strandline.records.record import Record
from strandline.types import NO_OFFSET

PARTITIONS: Final = 1000
ROUNDS: Final = 3
DELAYS_MS: Final = (1.0, 10.0)
REQUEST_PARTITIONS: Final = 50
"""So many has a topic."""
EVERY_S: Final = 0.005
AFTERWARDS_S: Final = 2.0
PATIENCE_S: Final = 300.0
PRODUCE_VERSION: Final = 9
_SIZE: Final = Struct(">i")
_MOVED: Final = "moved"
_APART: Final = "apart"

BROKERS: Final = """
import os, sys, time
delay_s = float(sys.argv[1]) / 1000
def no_fsync(descriptor):
    pass

def slow_fsync(descriptor):
    time.sleep(delay_s)

os.fsync = os.fdatasync = no_fsync

from strandline.testing.cluster import Cluster

with Cluster(2, settings={"auto.leader.rebalance.enable": "false"}) as cluster:
    count = int(sys.argv[2])
    for number in range(count // 50):
        cluster.create_topic(f"moved{number}", assignment={n: [1, 2] for n in range(50)})
    cluster.create_topic("apart", assignment={0: [2]})
    cluster.wait_until_in_sync()
    os.fsync = os.fdatasync = slow_fsync
    print(cluster.control.addresses[2], flush=True)
    sys.stdin.readline()
    cluster.kill(1)
    sys.stdin.readline()
    os.fsync = os.fdatasync = no_fsync
"""
"""What the child process runs, on the source tree that is measured. In place of each fsync it waits
as long as it is told; so the figures do not depend on the machine's disk and on who else uses it.
Nothing waits before the takeover, so that the topic is made in time."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    options = _parser().parse_args(arguments)
    sources = dict(each.split("=", 1) for each in options.source) or {"here": str(_here())}
    for delay_ms in options.fsync_ms:
        runs: dict[str, list[list[float]]] = {label: [] for label in sources}
        for _ in range(options.rounds):
            for label, source in sources.items():
                runs[label].append(_measure(Path(source), delay_ms, options.partitions))
        for label, rounds in runs.items():
            print(_line(f"{options.partitions:,} partitions, fsync {delay_ms:g} ms", label, rounds))
    with open("/proc/cpuinfo", encoding="utf-8") as cpuinfo:
        print(f"on {os.cpu_count()} x {processor_name(cpuinfo.read())}; {options.rounds} rounds")
    return 0


def _measure(source: Path, delay_ms: float, partitions: int) -> list[float]:
    """Latencies, in seconds, of the topic apart from the kill to the end of the takeover."""
    environment = {**os.environ, "PYTHONPATH": str(source / "src")}
    command = [sys.executable, "-c", BROKERS, str(delay_ms), str(partitions)]
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        host, _, port = child.stdout.readline().strip().rpartition(":")
        if not port:
            raise SystemExit(f"The brokers of {source} did not start.")
        apart, moved = _Producer(host, int(port)), _Producer(host, int(port))
        for _ in range(20):
            apart.produce(_APART, [0])
        child.stdin.write("kill\n")
        child.stdin.flush()
        latencies = list(_latencies(apart, moved, partitions))
        apart.close()
        moved.close()
        child.stdin.write("end\n")
        child.stdin.flush()
        child.wait(PATIENCE_S)
    return latencies


def _latencies(apart: _Producer, moved: _Producer, partitions: int) -> Iterator[float]:
    """One for each record that was due, until some time after all partitions were written to."""
    began = due = time.perf_counter()
    ends_at: float | None = None
    topics = [f"{_MOVED}{number}" for number in range(partitions // REQUEST_PARTITIONS)]
    probed = topics[0], topics[len(topics) // 2], topics[-1]
    next_probe = began
    while ends_at is None or due < ends_at:
        time.sleep(max(0.0, due - time.perf_counter()))
        apart.produce(_APART, [0])
        now = time.perf_counter()
        yield now - due
        due += EVERY_S
        if ends_at is None and now >= next_probe:
            if now - began > PATIENCE_S:
                raise SystemExit("Broker 2 did not take the partitions over.")
            next_probe = now + 0.1
            if not any(moved.produce(topic, [REQUEST_PARTITIONS - 1]) for topic in probed):
                if any(moved.produce(topic, range(REQUEST_PARTITIONS)) for topic in topics):
                    continue  # one is not led yet
                ends_at = time.perf_counter() + AFTERWARDS_S


class _Producer:
    """One connection; one request at a time."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), PATIENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
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
        api = KNOWN[ApiKey.PRODUCE]
        chunks = request_frame(api, PRODUCE_VERSION, 1, "bench", request)
        self._socket.sendall(b"".join(bytes(each) for each in chunks))  # type: ignore[arg-type]
        (size,) = _SIZE.unpack(self._exactly(_SIZE.size))
        frame = self._exactly(size)
        _, position = parse_response_header(memoryview(frame), api, PRODUCE_VERSION)
        answer: Any = decode_response(ApiKey.PRODUCE, PRODUCE_VERSION, frame, position)
        codes = [p.error_code for t in answer.responses for p in t.partition_responses]
        return [ErrorCode(code) for code in codes if code]

    def close(self) -> None:
        self._socket.close()

    def _exactly(self, size: int) -> bytes:
        data = self._socket.recv(size, socket.MSG_WAITALL)
        if len(data) != size:
            raise SystemExit("The broker closed the connection.")
        return data


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
    return parser


if __name__ == "__main__":
    sys.exit(main())
