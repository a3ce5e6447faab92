"""A driver that fills a table with counts of windows, and is killed at the commit of a batch:

python -m tests.lakehouse.results.dying_driver BOOTSTRAP TOPIC DIRECTORY before|after BATCH

`before`: when all tasks have written their files; `after`: when the commit was made, before Spark
notes that in its checkpoint.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.datasource import DataSourceStreamArrowWriter
from pyspark.sql.types import StructType

from strandline.lakehouse.query.format import TableDataSource
from strandline.lakehouse.results.format import ResultStreamWriter
from strandline.lakehouse.session import session


def counts_of(
    spark: SparkSession, bootstrap: str, topic: str, *, watermark: str | None = "1 minute"
) -> DataFrame:
    """Orders by minute and city, twelve records of the topic in a batch at most."""
    orders = (
        spark.readStream.format("strandline")
        .option("bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 12)
        .load()
        .select(f.from_json(f.col("value").cast("string"), "at timestamp, city string").alias("o"))
        .select("o.*")
    )
    if watermark is not None:
        orders = orders.withWatermark("at", watermark)
    return orders.groupBy(f.window("at", "1 minute"), "city").count()


def write(counts: DataFrame, directory: Path, name: str) -> None:
    """All that is there, into the table `counts`."""
    (
        counts.writeStream.format(name)
        .outputMode("append")
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(directory / "counts"))
        .awaitTermination()
    )


def kill(group: int) -> None:
    """End driver and JVM, and this process that makes the commit, which would outlive them."""
    os.killpg(group, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Run until the end, which is not reached."""
    bootstrap, topic, directory, moment, batch = sys.argv[1:]
    group = os.getpgid(0)

    class Dying(TableDataSource):
        @classmethod
        def name(cls) -> str:
            return "dying"

        def streamWriter(  # noqa: N802
            self, schema: StructType, overwrite: bool
        ) -> DataSourceStreamArrowWriter:
            class Writer(ResultStreamWriter):
                def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
                    dies = batchId == int(batch)
                    if dies and moment == "before":
                        kill(group)
                    super().commit(messages, batchId)
                    if dies:
                        kill(group)

            return Writer(self.options, schema, complete=overwrite)

    spark = session(
        "dying",
        master="local[1]",
        memory="512m",
        java_options="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        log_level="OFF",
        conf={"spark.sql.shuffle.partitions": "1"},
    )
    spark.dataSource.register(Dying)
    write(counts_of(spark, bootstrap, topic), Path(directory), "dying")


if __name__ == "__main__":
    main()
