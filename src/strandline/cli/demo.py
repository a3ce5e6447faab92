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
from strandline.cli.output import counted, print_table
from strandline.cli.spark_logging import silence_py4j
from strandline.cli.stopping import Stop
from strandline.cli.table_options import check_installed, print_notice
from strandline.lakehouse.spark_options import SparkOptions, open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
@click.option("--memory", default="1g", show_default=True, help="Of Spark's driver.")
def demo(records: int, brokers: int, directory: Path | None, keep: bool, memory: str) -> None:
    """Watch a topic become a table, with real data and no other step.

    Starts a cluster, produces every departure from New York's airports in 2013 to it, in the order
    in which they happened and with their real lateness, brings them into a table while they come,
    proves that each is there exactly once, and asks the table some questions.
    """
    check_installed()
    home = directory or Path(tempfile.mkdtemp(prefix="strandline-demo-"))
    if directory is not None and directory.exists() and any(directory.iterdir()):
        raise click.UsageError(f"--dir {directory} is not empty.")
    home.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    goes = None if keep or directory is not None else home
    cluster = DemoCluster(home / "cluster", brokers)
    signal.signal(signal.SIGTERM, partial(_end, cluster, goes))
    try:
        with cluster:
            _show(cluster, home, records, memory)
    finally:
        if goes is not None:
            shutil.rmtree(goes, ignore_errors=True)
    click.echo(f"\nAll of it took {time.monotonic() - began:.0f} s.")
    if keep or directory is not None:
        click.echo(f"Cluster and table are in {home}.")


def _end(cluster: DemoCluster, goes: Path | None, number: int, frame: FrameType | None) -> None:
    """A demo that is ended early must leave no cluster and no directory behind.

    An exception would do in our own code, but this may come in the middle of Spark's, which catches
    everything here and there and goes on. Spark's Java process ends with its standard input.
    """
    del frame
    cluster.kill()
    if goes is not None:
        shutil.rmtree(goes, ignore_errors=True)
    os._exit(128 + number)


def _show(cluster: DemoCluster, home: Path, records: int, memory: str) -> None:
    from strandline.lakehouse.demo.production import Production
    from strandline.lakehouse.tables.store import open_store

    click.echo(f"A cluster of {counted(cluster.brokers, 'broker')} listens on {cluster.address}.")
    production = Production(cluster.address, TABLE, records)
    production.make_topic()
    spec = _define(home)
    click.echo(f"Producing {records:,} departures to topic '{TABLE}'; starting Spark.")
    production.start()
    try:
        store = open_store(spec, create=True)
        silence_py4j()
        with open_session("demo", SparkOptions(memory=memory), tell=print_notice) as spark:
            _fill(spec, cluster.address, production)
            _prove(spec, cluster.address)
            _ask(spark, store)
    finally:
        production.end()


def _define(home: Path) -> TableSpec:
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
    with Stop(terminate=True) as interrupted:
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
