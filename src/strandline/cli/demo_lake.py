"""What the demo shows of a table in a store: that it is found by its name, and by what."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Final

import click

from strandline.cli.output import print_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from strandline.lakehouse.demo.lake import Lake
    from strandline.lakehouse.locations.location import Location

_FORMAT: Final = "strandline_table"
_QUERY: Final = (
    "select carrier, count(*) as flights, max(dep_delay) as worst_min from flights "
    "group by carrier order by flights desc, carrier limit 5"
)


def read_by_name(spark: SparkSession, tables: Location) -> None:
    """Ask Spark and DuckDB the same of the table `flights` in `tables`, and show both answers.

    Raises `click.ClickException` where they differ.
    """
    from strandline.lakehouse.query.duck import query

    click.echo(f"\nThe same table by its name. Spark, spark.read.format({_FORMAT!r}):")
    rows = spark.read.format(_FORMAT).option("tables", str(tables)).load("flights")
    rows.createOrReplaceTempView("flights")
    found = spark.sql(_QUERY)
    from_spark = [tuple(row) for row in found.collect()]
    print_table([name.upper() for name in found.columns], from_spark)
    click.echo("\nDuckDB, without Spark, strandline table query:")
    answer = query(_QUERY, tables)
    from_duckdb = [tuple(row.values()) for row in answer.to_pylist()]
    print_table([name.upper() for name in answer.column_names], from_duckdb)
    if from_spark != from_duckdb:
        raise click.ClickException("Spark and DuckDB do not see the same table.")


def stay(bootstrap: str, lake: Lake) -> None:
    """Say how to go on in another terminal, and wait for Ctrl-C."""
    click.echo("\nCluster, S3 server and catalog stay until Ctrl-C. In another terminal:\n")
    for name, value in lake.environment.items():
        click.echo(f"export {name}={value}")
    click.echo(f'strandline table query "{_QUERY}"')
    click.echo(f"strandline table status flights --bootstrap {bootstrap}")
    click.echo("strandline table history flights")
    try:
        signal.pause()
    except KeyboardInterrupt:
        click.echo()
