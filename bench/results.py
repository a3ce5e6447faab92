"""What was measured, and the arithmetic on it. Pure: no clock, no process, no file.

A `Result` is one run of one workload on one broker in one round. Rounds are interleaved (every
broker once per round), so that two brokers' results of the same round saw the same machine; a
`Comparison` therefore holds the ratio of the medians and, as its spread, the ratios round by round.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Metric:
    """How one number is written down; `higher_is_better` decides which way a ratio flatters."""

    title: str
    unit: str
    higher_is_better: bool
    digits: int = 0


METRICS: Mapping[str, Metric] = {
    "requests_per_second": Metric("requests", "req/s", higher_is_better=True),
    "transactions_per_second": Metric("transactions", "txn/s", higher_is_better=True, digits=1),
    "cpu_us_per_transaction": Metric("broker CPU", "us/txn", higher_is_better=False),
    "commit_p50_us": Metric("p50 of a commit", "us", higher_is_better=False),
    "commit_p99_us": Metric("p99 of a commit", "us", higher_is_better=False),
    "records_per_second": Metric("records", "records/s", higher_is_better=True),
    "megabytes_per_second": Metric("throughput", "MB/s", higher_is_better=True, digits=1),
    "cpu_us_per_request": Metric("broker CPU", "us/request", higher_is_better=False, digits=2),
    "cpu_seconds_per_gigabyte": Metric("broker CPU", "s/GB", higher_is_better=False, digits=2),
    "p50_us": Metric("latency p50", "us", higher_is_better=False, digits=1),
    "p99_us": Metric("latency p99", "us", higher_is_better=False, digits=1),
    "p999_us": Metric("latency p99.9", "us", higher_is_better=False, digits=1),
    "service_p50_us": Metric("p50 from the send on", "us", higher_is_better=False, digits=1),
    "startup_seconds": Metric("start to first answer", "s", higher_is_better=False, digits=3),
    "startup_cpu_seconds": Metric("CPU to first answer", "s", higher_is_better=False, digits=2),
    "idle_rss_mib": Metric("resident, idle", "MiB", higher_is_better=False, digits=1),
    "loaded_rss_mib": Metric("resident, loaded", "MiB", higher_is_better=False, digits=1),
    "failover_seconds": Metric("longest gap of acks", "s", higher_is_better=False, digits=2),
    "client_cores": Metric("client CPU", "cores", higher_is_better=False, digits=2),
    "page_cores": Metric("page's server CPU", "cores", higher_is_better=False, digits=3),
    "page_rss_mib": Metric("page's server, resident", "MiB", higher_is_better=False, digits=1),
    "browser_cores": Metric("browser CPU", "cores", higher_is_better=False, digits=3),
    "stream_kb_per_second": Metric("one page's stream", "KB/s", higher_is_better=False, digits=1),
    "foreign_cores": Metric("CPU of others", "cores", higher_is_better=False, digits=2),
}
"""Every metric that a workload may report, in the order of the report."""


@dataclass(frozen=True, slots=True)
class Result:
    """One run. `metrics` is keyed by the names of `METRICS`."""

    workload: str
    broker: str
    round: int
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and extremes over the rounds."""

    median: float
    low: float
    high: float
    rounds: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """One broker divided by another: of the medians, and the extremes of the rounds' own ratios."""

    ratio: float
    low: float
    high: float


def spread(values: Sequence[float]) -> Spread:
    """Raises ValueError when there is nothing to take a median of."""
    if not values:
        raise ValueError("a spread needs at least one value")
    return Spread(median(values), min(values), max(values), len(values))


Cell: TypeAlias = tuple[str, str, str]
"""Workload, metric, broker."""


class Results:
    """All runs so far, looked up by workload, metric and broker."""

    def __init__(self, results: Iterable[Result] = ()) -> None:
        self._results = list(results)

    def __iter__(self) -> Iterator[Result]:
        return iter(self._results)

    def add(self, result: Result) -> None:
        """Keep one run."""
        unknown = result.metrics.keys() - METRICS.keys()
        if unknown:
            raise ValueError(f"no such metric: {', '.join(sorted(unknown))}")
        self._results.append(result)

    def workloads(self) -> list[str]:
        """Names in the order in which they were first run."""
        return list(dict.fromkeys(result.workload for result in self._results))

    def by_round(self, workload: str, metric: str, broker: str) -> dict[int, float]:
        """One broker's values of one metric, by round; empty when it was not measured."""
        return {
            result.round: result.metrics[metric]
            for result in self._results
            if (result.workload, result.broker) == (workload, broker) and metric in result.metrics
        }

    def spread(self, workload: str, metric: str, broker: str) -> Spread | None:
        """Median and extremes, or None when it was not measured."""
        values = self.by_round(workload, metric, broker)
        return spread(list(values.values())) if values else None

    def compare(self, workload: str, metric: str, *, subject: str, other: str) -> Comparison | None:
        """`subject` divided by `other`, or None when either was not measured or `other` is 0."""
        return self.divide((workload, metric, subject), (workload, metric, other))

    def itself(self, cell: Cell) -> Comparison | None:
        """A figure that is bounded as it is."""
        values = self.by_round(*cell).values()
        return Comparison(median(values), min(values), max(values)) if values else None

    def divide(self, above: Cell, below: Cell) -> Comparison | None:
        """The same for any two cells: one broker under two workloads, too."""
        ours, theirs = self.by_round(*above), self.by_round(*below)
        if not ours or not theirs or not all(theirs.values()):
            return None
        of_medians = median(ours.values()) / median(theirs.values())
        shared = [ours[round_] / theirs[round_] for round_ in ours.keys() & theirs.keys()]
        return Comparison(
            of_medians, min(shared, default=of_medians), max(shared, default=of_medians)
        )
