"""What the examples share: the demo's flights as rows, and a stream into a directory of Parquet."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- the customary name

_FIELDS = (
    "time_hour timestamp, minute int, origin string, dest string, tailnum string, "
    "dep_delay int, distance int"
)


def flights(spark: SparkSession, servers: str, topic: str) -> DataFrame:
    """The topic's records as a stream: the fields of each flight, and when it was to leave."""
    records = (
        spark.readStream.format("strandline")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    parsed = records.select(F.from_json(F.col("value").cast("string"), _FIELDS).alias("flight"))
    return parsed.select("flight.*").withColumn("scheduled", _scheduled())


def _scheduled() -> Column:
    return F.col("time_hour") + F.make_dt_interval(mins=F.col("minute"))


def run(rows: DataFrame, place: Path, *, keep_running: bool) -> None:
    """Append the rows to a directory, each exactly once, whatever ends the process meanwhile."""
    writer = rows.writeStream.format("parquet").option("path", str(place / "rows"))
    writer = writer.option("checkpointLocation", str(place / "checkpoint"))
    writer = (
        writer.trigger(processingTime="10 seconds")
        if keep_running
        else writer.trigger(availableNow=True)
    )
    writer.start().awaitTermination()
