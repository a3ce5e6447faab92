"""The working days of aircraft: legs of one aircraft that follow each other without a long rest.

A session ends when nothing came for so long; it is written once, when the watermark has passed its
end, so that a leg which is known late still joins the day that it belongs to.
"""

from __future__ import annotations

from pathlib import Path

import click
from flights import flights, run
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from strandline.lakehouse.session import session


def working_days(rows: DataFrame, rest: str, open_for: str) -> DataFrame:
    """One row for each day of an aircraft, as soon as its rest is long enough to be sure."""
    return (
        rows.where("tailnum is not null and dep_delay is not null")
        .withWatermark("scheduled", open_for)
        .groupBy("tailnum", F.session_window("scheduled", rest))
        .agg(
            F.count("*").alias("legs"),
            F.sum("distance").alias("miles"),
            F.sum(F.greatest("dep_delay", F.lit(0))).alias("minutes_late"),
            F.min("scheduled").alias("first_leg"),
            F.max("scheduled").alias("last_leg"),
        )
        .drop("session_window")
    )


@click.command()
@click.argument("servers")
@click.argument("topic")
@click.argument("place", type=click.Path(path_type=Path))
@click.option("--rest", default="8 hours", show_default=True, help="The gap that ends a day.")
@click.option("--open-for", default="24 hours", show_default=True, help="The watermark's delay.")
@click.option("--keep-running", is_flag=True, help="Wait for more, instead of ending.")
def main(
    servers: str, topic: str, place: Path, rest: str, open_for: str, keep_running: bool
) -> None:
    """Read a TOPIC of flights from SERVERS (host:port,...) and write working days to PLACE."""
    spark = session("aircraft sessions")
    rows = flights(spark, servers, topic)
    run(working_days(rows, rest, open_for), place, keep_running=keep_running)
    days = spark.read.parquet(str(place / "rows"))
    days.orderBy(F.desc("legs"), F.desc("miles")).show(10, truncate=False)


if __name__ == "__main__":
    main()
