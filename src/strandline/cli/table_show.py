"""`strandline table list`, `status` and `history`: what tables are and how far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from strandline.cli.client_config import client_config
from strandline.cli.connecting import bootstrap_option, json_option
from strandline.cli.output import counted, print_json, print_table, size_text, time_text
from strandline.cli.table_options import bootstrap_of, load_table, tables_option, typed
from strandline.cli.table_run import lag_as_json
from strandline.client.cluster import ClusterClient
from strandline.client.settings import ClientSettings
from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.pipeline.lag import Lag
from strandline.lakehouse.pipeline.progress import Reached, held_in, progress_of
from strandline.lakehouse.tables.definition import TableSpec
from strandline.lakehouse.tables.identity import TableState
from strandline.lakehouse.tables.presence import absent_files
from strandline.lakehouse.tables.spec import list_specs
from strandline.lakehouse.tables.store import open_store

_LAG_PATIENCE_MS = 10_000


@click.command("list")
@tables_option
@json_option
def list_tables(tables: Location, as_json: bool) -> None:
    """List the tables that are defined. Ends with 1 if a definition cannot be read."""
    unread: list[str] = []
    specs = list_specs(tables, unread.append)
    _show_list(specs, as_json=as_json)
    for sentence in unread:
        click.echo(sentence, err=True)
    if unread:
        raise click.exceptions.Exit(1)


def _show_list(specs: Sequence[TableSpec], *, as_json: bool) -> None:
    if as_json:
        print_json(
            [
                {
                    "name": spec.name,
                    "topics": list(spec.topics),
                    "value": spec.value_format,
                    "mode": spec.mode,
                    "filled_by": spec.filled_by,
                    "format": spec.format,
                    "location": spec.location,
                }
                for spec in specs
            ]
        )
        return
    print_table(
        ("TABLE", "TOPICS", "VALUE", "MODE", "FORMAT"),
        (
            (
                spec.name,
                ",".join(spec.topics),
                "of queries" if spec.is_of_queries else spec.value_format,
                spec.mode,
                spec.format,
            )
            for spec in specs
        ),
    )


@click.command()
@click.argument("name")
@tables_option
@bootstrap_option
@json_option
def status(name: str, tables: Location, bootstrap: str | None, as_json: bool) -> None:
    """Show how far the table NAME is, what it holds, and how far its topics are ahead of it.

    Of a table that queries of Spark fill, the last batch of each query.
    """
    spec = load_table(tables, name)
    store = open_store(spec, create=True)
    if spec.is_of_queries:
        from strandline.cli.table_results import show_status

        show_status(store, as_json=as_json)
        return
    state = store.state()
    settings = ClientSettings(
        client_id="strandline-cli",
        operation_timeout_ms=_LAG_PATIENCE_MS,
        security=client_config().security,
    )
    with ClusterClient(bootstrap_of(bootstrap), settings) as client:
        reached, lag, trouble = progress_of(client, spec, state)
    sides = {
        side: {"missing": len(absent_files(held.files)), **held.counts()}
        for side, held in held_in(store).items()
    }
    if as_json:
        print_json(_status_as_json(spec, state, reached, lag, sides))
    else:
        _print_status(spec, state, reached, lag, sides)
    if trouble is not None:
        click.echo(f"The lag is not known: {trouble}", err=True)


@click.command()
@click.argument("name")
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=20,
    show_default=True,
    metavar="N",
    help="How many commits at most.",
)
@tables_option
@json_option
def history(name: str, limit: int, tables: Location, as_json: bool) -> None:
    """Show the last commits of the table NAME, the newest first, with the offsets they hold."""
    store = open_store(load_table(tables, name), create=True)
    records = store.history(limit)
    if as_json:
        print_json(
            [
                {
                    "sequence": each.sequence,
                    "version": each.version,
                    "time": time_text(each.at_ms),
                    "kind": each.kind,
                    "rows": each.rows,
                    "late_rows": each.late_rows,
                    "dead_letters": each.dead_letters,
                    "dropped": each.dropped,
                    "through": each.through,
                    "query_id": each.query_id,
                    "batch_id": each.batch_id,
                    "ranges": [list(item[:4]) for item in each.ranges],
                    "lost": [list(item[:4]) for item in each.lost],
                    "files_added": each.files_added,
                    "files_removed": each.files_removed,
                }
                for each in records
            ]
        )
        return
    print_table(
        ("COMMIT", "TIME", "KIND", "ROWS", "LATE", "DEAD", "FILES", "OFFSETS"),
        (
            (
                each.sequence,
                time_text(each.at_ms),
                each.kind,
                each.rows,
                each.late_rows,
                each.dead_letters,
                f"+{each.files_added} -{each.files_removed}",
                " ".join(
                    f"{item.topic}-{item.partition}:{item.start}..{item.end}"
                    for item in each.ranges
                )
                or (f"batch {each.batch_id} of {each.query_id}" if each.query_id else ""),
            )
            for each in records
        ),
    )


def _status_as_json(
    spec: TableSpec,
    state: TableState,
    reached: Reached,
    lag: Lag | None,
    sides: dict[str, dict[str, int]],
) -> dict[str, Any]:
    return {
        "table": spec.name,
        "topics": list(spec.topics),
        "location": spec.location,
        "format": spec.format,
        "commits": state.sequence,
        "version": state.version,
        "watermark": None if state.watermark_us is None else time_text(state.watermark_us // 1000),
        "held": sides,
        "lag": lag_as_json(lag),
        "partitions": [
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "start": start,
                "end": end,
                "lag": None if lag is None else lag.by_partition.get(partition),
            }
            for partition, (start, end) in sorted(reached.items())
        ],
    }


def _print_status(
    spec: TableSpec,
    state: TableState,
    reached: Reached,
    lag: Lag | None,
    sides: dict[str, dict[str, int]],
) -> None:
    click.echo(f"Table {spec.name} of {', '.join(spec.topics)}: {spec.format}, {spec.mode}")
    click.echo(f"  in           {spec.location}")
    if spec.is_transformed:
        click.echo(f"  through      {spec.select or spec.transform}")
    for side, held in sides.items():
        if side == "rows" or held["rows"]:
            click.echo(
                f"  {side.replace('_', ' '):<13}{held['rows']:,} in "
                f"{counted(held['files'], 'file')}, {size_text(held['bytes'])}"
            )
        if held["missing"]:
            click.echo(
                f"  MISSING      {counted(held['missing'], 'file')} of these "
                f"{'is' if held['missing'] == 1 else 'are'} not there, or not whole: see "
                f"{typed(f'strandline table verify {spec.name}')}"
            )
    click.echo(f"  commits      {state.sequence}")
    if state.watermark_us is not None:
        click.echo(f"  watermark    {time_text(state.watermark_us // 1000)}")
    if lag is not None:
        seconds = "" if lag.seconds is None else f", {lag.seconds:,.0f} s"
        click.echo(f"  behind       {counted(lag.records, 'record')}{seconds}")
    click.echo()
    print_table(
        ("TOPIC", "PARTITION", "FROM", "UP TO", "BEHIND"),
        (
            (
                *partition,
                start,
                end,
                None if lag is None else lag.by_partition.get(partition),
            )
            for partition, (start, end) in sorted(reached.items())
        ),
    )
