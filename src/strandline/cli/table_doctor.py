"""`strandline table doctor`: what a run of a table would miss."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from strandline.cli.client_config import client_config
from strandline.cli.connecting import bootstrap_option, json_option
from strandline.cli.output import print_json
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
from strandline.lakehouse.tables.definition import TableSpec

if TYPE_CHECKING:
    from strandline.lakehouse.doctor import Finding


@click.command()
@click.argument("name")
@click.option("--no-spark", is_flag=True, help="Only what this process can tell.")
@connecting_spark_options
@tables_option
@bootstrap_option
@json_option
def doctor(
    name: str,
    no_spark: bool,
    spark: SparkOptions,
    tables: Location,
    bootstrap: str | None,
    as_json: bool,
) -> None:
    """Try what a run of table NAME needs: its store, catalog and topics, here and on executors.

    Nothing of the table is changed. Ends with 0 if all is there, and with 1 if something is not.
    """
    spec = load_table(tables, name, of_topics=True)
    address = bootstrap_of(bootstrap)
    silence_py4j()
    findings = []
    for finding in _findings(spec, address, None if no_spark else spark):
        findings.append(finding)
        if not as_json:
            part, is_good, sentence = finding
            click.echo(f"{'good' if is_good else 'WRONG':<6}{part:<10}{sentence}")
    if as_json:
        print_json([each._asdict() for each in findings])
    if not all(each.is_good for each in findings):
        raise click.exceptions.Exit(1)


def _findings(spec: TableSpec, address: str, spark: SparkOptions | None) -> Iterator[Finding]:
    from strandline.lakehouse.doctor import Finding, examine_executors, examine_here
    from strandline.lakehouse.pipeline.options import RunOptions
    from strandline.lakehouse.spark_errors import OF_SPARK, cause_of

    reading = RunOptions(bootstrap=address, config=client_config()).read_settings(spec)
    was_good = True
    for finding in examine_here(spec, reading):
        was_good &= finding.is_good
        yield finding
    if spark is None or not was_good:
        return
    try:
        with one_session(f"table doctor {spec.name}", spark, tell=print_notice) as session:
            yield from examine_executors(session, spec, reading)
    except OF_SPARK as error:
        yield Finding("executor", False, cause_of(error))
