"""The proof for a table that has one row per key: it is that of the key's newest record.

The log's records below the frontier are reduced to the newest one of each key in each partition,
without those that are dead letters. One that the table's transform dropped, or whose row went for
its age, counts as a tombstone: its key has no row. The table must have a row for exactly those keys
whose newest record is no tombstone, and it must be that record's. A key that occurs in several
partitions, because some were added, has the row of the partition that was committed last, which the
log does not tell: then the newest record of either is right, and so is no row if one of them is a
tombstone. A key that the log no longer knows, by retention, can only be proven to be there once.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from strandline.lakehouse.tables.definition import DEAD_LETTERS, DROPPED, EXPIRED
from strandline.lakehouse.verify.compared import Compared
from strandline.lakehouse.verify.places import logged
from strandline.lakehouse.verify.report import Verdict

_RECORD: Final = ("topic", "partition", "offset")
_HERE: Final = ("topic", "partition")


def judge_keys(compared: Compared) -> DataFrame:
    """topic, partition, offset, rows and verdict of every key that the log or the table has."""
    spark = compared.spark
    dead = compared.held(DEAD_LETTERS).select(*_RECORD)
    logs = logged(spark, compared.ranges(), compared.settings, with_keys=True)
    logs = logs.where("key is not null").join(dead, list(_RECORD), "left_anti")
    for side in filter(compared.has, (DROPPED, EXPIRED)):
        gone = compared.held(side).select(*_RECORD, f.lit(True).alias("gone"))
        logs = logs.join(gone, list(_RECORD), "left")
        logs = logs.withColumn("deleted", f.col("deleted") | f.col("gone").isNotNull()).drop("gone")
    newest = (
        logs.groupBy("key", *_HERE)
        .agg(f.max_by(f.struct("offset", "deleted"), "offset").alias("last"))
        .select("key", f.struct(*_HERE, "last.offset").alias("record"), "last.deleted")
        .groupBy("key")
        .agg(
            f.collect_list(f.when(~f.col("deleted"), f.col("record"))).alias("newest"),
            f.max("deleted").alias("may_be_gone"),
            f.max("record").alias("any_record"),
        )
    )
    in_table = (
        compared.held(None)
        .groupBy("key")
        .agg(f.count("*").alias("rows"), f.max(f.struct(*_RECORD)).alias("held"))
    )
    keys = newest.join(in_table, "key", "full_outer").withColumn(
        "place", f.coalesce("held", "any_record")
    )
    keys = keys.select("newest", "may_be_gone", "held", "rows", "place.*")
    return (
        keys.join(f.broadcast(compared.facts_frame()), ["topic", "partition"], "left")
        .withColumn("verdict", _verdict())
        .where("verdict is not null")
        .select(
            *_RECORD,
            f.coalesce("rows", f.lit(0)).alias("rows"),
            f.lit(0).alias("late"),
            f.lit(0).alias("dead_letters"),
            f.lit(0).alias("dropped"),
            f.lit(0).alias("expired"),
            "verdict",
        )
    )


def _verdict() -> Column:
    """Of one key; null for one that is nowhere, as it should be after a tombstone."""
    is_known = f.col("newest").isNotNull()
    has_row = f.col("rows").isNotNull()
    is_inside = (f.col("offset") >= f.col("start")) & (f.col("offset") < f.col("end"))
    is_newest = f.array_contains(f.col("newest"), f.col("held"))
    return (
        f.when(has_row & ~f.coalesce(is_inside, f.lit(False)), Verdict.OUTSIDE.value)
        .when(f.col("rows") > 1, Verdict.DOUBLED.value)
        .when(~has_row & ~f.col("may_be_gone"), Verdict.MISSING.value)
        .when(~has_row, f.lit(None).cast("string"))
        .when(is_known & is_newest, Verdict.GOOD.value)
        .when(is_known, Verdict.STALE.value)
        .when(f.col("offset") < f.col("log_start"), Verdict.UNPROVABLE.value)
        # Compaction keeps the newest record of a key, unless it is a tombstone, whose key has no
        # row: a row without any record in the log is one that was deleted.
        .when(f.col("compacted"), Verdict.STALE.value)
        .otherwise(Verdict.UNEXPLAINED.value)
    )
