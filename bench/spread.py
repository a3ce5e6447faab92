"""Three brokers that all lead: what one process does, and what three under a supervisor do.

    python -m bench.spread --rounds 5

Each broker leads a topic of its own with one replica, and gets one-record requests (100 B, acks=1)
from a load generator of its own; their requests are added. The load generators share the machine's
processors with the brokers, as everything else on it does: the load average stands beside.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench import native
from bench.brokers import Launch
from bench.clusters import NODES, StrandlineCluster, StrandlineSupervised
from bench.topics import Topics

KINDS = (StrandlineCluster, StrandlineSupervised)
QUIET_S = 1.0
QUIET_SHARE = 0.05
REQUESTS = {"acks": 1, "records-per-batch": 1, "record-bytes": 100, "partitions": 1}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure in turns, and print each run and the medians."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--connections", type=int, default=6, help="of each load generator")
    parser.add_argument("--inflight", type=int, default=5)
    given = parser.parse_args(arguments)
    tools = native.build(native.default_cache())
    options = {
        **REQUESTS,
        "connections": given.connections,
        "inflight": given.inflight,
        "milliseconds": int(given.seconds * 1000),
        "warmup-ms": 1000,
    }
    rates: dict[str, list[float]] = {kind.kind: [] for kind in KINDS}
    for number in range(1, given.rounds + 1):
        for kind in KINDS:
            rate, cpu_us = _run(kind, tools, options)
            rates[kind.kind].append(rate)
            print(
                f"round {number}  {kind.kind:<22} {rate:>9,.0f} requests/s "
                f"{cpu_us:6.1f} us of CPU each, load average {os.getloadavg()[0]:.1f}",
                flush=True,
            )
    one, three = (rates[kind.kind] for kind in KINDS)
    ratios = [after / before for before, after in zip(one, three, strict=True)]
    print(
        f"medians: {statistics.median(one):,.0f} and {statistics.median(three):,.0f} requests/s; "
        f"three processes / one: {statistics.median(ratios):.2f}x "
        f"({min(ratios):.2f} to {max(ratios):.2f})"
    )
    return 0


def _run(
    kind: type[StrandlineCluster], tools: native.Tools, options: dict[str, int]
) -> tuple[float, float]:
    """Requests per second of all brokers together, and CPU time of each request in us."""
    with tempfile.TemporaryDirectory(prefix="spread") as directory:
        launch = Launch([sys.executable, "-m", "strandline.cli.main", "serve"], None, tools.rdperf)
        cluster = kind(kind.kind, Path(directory) / "cluster", launch)
        cluster.prepare()
        try:
            cluster.start()
            ports = range(cluster.port, cluster.port + NODES)
            topics = Topics(cluster.address)
            for port in ports:
                topics.create(f"at-{port}", 1, leader_port=port, replicas=1)
            _until_quiet(cluster)
            before = cluster.cpu_seconds()
            loads = [
                subprocess.Popen(_load(tools, port, options), stdout=subprocess.PIPE, text=True)
                for port in ports
            ]
            reports = [json.loads(load.communicate()[0]) for load in loads]
            used = cluster.cpu_seconds() - before
        finally:
            cluster.stop()
    requests = sum(int(report["total_requests"]) for report in reports)
    return sum(float(report["requests_per_second"]) for report in reports), used / requests * 1e6


def _until_quiet(cluster: StrandlineCluster) -> None:
    """A second after its start each process imports what it may need later."""
    time.sleep(QUIET_S)
    used = cluster.cpu_seconds()
    while True:
        time.sleep(QUIET_S)
        used, before = cluster.cpu_seconds(), used
        if used - before < QUIET_SHARE * QUIET_S:
            return


def _load(tools: native.Tools, port: int, options: dict[str, int]) -> list[str]:
    words = [str(tools.loadgen), "produce", "--port", str(port), "--topic", f"at-{port}"]
    for name, value in options.items():
        words += [f"--{name}", str(value)]
    return words


if __name__ == "__main__":
    sys.exit(main())
