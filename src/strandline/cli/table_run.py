"""`strandline table run`: the pipeline in the foreground, with its progress."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, assert_never

import click

from strandline.cli.client_config import client_config
from strandline.cli.connecting import bootstrap_option
from strandline.cli.output import counted
from strandline.cli.spark_logging import silence_py4j
from strandline.cli.stopping import Stop
from strandline.cli.table_options import (
    bootstrap_of,
    connecting_spark_options,
    load_table,
    tables_option,
    transform_options,
    typed,
)
from strandline.errors import InvalidSetting
from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.pipeline.events import Committed, Event, Notice, Started, Stopped
from strandline.lakehouse.pipeline.options import ENGINES, RunOptions
from strandline.lakehouse.spark_options import SparkOptions
from strandline.lakehouse.tables.definition import TableSpec, parse_duration

if TYPE_CHECKING:
    from strandline.client.security.config import ClientConfig
    from strandline.lakehouse.pipeline.lag import Lag


_PATIENCE: Final = "5 min"
_TOO_DEAD: Final = 3
"""The exit code of a run that committed everything, too much of it as dead letters."""


@click.command()
@click.argument("name")
@click.option("--once", is_flag=True, help="Commit what is there now, and end.")
@click.option(
    "--interval", metavar="DURATION", help="Between commits. [default: as the table says]"
)
@click.option(
    "--engine",
    type=click.Choice(ENGINES),
    default=None,
    help="What reads the topics: our own reader, or Spark's connector for Kafka from --jars.",
)
@click.option(
    "--jars",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    envvar="STRANDLINE_SPARK_KAFKA_JARS",
    show_envvar=True,
    help="Jars of spark-sql-kafka-0-10, for --engine kafka.",
)
@click.option(
    "--delta-jars",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    envvar="STRANDLINE_DELTA_JARS",
    show_envvar=True,
    help="Jars of Delta's own writer, for a table created with --writer spark.",
)
@click.option(
    "--on-data-loss",
    type=click.Choice(["fail", "continue"]),
    default="fail",
    show_default=True,
    help="When the log lost records that the table lacks: stop, or go on and keep a note of it.",
)
@click.option(
    "--rows-per-commit",
    type=click.IntRange(1),
    default=1_000_000,
    show_default=True,
    metavar="N",
    help="Offsets that one commit holds at most.",
)
@click.option(
    "--compact-every",
    type=click.IntRange(0),
    default=100,
    show_default=True,
    metavar="N",
    help="Commits between two compactions of small files; 0 is never.",
)
@click.option(
    "--vacuum",
    metavar="DURATION",
    help="After a compaction, delete files that no table names and that are older than this: "
    "'7 days'. [default: never]",
)
@click.option(
    "--patience",
    metavar="DURATION",
    help="How long to try again after trouble with brokers or workers began. [default: 5 min; with "
    "--once not for brokers that do not answer at the start]",
)
@click.option(
    "--dead-share",
    type=click.FloatRange(0, 100),
    default=1.0,
    show_default=True,
    metavar="PERCENT",
    help="More dead letters than this, of a commit's records, are told in the last line.",
)
@click.option("--fail-on-dead", is_flag=True, help="Then end with the exit code 3.")
@transform_options
@connecting_spark_options
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document per event.")
@tables_option
@bootstrap_option
def run(
    name: str,
    once: bool,
    interval: str | None,
    engine: str | None,
    jars: Path | None,
    delta_jars: Path | None,
    on_data_loss: str,
    rows_per_commit: int,
    compact_every: int,
    vacuum: str | None,
    patience: str | None,
    dead_share: float,
    fail_on_dead: bool,
    select: str | None,
    transform: str | None,
    explode: bool | None,
    spark: SparkOptions,
    as_json: bool,
    tables: Location,
    bootstrap: str | None,
) -> None:
    """Bring the topics of table NAME into it, exactly once, from where it is.

    Ctrl-C or SIGTERM stops it after a last commit; a second Ctrl-C stops it at once, and loses
    nothing. What is committed shows as the offsets of the group strandline-table-NAME.

    Another --select or --transform than the table has holds from here on; the table remembers it.
    """
    spec = load_table(tables, name, of_topics=True)
    try:
        options = run_options(
            spec,
            bootstrap_of(bootstrap),
            client_config(),
            once=once,
            interval=interval,
            engine=engine,
            on_data_loss=on_data_loss,
            rows_per_commit=rows_per_commit,
            compact_every=compact_every,
            vacuum=vacuum,
            patience=patience,
            dead_share=dead_share,
        )
    except InvalidSetting as wrong:
        raise click.UsageError(str(wrong)) from wrong
    show = show_as_json if as_json else show_for_people
    chosen = (
        *jars_in(jars if options.engine == "kafka" else None),
        *jars_in(delta_jars if spec.writer == "spark" else None),
    )
    spark = replace(spark, jars=chosen)
    # Only here: it imports what takes a second, which wrong options need not wait for.
    from strandline.lakehouse.pipeline.running import run_table
    from strandline.lakehouse.transforming.given import load
    from strandline.lakehouse.transforming.remembering import on_trial, remembered

    silence_py4j()
    try:
        if transform is not None:
            load(transform)  # so that nothing is remembered that cannot be found
        newer = remembered(spec, select=select, transform=transform, explode=explode)
        with on_trial(spec, newer):
            stopped = run_table(
                newer,
                options,
                spark=spark,
                on_event=show(name),
                stop=lambda: Stop(terminate=True, ends_when="a last batch is committed"),
            )
    except InvalidSetting as wrong:
        raise click.UsageError(str(wrong)) from wrong
    if fail_on_dead and stopped.is_too_dead:
        raise click.exceptions.Exit(_TOO_DEAD)


def run_options(
    spec: TableSpec,
    bootstrap: str,
    config: ClientConfig,
    *,
    once: bool,
    interval: str | None,
    engine: str | None,
    on_data_loss: str,
    rows_per_commit: int,
    compact_every: int,
    vacuum: str | None,
    patience: str | None,
    dead_share: float,
) -> RunOptions:
    """How a table is run, as the options above say it. Raises InvalidSetting."""
    every_ms = spec.commit_interval_ms if interval is None else parse_duration("interval", interval)
    return RunOptions(
        bootstrap=bootstrap,
        config=config,
        once=once,
        interval_ms=every_ms,
        engine=engine or spec.engine,
        accepts_loss=on_data_loss == "continue",
        rows_per_commit=rows_per_commit,
        compact_every=compact_every,
        vacuum_ms=None if vacuum is None else parse_duration("vacuum", vacuum),
        patience_s=parse_duration("patience", patience or _PATIENCE) / 1000,
        waits_at_start=patience is not None or not once,
        dead_share=dead_share / 100,
    )


def show_for_people(name: str, prefix: str = "") -> Callable[[Event], None]:
    """Prints a line per event, behind a prefix that says whose it is."""
    before = f"{prefix}: " if prefix else ""
    listing = typed(f"strandline table dead-letters list {name}")  # in the command's own thread

    def show(event: Event) -> None:
        line = line_of(event)
        if isinstance(event, Stopped) and event.is_too_dead:
            letters = counted(event.dead_letters, "dead letter")
            line += (
                f"; {letters}, up to {event.dead_share:.1%} of the records of a commit: {listing}"
            )
        click.echo(before + line, err=isinstance(event, Notice))

    return show


def show_as_json(name: str) -> Callable[[Event], None]:
    """Prints a document per event."""

    def show(event: Event) -> None:
        click.echo(json.dumps({"table": name, **_as_json(event)}))

    return show


def line_of(event: Event) -> str:
    """What a person reads of an event."""
    match event:
        case Started():
            return (
                f"{counted(event.partitions, 'partition')}, "
                f"{counted(event.committed, 'offset')} in the table, {_lag_text(event.lag)}"
            )
        case Committed():
            parts = [f"commit {event.sequence}: {counted(event.rows, 'row')}"]
            if event.late_rows:
                parts.append(f"{event.late_rows:,} late")
            if event.dead_letters:
                parts.append(counted(event.dead_letters, "dead letter"))
            if event.dropped:
                parts.append(f"{event.dropped:,} dropped by the transform")
            lost = sum(each.end - each.start for each in event.lost)
            if lost:
                parts.append(f"{counted(lost, 'offset')} lost to the log's retention")
            return f"{', '.join(parts)} in {event.seconds:.1f} s; {_lag_text(event.lag)}"
        case Notice():
            return event.sentence
        case Stopped():
            commits = counted(event.commits, "commit")
            rows = counted(event.rows, "row")
            return f"Stopped after {commits} with {rows}; {_lag_text(event.lag)}"
        case _:
            assert_never(event)


def _lag_text(lag: Lag | None) -> str:
    if lag is None:
        return "the lag is not known"
    if not lag.records:
        return "nothing is missing"
    seconds = "" if lag.seconds is None else f" ({lag.seconds:,.0f} s)"
    return f"{counted(lag.records, 'record')}{seconds} behind"


def _as_json(event: Event) -> dict[str, object]:
    match event:
        case Started():
            return {
                "event": "started",
                "partitions": event.partitions,
                "committed": event.committed,
                "lag": lag_as_json(event.lag),
            }
        case Committed():
            return {
                "event": "committed",
                "sequence": event.sequence,
                "version": event.version,
                "rows": event.rows,
                "late_rows": event.late_rows,
                "dead_letters": event.dead_letters,
                "dropped": event.dropped,
                "ranges": [list(each[:4]) for each in event.ranges],
                "lost": [list(each[:4]) for each in event.lost],
                "seconds": round(event.seconds, 3),
                "lag": lag_as_json(event.lag),
            }
        case Notice():
            return {"event": "told", "sentence": event.sentence}
        case Stopped():
            return {
                "event": "stopped",
                "commits": event.commits,
                "rows": event.rows,
                "dead_letters": event.dead_letters,
                "dead_share": round(event.dead_share, 6),
                "lag": lag_as_json(event.lag),
            }
        case _:
            assert_never(event)


def lag_as_json(lag: Lag | None) -> dict[str, object] | None:
    """Records and seconds; null where they are not known."""
    return None if lag is None else {"records": lag.records, "seconds": lag.seconds}


def jars_in(directory: Path | None) -> list[Path]:
    """The jars in a directory, if one is given."""
    return [] if directory is None else sorted(directory.glob("*.jar"))
