"""The facts of tables as Prometheus' metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from strandline.lakehouse.service.live import State, TableFacts

_PREFIX: Final = "strandline_table_"
_COUNTERS: Final[Sequence[tuple[str, str, Callable[[TableFacts], float]]]] = (
    ("commits", "Commits since the service began.", lambda facts: facts.commits),
    ("commit_seconds", "Time that these commits took.", lambda facts: facts.commit_seconds),
    ("rows", "Rows in these commits.", lambda facts: facts.rows),
    ("late_rows", "Rows in these commits that came too late.", lambda facts: facts.late_rows),
    ("dead_letters", "Records that could not become rows.", lambda facts: facts.dead_letters),
    ("dropped", "Records of which the transform made no row.", lambda facts: facts.dropped),
    ("restarts", "Runs begun again after a failure.", lambda facts: facts.restarts),
)
_HELD: Final = (
    ("held_rows", "Rows in the table, or a side table.", 1),
    ("files", "Files of the table, or of a side table.", 2),
    ("bytes", "Bytes in these files.", 3),
)


class TableCollector(Collector):
    """Gives metrics of what `facts` returns at that moment."""

    def __init__(self, facts: Callable[[], Iterable[TableFacts]]) -> None:
        self._facts = facts

    def collect(self) -> Iterator[Metric]:
        """A family a metric, with a sample a table. What is not known has no sample."""
        tables = list(self._facts())
        state = GaugeMetricFamily(
            f"{_PREFIX}state",
            "1 for the state that the table's run is in.",
            labels=["table", "state"],
        )
        for facts in tables:
            for each in State:
                state.add_metric([facts.name, each.value], facts.state is each)
        yield state
        for name, text, value in _COUNTERS:
            counter = CounterMetricFamily(f"{_PREFIX}{name}", text, labels=["table"])
            for facts in tables:
                counter.add_metric([facts.name], value(facts))
            yield counter
        yield from _lags(tables)
        for name, text, at in _HELD:
            gauge = GaugeMetricFamily(f"{_PREFIX}{name}", text, labels=["table", "side"])
            for facts in tables:
                for held in facts.held:
                    gauge.add_metric([facts.name, held[0]], float(held[at]))
            yield gauge


def _lags(tables: Sequence[TableFacts]) -> Iterator[Metric]:
    records = GaugeMetricFamily(
        f"{_PREFIX}lag_records", "Offsets that the table lacks.", labels=["table"]
    )
    seconds = GaugeMetricFamily(
        f"{_PREFIX}lag_seconds", "Age of the oldest record that it lacks.", labels=["table"]
    )
    last = GaugeMetricFamily(
        f"{_PREFIX}last_commit_timestamp_seconds", "When it committed last.", labels=["table"]
    )
    for facts in tables:
        if facts.lag is not None:
            records.add_metric([facts.name], facts.lag.records)
            if facts.lag.seconds is not None:
                seconds.add_metric([facts.name], facts.lag.seconds)
        if facts.last_commit_ms is not None:
            last.add_metric([facts.name], facts.last_commit_ms / 1000)
    yield from (records, seconds, last)


def metrics_text(facts: Iterable[TableFacts]) -> bytes:
    """In Prometheus' text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(TableCollector(lambda: facts))
    return generate_latest(registry)
