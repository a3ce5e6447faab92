"""`python -m bench.page`: what open pages cost the brokers.

A cluster of three brokers (`serve --brokers 3 --ui`) is loaded again and again: with no page open,
with three readers of the page's event stream, with three windows of Chromium that show the
cluster, the loaded topic and one of its partitions, and once more with none. All four stand in each
round, in turns, so that they see the same machine; the ratio of the two without pages says how far
apart equal things come out. The same with a thousand partitions.

With no page open the page's server looks at the cluster all the same, every three seconds. CPU of
the brokers is that of their process alone. What the server and the browser draw is drawn on the
same processors: where these are few, that costs throughput too, and the brokers nothing.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench import environment, native, processes
from bench.brokers import COMMON_SETTINGS, BrokerError, Launch
from bench.catalogue import workloads
from bench.clusters import StrandlineCluster
from bench.results import METRICS, Result, Results
from bench.rounds import RUN_ERRORS
from bench.workloads import FULL, MIB, QUICK, SETTLE_S, Metrics, Setup, Workload

PAGES: Final = 3
PARTITIONS: Final = (4, 1000)
PARTITIONS_PER_TOPIC: Final = 20
RATIO_MIN: Final = 0.97
READY_S: Final = 60.0
NONE, STREAMS, WINDOWS, AGAIN = "no page", "3 streams", "3 windows", "no page again"
STATES: Final = (NONE, STREAMS, WINDOWS, AGAIN)
COST: Final = {
    "megabytes_per_second": "cpu_seconds_per_gigabyte",
    "requests_per_second": "cpu_us_per_request",
}
"""Throughput and what it costs, by the figure that a workload gives."""


class ClusterWithPage(StrandlineCluster):
    """`serve --brokers 3 --ui`; its CPU is that of the brokers, without the page's server."""

    def cpu_seconds(self) -> float:
        """Of the process with the brokers alone."""
        return processes.own_cpu_seconds(self.pid)

    @property
    def page_pid(self) -> int:
        """The page's server: the one child."""
        return processes.process_tree(self.pid)[1]

    def find_page(self) -> str:
        """The page's address, as the command says it at its start."""
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            found = re.search(r"^ *page +(http://\S+)", self._log_end(), re.MULTILINE)
            if found:
                return found[1]
            time.sleep(0.05)  # between two looks
        raise BrokerError(f"{self.label} did not say where its page is:\n{self._log_end()}")


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line asked for."""

    workload: Workload
    partitions: Sequence[int]
    states: Sequence[str]
    rounds: int
    is_quick: bool
    data_directory: Path


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; 1 when a run failed."""
    options = _parse(arguments)
    print(environment.describe(options.data_directory, kafka_jars=None, java="").line())
    results, failures = Results(), 0
    for partitions in options.partitions:
        failures += _session(options, partitions, results)
    for name in results.workloads():
        _print(results, name, options)
    return 1 if failures else 0


