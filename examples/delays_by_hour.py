"""How late departures were: by airport and hour, each hour written once, when it is final.

A flight that leaves four hours late is known four hours after its hour. The watermark says for how
long an hour is kept open; what comes later still is dropped, and counted in the query's progress.
"""

from __future__ import annotations

from pathlib import Path

import click
from flights import flights, run
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from strandline.lakehouse.session import session


def delays_by_hour(rows: DataFrame, open_for: str) -> DataFrame:
    """One row for each airport and hour, as soon as the hour is closed."""
    return (
        rows.withWatermark("scheduled", open_for)
        .groupBy(F.window("scheduled", "1 hour"), "origin")
        .agg(
            F.count("*").alias("flights"),
            F.count_if(F.col("dep_delay").isNull()).alias("cancelled"),
            F.avg("dep_delay").alias("delay_minutes"),
            F.max("dep_delay").alias("longest_minutes"),
        )
        .select(
            F.col("window.start").alias("hour"),
            "origin",
            "flights",
            "cancelled",
            "delay_minutes",
            "longest_minutes",
        )
    )


@click.command()
@click.argument("servers")
@click.argument("topic")
@click.argument("place", type=click.Path(path_type=Path))
@click.option("--open-for", default="24 hours", show_default=True, help="The watermark's delay.")
@click.option("--keep-running", is_flag=True, help="Wait for more, instead of ending.")
def main(servers: str, topic: str, place: Path, open_for: str, keep_running: bool) -> None:
    """Read a TOPIC of flights from SERVERS (host:port,...) and write the hours to PLACE."""
    spark = session("delays by hour")
    rows = flights(spark, servers, topic)
    run(delays_by_hour(rows, open_for), place, keep_running=keep_running)
    hours = spark.read.parquet(str(place / "rows"))
    hours.orderBy(F.desc("delay_minutes")).show(10, truncate=False)


if __name__ == "__main__":
    main()
