"""A topic that Spark computes from the demo's topic: delays of each airline by month.

A streaming query reads the departures, keeps the numbers of each airline and month as its state,
and writes those that a batch has changed to a compacted topic: a batch is one transaction
(`TopicSink`). A reader of committed records then has the newest numbers of each key, and they
count each departure once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession, functions

from strandline.client.admin import Admin
from strandline.client.cluster import ClusterClient
from strandline.client.settings import ClientSettings
from strandline.lakehouse.sink.transactional import TopicSink

TOPIC: Final = "delays-by-airline"
_PARTITIONS: Final = 3
_DEPARTURES_PER_BATCH: Final = 200_000
_FIELDS: Final = "carrier string, month int, dep_delay int"


class Computed(NamedTuple):
    """What the topic says."""

    transactions: int
    records: int
    """Written to the topic, several for a key that more than one batch changed."""
    departures: int
    """The sum over the newest record of each key."""
    columns: tuple[str, ...]
    latest: list[tuple[object, ...]]
    """The airlines that leave latest."""


def compute(spark: SparkSession, bootstrap: str, source: str, checkpoint: Path) -> Computed:
    """Compute the topic from all that `source` holds, and read it. Raises errors of Spark's."""
    with ClusterClient(bootstrap, ClientSettings(client_id="strandline-demo")) as client:
        settings = {"cleanup.policy": "compact"}
        Admin(client).topics.create(TOPIC, partitions=_PARTITIONS, configs=settings)
    departures = (
        spark.readStream.format("strandline")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(_DEPARTURES_PER_BATCH))
        .load()
    )
    query = (
        _delays(departures)
        .writeStream.foreachBatch(_sink(bootstrap))
        .outputMode("update")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return _read(spark, bootstrap, _sink(bootstrap))


def _sink(bootstrap: str) -> TopicSink:
    return TopicSink(
        {"kafka.bootstrap.servers": bootstrap, "topic": TOPIC, "kafka.transactional.id": TOPIC}
    )


def _delays(departures: DataFrame) -> DataFrame:
    """Per airline and month, as keys and values of the topic."""
    known = departures.select(
        functions.from_json(departures.value.cast("string"), _FIELDS).alias("departure")
    ).select("departure.*")
    delays = known.groupBy("carrier", "month").agg(
        functions.count("*").alias("flights"),
        functions.count("dep_delay").alias("departed"),
        functions.sum("dep_delay").alias("delay_min"),
    )
    return delays.select(
        functions.concat_ws("-", "carrier", "month").alias("key"),
        functions.to_json(functions.struct(*delays.columns)).alias("value"),
    )


def _read(spark: SparkSession, bootstrap: str, sink: TopicSink) -> Computed:
    """As every reader of committed records would: the newest value of each key counts."""
    written = (
        spark.read.format("strandline")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", TOPIC)
        .load()
    ).persist()
    newest = written.groupBy("key").agg(functions.max_by("value", "offset").alias("value"))
    fields = "carrier string, month int, flights long, departed long, delay_min long"
    delays = newest.select(
        functions.from_json(newest.value.cast("string"), fields).alias("of")
    ).select("of.*")
    airlines = delays.groupBy("carrier").agg(
        functions.sum("flights").alias("flights"),
        functions.round(functions.sum("delay_min") / functions.sum("departed"), 1).alias(
            "mean_delay_min"
        ),
    )
    rows = airlines.orderBy(functions.desc("mean_delay_min")).collect()
    last_batch = sink.last_batch()
    computed = Computed(
        transactions=0 if last_batch is None else last_batch + 1,
        records=written.count(),
        departures=sum(row.flights for row in rows),
        columns=tuple(airlines.columns),
        latest=[tuple(row) for row in rows[:3]],
    )
    written.unpersist()
    return computed
