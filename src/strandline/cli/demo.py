"""`strandline demo`: a cluster, real events, a table that fills, a proof, and questions to it."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final

import click

from strandline.cli.demo_cluster import DemoCluster
from strandline.cli.demo_lake import read_by_name, stay
from strandline.cli.demo_store import DemoStore, check_store_installed
from strandline.cli.output import counted, print_table
from strandline.cli.spark_logging import silence_py4j
from strandline.cli.stopping import Stop
from strandline.cli.table_options import check_installed, print_notice
from strandline.lakehouse.spark_options import MASTER, SparkOptions, one_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from strandline.lakehouse.demo.lake import Lake
    from strandline.lakehouse.demo.production import Production
    from strandline.lakehouse.pipeline.events import Event
    from strandline.lakehouse.tables.definition import TableSpec
    from strandline.lakehouse.tables.store import TableStore

TABLE: Final = "flights"
_FLIGHTS: Final = 336_776
_INTERVAL_MS: Final = 1_000
_ROWS_PER_COMMIT: Final = 40_000


@click.command()
@click.option(
    "--records",
    type=click.IntRange(1, _FLIGHTS),
    default=_FLIGHTS,
    show_default=True,
    metavar="N",
    help="How many departures to produce.",
)
@click.option(
    "--brokers",
    type=click.IntRange(1, 9),
    default=3,
    show_default=True,
    metavar="N",
    help="How many brokers the cluster has.",
)
@click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Where cluster and table are kept. [default: a temporary directory]",
)
@click.option("--keep", is_flag=True, help="Leave the data, and say where they are.")
@click.option(
    "--lake",
    type=click.Choice(["s3"]),
    help="Keep the table in an object store that the demo starts, and find it by name.",
)
@click.option("--master", default=MASTER, show_default=True, help="Where Spark runs.")
@click.option("--memory", default="1g", show_default=True, help="Of Spark's driver.")
def demo(
    records: int,
    brokers: int,
    directory: Path | None,
    keep: bool,
    lake: str | None,
    master: str,
    memory: str,
) -> None:
    """Watch a topic become a table, with real data and no other step.

    Starts a cluster, produces every departure from New York's airports in 2013 to it, in the order
    in which they happened and with their real lateness, brings them into a table while they come,
    proves that each is there exactly once, and asks the table some questions. Then Spark computes
    a second topic from the first one, in transactions.

    With --lake s3 it starts an S3 server and an Iceberg catalog as well, the table lies there, and
    is read at the end by its name, by Spark and by DuckDB. With --keep all of it then stays until
    Ctrl-C, and the lines to type are printed; the server keeps its data in memory.
    """
    check_installed()
    if lake is not None:
        check_store_installed()
    home = directory or Path(tempfile.mkdtemp(prefix="strandline-demo-"))
    if directory is not None and directory.exists() and any(directory.iterdir()):
        raise click.UsageError(f"--dir {directory} is not empty.")
    home.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    goes = None if keep or directory is not None else home
    cluster = DemoCluster(home / "cluster", brokers)
    store = None if lake is None else DemoStore(home)
    signal.signal(signal.SIGTERM, partial(_end, cluster, store, goes))
    options = SparkOptions(master=master, memory=memory)
    try:
        with cluster, store or nullcontext():
            _show(cluster, None if store is None else store.lake, home, records, options)
            click.echo(f"\nAll of it took {time.monotonic() - began:.0f} s.")
            if store is not None and keep:
                stay(cluster.address, store.lake)
    finally:
        if goes is not None:
            shutil.rmtree(goes, ignore_errors=True)
    if store is not None:
        click.echo("The S3 server is gone, and the table with it: it was in memory.")
    if goes is None:
        click.echo(f"Cluster and {'catalog' if store else 'table'} are in {home}.")


def _end(
    cluster: DemoCluster,
    store: DemoStore | None,
    goes: Path | None,
    number: int,
    frame: FrameType | None,
) -> None:
    """A demo that is ended early must leave no process and no directory behind.

    An exception would do in our own code, but this may come in the middle of Spark's, which catches
    everything here and there and goes on. Spark's Java process ends with its standard input.
    """
    del frame
    for each in (cluster, store):
        if each is not None:
            each.kill()
    if goes is not None:
        shutil.rmtree(goes, ignore_errors=True)
    os._exit(128 + number)


def _show(
    cluster: DemoCluster, lake: Lake | None, home: Path, records: int, options: SparkOptions
) -> None:
    from strandline.lakehouse.demo.production import Production
    from strandline.lakehouse.tables.store import open_store

    click.echo(f"A cluster of {counted(cluster.brokers, 'broker')} listens on {cluster.address}.")
    if lake is not None:
        click.echo(f"An S3 server listens on {lake.endpoint}; tables are in {lake.tables}.")
    production = Production(cluster.address, TABLE, records)
    production.make_topic()
    spec = _define(home, lake)
    click.echo(f"Producing {records:,} departures to topic '{TABLE}'; starting Spark.")
    production.start()
    try:
        store = open_store(spec, create=True)
        silence_py4j()
        with one_session("demo", options, tell=print_notice) as spark:
            _fill(spec, cluster.address, production)
            _prove(spec, cluster.address)
            _ask(spark, store)
            _compute(spark, cluster.address, home, production.produced)
            if lake is not None:
                read_by_name(spark, lake.tables)
    finally:
        production.end()


def _define(home: Path, lake: Lake | None) -> TableSpec:
    from strandline.lakehouse.tables.definition import TableSpec, parse_duration, parse_partitioning
    from strandline.lakehouse.tables.spec import save_spec

    spec = TableSpec(
        name=TABLE,
        topics=(TABLE,),
        location=str((home / "tables" / TABLE).absolute()),
        event_time="time_hour",
        watermark_ms=parse_duration("watermark", "2 hours"),
        partition_by=parse_partitioning("month(time_hour)"),
        commit_interval_ms=_INTERVAL_MS,
    )
    if lake is not None:
        spec = lake.define(spec)
    save_spec(spec)
    return spec


class _UntilFilled:
    """Asks a run to stop when everything was produced, and is in the table."""

    def __init__(self, production: Production, interrupted: Stop) -> None:
        self._production = production
        self._interrupted = interrupted
        self.committed = 0

    @property
    def is_set(self) -> bool:
        if self._interrupted.is_set or self._production.failure is not None:
            return True
        return not self._production.is_alive() and self.committed >= self._production.produced


def _fill(spec: TableSpec, address: str, production: Production) -> None:
    """Run the table's pipeline, in the session that there is, until it has everything."""
    from strandline.lakehouse.pipeline.options import RunOptions
    from strandline.lakehouse.pipeline.running import run_table

    options = RunOptions(
        bootstrap=address, interval_ms=_INTERVAL_MS, rows_per_commit=_ROWS_PER_COMMIT
    )
    with Stop(terminate=True, ends_when="a last batch is committed") as interrupted:
        until = _UntilFilled(production, interrupted)
        run_table(spec, options, on_event=_showing(until), stop=lambda: nullcontext(until))
        if interrupted.is_set:
            raise click.Abort
    if production.failure is not None:
        raise production.failure


