"""`python -m bench.slow_disk`: what a disk costs on which each fsync takes long.

Three brokers in a process of their own, where each fsync takes a given time, from before their
start: how long until they are ready, how long a topic of 50 partitions with three replicas takes,
the latency of a produce with acks=all and one record, and how long a partition cannot be written to
after its leader was killed. What the figures add to those without delay is what waits for the disk.

Several source trees are measured in turns: `--source before=PATH --source after=PATH`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaError, Message, Producer

from bench.environment import processor_name

RECORDS: Final = 500
ROUNDS: Final = 3
DELAYS_MS: Final = (0.0, 1.0, 10.0, 30.0)
EVERY_S: Final = 0.01
PATIENCE_S: Final = 300.0

BROKERS: Final = """
import os, sys, time
delay_s = float(sys.argv[1]) / 1000

def slow_fsync(descriptor):
    time.sleep(delay_s)

os.fsync = os.fdatasync = slow_fsync

from strandline.testing.cluster import Cluster

began = time.perf_counter()
with Cluster(3, settings={"auto.leader.rebalance.enable": "false"}) as cluster:
    ready_s = time.perf_counter() - began
    cluster.create_topic("t", assignment={0: [1, 2, 3]})
    cluster.wait_until_in_sync()
    began = time.perf_counter()
    cluster.create_topic("many", assignment={n: [1, 2, 3] for n in range(50)})
    cluster.wait_until_in_sync()
    made_s = time.perf_counter() - began
    print(ready_s, made_s, cluster.bootstrap_servers, flush=True)
    sys.stdin.readline()
    cluster.kill(1)
    sys.stdin.readline()
"""
"""What the child process runs, on the source tree that is measured. In place of each fsync it waits
as long as it is told; so the figures do not depend on the machine's disk."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One round, in seconds."""

    ready: float
    made: float
    """From the request for a topic of 50 partitions to all of its replicas in sync."""
    latencies: list[float]
    failover: float
    """From the kill to the first acknowledgement of a record sent after it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    options = _parser().parse_args(arguments)
    sources = dict(each.split("=", 1) for each in options.source) or {"here": str(_here())}
    load = os.getloadavg()[0]
    for delay_ms in options.fsync_ms:
        runs: dict[str, list[Measured]] = {label: [] for label in sources}
        for _ in range(options.rounds):
            for label, source in sources.items():
                runs[label].append(_measure(Path(source), delay_ms, options.records))
        for label, rounds in runs.items():
            print(_line(f"fsync {delay_ms:g} ms, {label}", rounds), flush=True)
    with open("/proc/cpuinfo", encoding="utf-8") as cpuinfo:
        print(
            f"on {os.cpu_count()} x {processor_name(cpuinfo.read())}; {options.rounds} rounds of "
            f"{options.records} records; load {load:.1f} at the start"
        )
    return 0


def _measure(source: Path, delay_ms: float, records: int) -> Measured:
    environment = {**os.environ, "PYTHONPATH": str(source / "src")}
    command = [sys.executable, "-c", BROKERS, str(delay_ms)]
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        told = child.stdout.readline().split()
        if not told:
            raise SystemExit(f"The brokers of {source} did not start.")
        ready, made, bootstrap = told
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "linger.ms": 0,
                "retry.backoff.ms": 10,
                "message.timeout.ms": int(PATIENCE_S * 1000),
                "log_level": 0,
            }
        )
        for _ in _latencies(producer, 20):
            pass
        latencies = list(_latencies(producer, records))
        child.stdin.write("kill\n")
        child.stdin.flush()
        # A record each moment: some of the first may still reach the leader that is killed.
        failover = max(_latencies(producer, 200))
        child.stdin.write("end\n")
        child.stdin.flush()
        child.wait(PATIENCE_S)
    return Measured(float(ready), float(made), latencies, failover)


def _latencies(producer: Producer, count: int) -> Iterator[float]:
    """Of records that are sent when they are due, one every `EVERY_S`."""
    done: list[float] = []

    def delivered_at(due: float, error: KafkaError | None) -> None:
        if error is not None:
            raise SystemExit(f"A record was not written: {error}")
        done.append(time.perf_counter() - due)

    due = time.perf_counter()
    for _ in range(count):
        while (left := due - time.perf_counter()) > 0:
            producer.poll(left)

        def delivered(error: KafkaError | None, _: Message, due: float = due) -> None:
            delivered_at(due, error)

        producer.produce("t", b"." * 100, partition=0, on_delivery=delivered)
        due += EVERY_S
    if producer.flush(PATIENCE_S):
        raise SystemExit("Not all records were written in time.")
    yield from done


def _line(what: str, rounds: list[Measured]) -> str:
    def median(values: list[float], unit: str) -> str:
        scale, digits = (1000, 0) if unit == "ms" else (1, 2)
        shown = ", ".join(f"{scale * value:.{digits}f}" for value in values)
        return f"{scale * statistics.median(values):.{digits}f} {unit} ({shown})"

    def quantile(share: float) -> list[float]:
        ordered = [sorted(each.latencies) for each in rounds]
        return [each[min(len(each) - 1, int(share * len(each)))] for each in ordered]

    return (
        f"{what}: ready {median([each.ready for each in rounds], 's')}, "
        f"50 partitions {median([each.made for each in rounds], 's')}, "
        f"produce p50 {median(quantile(0.5), 'ms')}, p99 {median(quantile(0.99), 'ms')}, "
        f"failover {median([each.failover for each in rounds], 's')}"
    )


def _here() -> Path:
    return Path(__file__).resolve().parents[1]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.slow_disk", description=(__doc__ or "").split("\n")[0]
    )
    add = parser.add_argument
    add("--records", type=int, default=RECORDS, help="in a round (default: 500)")
    add("--rounds", type=int, default=ROUNDS, help="of each source tree (default: 3)")
    add(
        "--fsync-ms",
        type=float,
        nargs="+",
        default=list(DELAYS_MS),
        help="how long an fsync takes (default: 0 1 10 30)",
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
