"""A table of a topic, run and judged as the commands do it, in the session that all tests share."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from strandline.client.cluster import ClusterClient
from strandline.client.producer import Producer, ProducerSettings
from strandline.lakehouse.pipeline.batches import RunContext
from strandline.lakehouse.pipeline.events import Committed, Event, Stopped
from strandline.lakehouse.pipeline.options import RunOptions
from strandline.lakehouse.pipeline.runner import Runner, StopRequest
from strandline.lakehouse.tables.definition import TableSpec
from strandline.lakehouse.tables.spec import save_spec
from strandline.lakehouse.tables.store import TableStore, open_store
from strandline.lakehouse.transforming.given import Transform, transform_of
from strandline.lakehouse.verify.job import verify
from strandline.lakehouse.verify.report import Report
from strandline.testing import Cluster

Record = tuple[bytes | None, Any]
"""Key and value; what is not bytes or None becomes JSON."""


@dataclass
class Stop:
    """Asks a run to end, when a test says so."""

    is_set: bool = False


@dataclass
class TableUnderTest:
    """A table, its topic, and what its runs told."""

    spark: SparkSession
    client: ClusterClient
    bootstrap: str
    spec: TableSpec
    store: TableStore
    told: list[Event] = field(default_factory=list)

    @property
    def topic(self) -> str:
        return self.spec.topics[0]

    def produce(self, records: Iterable[Record], partition: int | None = 0) -> None:
        """Idempotence off: what is sent twice is there twice."""
        with Producer(self.client, ProducerSettings(is_idempotent=False)) as producer:
            for key, value in records:
                raw = value if value is None or isinstance(value, bytes) else _json(value)
                producer.send(self.topic, raw, key=key, partition=partition)
            producer.flush().raise_failure()

    def run(
        self,
        stop: StopRequest | None = None,
        tell: Callable[[Event], None] | None = None,
        store: TableStore | None = None,
        transform: Transform | None = None,
        **options: Any,
    ) -> Stopped:
        """A run; to the end of the topic unless `once=False` is among the options."""
        chosen = RunOptions(**{"bootstrap": self.bootstrap, "once": True, **options})
        self.told.clear()

        def show(event: Event) -> None:
            self.told.append(event)
            if tell is not None:
                tell(event)

        store = store or open_store(self.spec, spark=self.spark)
        through = transform or transform_of(self.spec)
        context = RunContext(self.spark, self.spec, store, chosen, through)
        return Runner(context, show).run(stop or Stop())

    @property
    def commits(self) -> list[Committed]:
        """Of the last run."""
        return [each for each in self.told if isinstance(each, Committed)]

    def verify(self, *, everything: bool = False) -> Report:
        settings = RunOptions(bootstrap=self.bootstrap).read_settings(self.spec)
        return verify(self.spark, open_store(self.spec), settings, everything=everything)

    def rows(self, *columns: str) -> list[tuple[Any, ...]]:
        """In the order of their offsets."""
        table = self.store.dataset().to_table(columns=[*columns, "kafka_partition", "kafka_offset"])
        rows = table.sort_by([("kafka_partition", "ascending"), ("kafka_offset", "ascending")])
        return list(zip(*(rows.column(each).to_pylist() for each in columns), strict=True))


@pytest.fixture
def make_table(
    spark: SparkSession,
    cluster: Cluster,
    client: ClusterClient,
    new_topic: Callable[..., str],
    tmp_path: Path,
) -> Callable[..., TableUnderTest]:
    """Makes a topic and a table of it: `make_table(partitions=2, mode="upsert")`."""

    def make(
        partitions: int = 1, configs: dict[str, Any] | None = None, **spec: Any
    ) -> TableUnderTest:
        topic = new_topic(partitions, **(configs or {}))
        place = {"location": str(tmp_path / "t"), **spec}
        defined = TableSpec(name="t", topics=(topic,), **place)
        save_spec(defined)
        store = open_store(defined, create=True)
        return TableUnderTest(spark, client, cluster.bootstrap_servers, defined, store)

    return make


def _json(value: object) -> bytes:
    return json.dumps(value).encode()