def _showing(until: _UntilFilled) -> Callable[[Event], None]:
    from strandline.cli.table_run import line_of
    from strandline.lakehouse.pipeline.events import Committed

    def show(event: Event) -> None:
        click.echo(line_of(event))
        if isinstance(event, Committed):
            until.committed += sum(each.end - each.start for each in event.ranges)

    return show


def _prove(spec: TableSpec, address: str) -> None:
    """In the session that there is."""
    from strandline.cli.table_verify import show_report
    from strandline.lakehouse.verify.running import verify_table

    click.echo("\nComparing the table with the log, offset by offset:")
    report = verify_table(spec, address)
    show_report(report)
    if not report.is_good:
        raise click.ClickException("The table is not what its topic was.")


def _ask(spark: SparkSession, store: TableStore) -> None:
    from strandline.lakehouse.demo.questions import answers

    for answer in answers(spark, store):
        click.echo(f"\n{answer.question}")
        print_table([name.upper() for name in answer.columns], answer.rows)


def _compute(spark: SparkSession, address: str, home: Path, produced: int) -> None:
    """A topic from the topic, whose numbers must count what was produced."""
    from strandline.lakehouse.demo.computed_topic import TOPIC, compute

    click.echo(f"\nComputing topic '{TOPIC}' from topic '{TABLE}', each batch in a transaction:")
    found = compute(spark, address, TABLE, home / "checkpoint")
    click.echo(
        f"{counted(found.transactions, 'transaction')} wrote {counted(found.records, 'record')}. "
        f"For readers of committed records they count {found.departures:,} departures."
    )
    if found.departures != produced:
        raise click.ClickException(f"{produced:,} departures were produced.")
    click.echo("\nWhich airlines leave latest, by that topic?")
    print_table([name.upper() for name in found.columns], found.latest)
