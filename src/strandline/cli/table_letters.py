"""`strandline table dead-letters`: look at what could not become rows, and try it again."""

from __future__ import annotations

from itertools import islice

import click

from strandline.cli.connecting import json_option
from strandline.cli.output import counted, json_bytes, print_json, print_table, shown_bytes
from strandline.cli.spark_logging import silence_py4j
from strandline.cli.table_options import carrying, load_table, spark_options, tables_option
from strandline.cli.whole_sentences import SentencesGroup
from strandline.lakehouse.deadletters.listing import LetterFilter, list_letters
from strandline.lakehouse.deadletters.replaying import replay as replay_letters
from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.spark_options import SparkOptions
from strandline.lakehouse.tables.store import open_store

_SHOWN_CHARS = 60


@click.group("dead-letters", cls=SentencesGroup)
def dead_letters() -> None:
    """Look at records that could not become rows, and try them again."""


@dead_letters.command("list")
@click.argument("name")
@click.option("--error", "error_class", metavar="CLASS", help="Only of this kind of error.")
@click.option("--partition", type=click.IntRange(0), metavar="N", help="Only of this partition.")
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=50,
    show_default=True,
    metavar="N",
    help="How many at most.",
)
@tables_option
@json_option
def list_command(
    name: str,
    error_class: str | None,
    partition: int | None,
    limit: int,
    tables: Location,
    as_json: bool,
) -> None:
    """Show the dead letters of the table NAME: where each record is, and what is wrong with it."""
    store = open_store(load_table(tables, name, of_topics=True), create=True)
    wanted = LetterFilter(error_class=error_class, partition=partition)
    letters = list(islice(list_letters(store, wanted), limit))
    if as_json:
        print_json(
            [
                {
                    "topic": each.topic,
                    "partition": each.partition,
                    "offset": each.offset,
                    "offset_end": each.offset_end,
                    "error_class": each.error_class,
                    "error": each.error,
                    "key": json_bytes(each.key),
                    "payload": json_bytes(each.payload),
                }
                for each in letters
            ]
        )
        return
    print_table(
        ("RECORD", "OFFSET", "ERROR", "WHAT", "PAYLOAD"),
        (
            (
                f"{each.topic}-{each.partition}",
                each.offset,
                each.error_class,
                each.error,
                shown_bytes(each.payload)[:_SHOWN_CHARS],
            )
            for each in letters
        ),
    )


@dead_letters.command()
@click.argument("name")
@click.option("--error", "error_class", metavar="CLASS", help="Only of this kind of error.")
@click.option("--partition", type=click.IntRange(0), metavar="N", help="Only of this partition.")
@spark_options
@tables_option
@json_option
def replay(
    name: str,
    error_class: str | None,
    partition: int | None,
    spark: SparkOptions,
    tables: Location,
    as_json: bool,
) -> None:
    """Try the dead letters of the table NAME again, after its definition was mended.

    Those that are rows now move into the table, each exactly once; the others stay. Spark is
    started for a table with a select or a transform, and for many letters.
    """
    store = open_store(load_table(tables, name, of_topics=True), create=True)
    wanted = LetterFilter(error_class=error_class, partition=partition)
    if store.spec.is_transformed:
        from strandline.lakehouse.transforming.replaying import replay_through

        silence_py4j()
        done = replay_through(store, wanted, spark)
    else:
        with carrying(store, spark):
            done = replay_letters(store, wanted)
    if as_json:
        print_json({"replayed": done.replayed, "still_dead": done.still_dead})
        return
    click.echo(f"{counted(done.replayed, 'dead letter')} became rows; {done.still_dead:,} did not.")
