"""`strandline table rebuild` and `diff`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import click

from strandline.cli.client_config import client_config
from strandline.cli.connecting import bootstrap_option, json_option
from strandline.cli.moments import parse_time
from strandline.cli.output import counted, print_json
from strandline.cli.spark_logging import silence_py4j
from strandline.cli.table_options import (
    bootstrap_of,
    connecting_spark_options,
    load_table,
    print_notice,
    tables_option,
)
from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.spark_options import SparkOptions, one_session
from strandline.types import TopicPartition

if TYPE_CHECKING:
    from strandline.lakehouse.reading.catalogue import Catalogue
    from strandline.lakehouse.rebuild.diff import Difference


@click.command()
@click.argument("name")
@click.option(
    "--partition",
    "partitions",
    type=click.IntRange(0),
    multiple=True,
    metavar="N",
    help="Only this partition of the topics; may be repeated.",
)
@click.option("--since", metavar="TIME", help="Only records stamped at or after this time.")
@click.option("--until", metavar="TIME", help="Only records stamped before this time.")
@connecting_spark_options
@tables_option
@bootstrap_option
@json_option
def rebuild(
    name: str,
    partitions: tuple[int, ...],
    since: str | None,
    until: str | None,
    spark: SparkOptions,
    tables: Location,
    bootstrap: str | None,
    as_json: bool,
) -> None:
    """Make table NAME again from the log, as NAME__rebuild beside it, and show what differs.

    The live table is only read. Ends with 0 when the two are the same, and with 1 when not.
    """
    spec = load_table(tables, name, of_topics=True)
    if spec.mode == "upsert" and (since or until):
        raise click.UsageError(
            "A table that is upserted cannot be made again from a stretch of time: its rows "
            "depend on all that came before."
        )
    since_ms = None if since is None else parse_time(since, "--since")
    until_ms = None if until is None else parse_time(until, "--until")
    address = bootstrap_of(bootstrap)
    from strandline.lakehouse.pipeline import log_facts
    from strandline.lakehouse.pipeline.options import RunOptions
    from strandline.lakehouse.pipeline.start_offsets import check_same_logs
    from strandline.lakehouse.reading.catalogue import Catalogue
    from strandline.lakehouse.rebuild.diff import difference
    from strandline.lakehouse.rebuild.job import rebuild as make_again
    from strandline.lakehouse.rebuild.selection import selection
    from strandline.lakehouse.tables.store import open_store

    store = open_store(spec, create=True)
    store.settle()
    settings = RunOptions(bootstrap=address, config=client_config()).read_settings(spec)
    frontiers = store.state().frontiers
    facts = log_facts.ask(settings, spec.topics, frontiers)
    check_same_logs(frontiers, facts)
    with Catalogue(settings) as catalogue:
        ranges = selection(
            frontiers,
            facts,
            partitions=partitions,
            since=_at(catalogue, facts.latest, since_ms),
            until=_at(catalogue, facts.latest, until_ms),
        )
    silence_py4j()
    with one_session(f"table rebuild {name}", spark, tell=print_notice) as session:
        rebuilt = make_again(session, spec, settings, ranges, tell=_progress(as_json=as_json))
        found = difference(session, store, rebuilt, ranges)
    _show(name, found, as_json=as_json)


@click.command()
@click.argument("name")
@connecting_spark_options
@tables_option
@json_option
def diff(name: str, spark: SparkOptions, tables: Location, as_json: bool) -> None:
    """Compare table NAME with the rebuild that was made of it.

    Ends with 0 when the two are the same, and with 1 when not.
    """
    spec = load_table(tables, name, of_topics=True)
    from strandline.lakehouse.rebuild.diff import difference
    from strandline.lakehouse.rebuild.job import open_rebuild
    from strandline.lakehouse.tables.store import open_store

    rebuilt, ranges = open_rebuild(spec)
    silence_py4j()
    with one_session(f"table diff {name}", spark, tell=print_notice) as session:
        found = difference(session, open_store(spec), rebuilt, ranges)
    _show(name, found, as_json=as_json)


def _at(
    catalogue: Catalogue, ends: Mapping[TopicPartition, int], time_ms: int | None
) -> dict[TopicPartition, int] | None:
    """The first offset at or after a time, or the end."""
    if time_ms is None:
        return None
    found = catalogue.at_times(dict.fromkeys(ends, time_ms))
    return {each: ends[each] if offset is None else offset for each, offset in found.items()}


def _progress(*, as_json: bool) -> Callable[[int, int], None]:
    def tell(done: int, of: int) -> None:
        if not as_json:
            click.echo(f"{done:,} of {counted(of, 'offset')} read again", err=True)

    return tell


def _show(name: str, found: Difference, *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "table": name,
                "same": found.same,
                "changed": found.changed,
                "only_live": found.only_live,
                "only_rebuilt": found.only_rebuilt,
                "dead_in_live": found.dead_in_live,
                "dead_in_rebuilt": found.dead_in_rebuilt,
                "columns": found.columns,
                "schema": found.schema,
                "examples": found.examples,
            }
        )
    else:
        for line in _lines(found):
            click.echo(line)
    if not found.is_none:
        raise click.exceptions.Exit(1)


def _lines(found: Difference) -> list[str]:
    lines = [f"{counted(found.same, 'row')} are the same."]
    for count, what in (
        (found.changed, "have other values in the rebuild"),
        (found.only_live, "are only in the live table"),
        (found.only_rebuilt, "are only in the rebuild"),
        (found.dead_in_rebuilt, "of the live table are dead letters of the rebuild"),
        (found.dead_in_live, "of the rebuild are dead letters of the live table"),
    ):
        if count:
            lines.append(f"{counted(count, 'row')} {what}.")
    lines += [f"  column {name}: {count:,} values" for name, count in found.columns.items()]
    lines += found.schema
    lines += [
        f"{each['kind']}: {each['topic']}-{each['partition']} offset {each['offset']}"
        + (f" in {', '.join(each['columns'])}" if each["columns"] else "")
        for each in found.examples
    ]
    return lines
