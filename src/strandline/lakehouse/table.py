"""`Table`: a topic as a table, from a program or a notebook.

    from strandline import Table, TableSpec

    table = Table.create(TableSpec(name="orders", topics=("orders",), location="tables/orders"))
    table.run("localhost:9092")
    assert table.verify("localhost:9092").is_good
    rows = table.dataset().to_table()

This file gives names to what the commands `strandline table ...` do. It imports Spark only where
Spark is needed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Self

from strandline.client.security.config import ClientConfig
from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.pipeline.events import Event, Stopped
from strandline.lakehouse.pipeline.options import RunOptions
from strandline.lakehouse.spark_options import SparkOptions
from strandline.lakehouse.tables.definition import TableSpec
from strandline.lakehouse.tables.spec import list_specs, load_spec, save_spec
from strandline.lakehouse.tables.store import open_store

if TYPE_CHECKING:
    import pandas
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.dataset as pads

    from strandline.lakehouse.results.proof import ResultReport
    from strandline.lakehouse.transforming.given import TransformFunction
    from strandline.lakehouse.verify.report import Report

BOOTSTRAP = "127.0.0.1:9092"


class Table:
    """A defined table; made by `create`, `open` or `defined_in`.

    `spec` is its definition, with the fields of docs/tables.md. Several processes may have a table
    open. One of them at a time can `run` it: a second one is refused at its next commit.
    """

    def __init__(self, spec: TableSpec) -> None:
        self.spec = spec

    @classmethod
    def create(cls, spec: TableSpec) -> Self:
        """Define a table: write its definition to `spec.location`.

        Raises `TableExists`, and `InvalidSetting` for a schema that gives no table, or not the
        columns that the definition is about.
        """
        save_spec(spec)
        return cls(spec)

    @classmethod
    def open(cls, location: str | Path) -> Self:
        """The table that is defined in the directory `location`, a path or a URI.

        Raises `TableMissing`.
        """
        return cls(load_spec(location))

    @classmethod
    def defined_in(cls, directory: str | Path) -> list[Self]:
        """The tables in a directory of tables, such as the command line's `--tables`, by name."""
        return [cls(spec) for spec in list_specs(directory)]

    def __repr__(self) -> str:
        topics = ", ".join(self.spec.topics) or self.spec.filled_by
        return f"<Table {self.spec.name} of {topics} at {self.spec.location}>"

    def run(
        self,
        bootstrap: str = BOOTSTRAP,
        *,
        once: bool = True,
        interval_ms: int | None = None,
        rows_per_commit: int = 1_000_000,
        accepts_loss: bool = False,
        patience_s: float = 300.0,
        stop: threading.Event | None = None,
        on_event: Callable[[Event], None] | None = None,
        spark: SparkOptions | None = None,
        client_config: Mapping[str, str] | None = None,
        transform: TransformFunction | str | None = None,
        select: str | None = None,
    ) -> Stopped:
        """Bring the table's topics into it, exactly once, from where it is; how the run ended.

        - `bootstrap`: addresses of brokers, `host:port,...`.
        - `once`: end when all is committed that was in the topics at the start. Otherwise commit
          every `interval_ms` milliseconds (by default as the definition says) until `stop` is set.
          An exception such as KeyboardInterrupt ends a run at once, and nothing is lost by it.
        - `rows_per_commit`: offsets of all partitions that one commit holds at most.
        - `accepts_loss`: go on behind records that the log lost before the table had them, and
          note them, instead of raising `RecordsLost`.
        - `patience_s`: seconds for which trouble with brokers or Spark is met with another attempt.
        - `on_event`: gets each event (`Started`, `Committed`, `Notice`, `Stopped`) in this thread.
        - `client_config`: settings of TLS and SASL by Kafka's names, for a cluster that wants them.
        - `spark`: where Spark runs; a `master` may be a server of Spark Connect. In a program with
          a Spark session, that one is used instead of any other master, and stays open.
        - `transform`: what rows go through on their way to the table, a function from the DataFrame
          of a batch to that of the table's rows, or where it is (`module:function`). The columns
          that say where a record was (`kafka_topic`, `kafka_partition`, `kafka_offset`, ...) must
          stay. `select` is the same as a query over `batch`. The definition remembers either by its
          name, and a later run without one goes on with it.

        Raises `PipelineError` and `TableError`, after which the table is as its last commit left
        it; `ProtocolError` if brokers refuse the run at its start; `NoJava`, `NoSpark`, and
        `InvalidSetting`.
        """
        from strandline.lakehouse.pipeline.errors import TransformFailed
        from strandline.lakehouse.pipeline.running import never_stopped, run_table
        from strandline.lakehouse.transforming.given import load, named
        from strandline.lakehouse.transforming.remembering import on_trial, remembered

        function = None
        if transform is not None:
            function = load(transform) if isinstance(transform, str) else named(transform)
        name = None if function is None else function.name
        before = self.spec
        self.spec = remembered(before, select=select, transform=name)
        options = RunOptions(
            bootstrap=bootstrap,
            config=ClientConfig(client_config or {}),
            once=once,
            interval_ms=self.spec.commit_interval_ms if interval_ms is None else interval_ms,
            engine=self.spec.engine,
            accepts_loss=accepts_loss,
            rows_per_commit=rows_per_commit,
            patience_s=patience_s,
        )
        try:
            with on_trial(before, self.spec):
                return run_table(
                    self.spec,
                    options,
                    spark=spark,
                    on_event=on_event or _ignore,
                    stop=never_stopped if stop is None else lambda: nullcontext(_EventStop(stop)),
                    transform=function,
                )
        except TransformFailed:
            self.spec = load_spec(before.location)
            raise

    def verify(
        self,
        bootstrap: str = BOOTSTRAP,
        *,
        spark: SparkOptions | None = None,
        client_config: Mapping[str, str] | None = None,
        everything: bool = False,
        checkpoint: str | Path | None = None,
    ) -> Report | ResultReport:
        """Prove from the log that every record below the frontier is in the table exactly once.

        Of a table that queries fill: that each of their batches is there once; with `checkpoint`,
        the directory of one, that the table has what it says. No broker is asked then.

        What the last proof has shown is not compared again, unless `everything` is to be.
        The report's `is_good` is the verdict, its `sentences()` say what was found. Raises
        `TableError`, `ProtocolError`, `NoJava` and `NoSpark`.
        """
        if self.spec.is_of_queries:
            from strandline.lakehouse.results.proof import prove

            place = None
            if checkpoint is not None:
                place = Location.parse(checkpoint, setting="checkpoint")
            return prove(open_store(self.spec, create=True), place)
        from strandline.lakehouse.verify.running import verify_table

        config = ClientConfig(client_config or {})
        return verify_table(self.spec, bootstrap, config=config, spark=spark, everything=everything)

    def to_arrow(
        self,
        columns: Sequence[str] | None = None,
        *,
        where: pc.Expression | None = None,
        commit: int | None = None,
        since: int | None = None,
    ) -> pa.Table:
        """The committed rows, all in memory: those that `where` lets through, in some columns.

        At a commit by its number (`commit`, the newest by default), and of these what came after
        another one (`since`). Raises InvalidSetting for commits that are not known any more.
        """
        from strandline.lakehouse.query.moments import arrow_of

        store = open_store(self.spec, create=True)
        return arrow_of(store, columns, where, commit=commit, since=since)

    def to_pandas(
        self,
        columns: Sequence[str] | None = None,
        *,
        where: pc.Expression | None = None,
        commit: int | None = None,
        since: int | None = None,
    ) -> pandas.DataFrame:
        """As `to_arrow`, for pandas."""
        rows = self.to_arrow(columns, where=where, commit=commit, since=since)
        return rows.to_pandas()

    def dataset(self, side: str | None = None) -> pads.Dataset:
        """The committed rows for pyarrow; of a side table with `"late"` or `"dead_letters"`.

        Other engines read `spec.directory()` as a Delta or Iceberg table. Raises `BadTable` if
        files are gone.
        """
        return open_store(self.spec, create=True).dataset(side)


class _EventStop:
    """A `threading.Event` as a run asks for it."""

    def __init__(self, event: threading.Event) -> None:
        self._event = event

    @property
    def is_set(self) -> bool:
        return self._event.is_set()


def _ignore(event: Event) -> None:
    """For a run whose events are of no interest."""


def open_table(name: str, tables: str | Path | None = None) -> Table:
    """The table called `name` in a directory of tables, or whose own directory `name` is.

    `tables` is by default what `STRANDLINE_TABLES` says, or `./strandline-tables`. Raises
    `TableMissing`.
    """
    from strandline.lakehouse.query.naming import spec_named

    return Table(spec_named(name, tables))