def _session(options: Options, partitions: int, results: Results) -> int:
    """All rounds on one cluster; the number of runs that failed."""
    tools = native.build(native.default_cache())
    command = [sys.executable, "-m", "strandline.cli.main", "serve", "--ui"]
    launch = Launch(command, None, tools.rdperf, None, COMMON_SETTINGS)
    name, failures = f"{options.workload.name}, {partitions} partitions", 0
    with ExitStack() as stack:
        root = Path(tempfile.mkdtemp(prefix="strandline-bench-", dir=options.data_directory))
        stack.callback(shutil.rmtree, root, ignore_errors=True)
        cluster = ClusterWithPage("strandline", root / "cluster", launch)
        stack.callback(cluster.stop)
        cluster.prepare()
        cluster.start()
        address = cluster.find_page()
        for number in range(partitions // PARTITIONS_PER_TOPIC):
            cluster.create_topic(f"standing-{number:03d}", PARTITIONS_PER_TOPIC, replicas=3)
        setup = Setup(tools, QUICK if options.is_quick else FULL, lambda _: cluster)
        turns = 0
        for round_ in range(options.rounds + 1):  # the first one warms up
            turn = round_ % len(options.states)
            for state in (*options.states[turn:], *options.states[:turn]):
                turns += 1
                try:
                    with _pages(address, state, f"load-{turns}") as seen:
                        begun = seen.mark(cluster.page_pid)
                        found = options.workload.run(cluster, f"load-{turns}", setup)
                        found |= seen.since(begun, cluster.page_pid)
                except RUN_ERRORS as error:
                    failures += 1
                    print(f"round {round_} {name} {state}: {error}", file=sys.stderr)
                    continue
                if round_:
                    results.add(Result(name, state, round_, found))
                print(f"round {round_} {name} {state}: {_headline(found)}", file=sys.stderr)
    return failures


def _headline(metrics: Metrics) -> str:
    throughput = next(name for name in COST if name in metrics)
    about = METRICS[throughput]
    return f"{metrics[throughput]:,.{about.digits}f} {about.unit}"


# -- Pages ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment of a run, and what was used until then."""

    clock_s: float
    page_cpu_s: float
    browser_cpu_s: float
    stream_bytes: int


class Seen:
    """What pages use while they are open."""

    def __init__(self) -> None:
        self.browser_pid: int | None = None
        self.streams: list[Stream] = []

    def mark(self, page_pid: int) -> Mark:
        """Now."""
        browser = 0.0 if self.browser_pid is None else processes.cpu_seconds(self.browser_pid)
        return Mark(
            time.monotonic(),
            processes.own_cpu_seconds(page_pid),
            browser,
            sum(each.bytes for each in self.streams),
        )

    def since(self, begun: Mark, page_pid: int) -> Metrics:
        """What was used since then; the memory is that of now."""
        now = self.mark(page_pid)
        seconds = now.clock_s - begun.clock_s
        found = {
            "page_cores": (now.page_cpu_s - begun.page_cpu_s) / seconds,
            "page_rss_mib": processes.resident_bytes(page_pid) / MIB,
        }
        if self.browser_pid is not None:
            found["browser_cores"] = (now.browser_cpu_s - begun.browser_cpu_s) / seconds
        if self.streams:
            total = now.stream_bytes - begun.stream_bytes
            found["stream_kb_per_second"] = total / 1000 / seconds / len(self.streams)
        return found


@contextmanager
def _pages(address: str, state: str, topic: str) -> Iterator[Seen]:
    seen = Seen()
    with ExitStack() as stack:
        if state == STREAMS:
            seen.streams = [stack.enter_context(_stream(address)) for _ in range(PAGES)]
        elif state == WINDOWS:
            seen.browser_pid = stack.enter_context(_windows(address, topic))
        yield seen


class Stream(threading.Thread):
    """A reader of the page's events that parses every one, as a page does."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self._response = urllib.request.urlopen(f"{address}api/events", timeout=READY_S)
        self._is_ending = False
        self.has_begun = threading.Event()
        self.bytes = 0

    def run(self) -> None:
        """Until it is ended; there is something to read every half second."""
        with self._response as response:
            for line in response:
                self.bytes += len(line)
                if line.startswith(b"data: {"):
                    json.loads(line[6:])
                    self.has_begun.set()
                if self._is_ending:
                    return

    def end(self) -> None:
        """Stop reading, and wait for it."""
        self._is_ending = True
        self.join(READY_S)


@contextmanager
def _stream(address: str) -> Iterator[Stream]:
    stream = Stream(address)
    stream.start()
    if not stream.has_begun.wait(READY_S):
        raise BrokerError("The page's server sends no picture.")
    yield stream
    stream.end()


@contextmanager
def _windows(address: str, topic: str) -> Iterator[int]:
    """Chromium's process, with the cluster, a topic and a partition on three windows."""
    from tests.ui.browser import windows  # drives the browser in the tests, too

    views = ("", f"topics/{topic}", f"topics/{topic}/0")
    with windows(PAGES) as opened:
        for tab, view in zip(opened.tabs, views, strict=True):
            tab.open(f"{address}#/{view}")
            tab.wait_for("brokers answer")
            if tab.value("document.hidden"):
                raise BrokerError("A window of the browser is not in sight.")
        time.sleep(SETTLE_S)  # to load a page is not what it costs to have one open
        yield opened.process_id


# -- The report ----------------------------------------------------------------------------------


def _print(results: Results, name: str, options: Options) -> None:
    print(
        f"\n{name}: {options.workload.title}; {options.rounds} rounds, median (lowest to highest)"
    )
    for metric, about in METRICS.items():
        for state in options.states:
            found = results.spread(name, metric, state)
            if found is None:
                continue
            low, middle, high = (
                f"{value:,.{about.digits}f}" for value in (found.low, found.median, found.high)
            )
            line = f"  {about.title} [{about.unit}], {state}: {middle} ({low} to {high})"
            ratio = results.compare(name, metric, subject=state, other=NONE)
            if ratio is not None and state != NONE and metric in (*COST, *COST.values()):
                line += f"; ratio {ratio.ratio:.3f} ({ratio.low:.3f} to {ratio.high:.3f})"
                if metric in COST and state != AGAIN:
                    line += f", goal {RATIO_MIN}: {'met' if ratio.ratio >= RATIO_MIN else 'missed'}"
            print(line)


def _parse(arguments: Sequence[str] | None) -> Options:
    parser = argparse.ArgumentParser(
        prog="python -m bench.page", description=(__doc__ or "").split("\n")[0]
    )
    add = parser.add_argument
    fit = {each.name: each for each in workloads() if each.nodes == ClusterWithPage.nodes}
    add("--workload", choices=sorted(fit), default="all-r3-64kb", help="default: all-r3-64kb")
    add("--partitions", type=int, nargs="+", default=PARTITIONS, help="default: 4 1000")
    add("--states", nargs="+", choices=STATES, default=STATES, help="default: all four")
    add("--rounds", type=int, default=6, help="after one that warms up (default: 6)")
    add("--quick", action="store_true", help="short runs, to see that everything works")
    add("--data-dir", type=Path, default=Path("/dev/shm"), help="brokers' data (default: /dev/shm)")
    given = parser.parse_args(arguments)
    return Options(
        workload=fit[given.workload],
        partitions=given.partitions,
        states=given.states,
        rounds=given.rounds,
        is_quick=given.quick,
        data_directory=given.data_dir,
    )


if __name__ == "__main__":
    sys.exit(main())
