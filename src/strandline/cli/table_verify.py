"""`strandline table verify`: the proof, and what it found."""

from __future__ import annotations

import click

from strandline.cli.client_config import client_config
from strandline.cli.connecting import bootstrap_option, json_option
from strandline.cli.output import print_json, print_table
from strandline.cli.spark_logging import silence_py4j
from strandline.cli.table_options import (
    bootstrap_of,
    connecting_spark_options,
    load_table,
    print_notice,
    tables_option,
)
from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.spark_options import SparkOptions
from strandline.lakehouse.verify.report import Report, Verdict


@click.command()
@click.argument("name")
@click.option(
    "--checkpoint",
    metavar="DIR",
    help="Of a query that fills the table: what it says is committed must be there.",
)
@click.option("--all", "everything", is_flag=True, help="Compare what the last proof showed, too.")
@connecting_spark_options
@tables_option
@bootstrap_option
@json_option
def verify(
    name: str,
    checkpoint: str | None,
    everything: bool,
    spark: SparkOptions,
    tables: Location,
    bootstrap: str | None,
    as_json: bool,
) -> None:
    """Prove that table NAME holds every record below its frontier exactly once.

    A record is a row, a late row or a dead letter, or it was dropped by the table's transform. In a
    table that is upserted, each key must have the row of its newest record. Ends with 0 when that
    is so, as far as the log can still tell, and with 1 when it is not.

    A proof goes on from the last one that found nothing wrong: offsets that came since, and those
    of files that were written again since, are compared. --all compares everything.

    Of a table that queries of Spark fill, it is shown that each batch is there once, with its rows;
    with --checkpoint, that the table has what the query's checkpoint says. That needs no Spark.
    """
    spec = load_table(tables, name)
    if spec.is_of_queries:
        from strandline.cli.table_results import show_proof
        from strandline.lakehouse.tables.store import open_store

        show_proof(open_store(spec, create=True), checkpoint, as_json=as_json)
        return
    if checkpoint is not None:
        raise click.UsageError("--checkpoint is for a table that queries fill.")
    address = bootstrap_of(bootstrap)
    from strandline.lakehouse.verify.running import verify_table

    silence_py4j()
    report = verify_table(
        spec,
        address,
        config=client_config(),
        spark=spark,
        tell=print_notice,
        everything=everything,
    )
    if as_json:
        print_json(report.as_json())
    else:
        show_report(report)
    if not report.is_good:
        raise click.exceptions.Exit(1)


def show_report(report: Report) -> None:
    """The numbers by partition, then what they mean."""
    verdicts = [
        each
        for each in Verdict
        if each is Verdict.GOOD or each is Verdict.MISSING or report.total(each)
    ]
    beside = [place for place in ("dropped", "expired") if report.place(place)]
    print_table(
        (
            "TOPIC",
            "PARTITION",
            "FROM",
            "UP TO",
            "ROWS",
            "LATE",
            "DEAD",
            *(each.upper() for each in beside),
            *(each.name for each in verdicts),
        ),
        (
            (
                *partition,
                each.start,
                each.end,
                each.places.get("rows", 0),
                each.places.get("late", 0),
                each.places.get("dead_letters", 0),
                *(each.places.get(place, 0) for place in beside),
                *(each.counts.get(verdict, 0) for verdict in verdicts),
            )
            for partition, each in sorted(report.partitions.items())
        ),
    )
    for example in report.examples:
        click.echo(f"{example.verdict.value}: {example.partition} offset {example.offset}")
    for sentence in report.sentences():
        click.echo(sentence)
