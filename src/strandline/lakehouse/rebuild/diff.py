"""What differs between a table and its rebuild, as a Spark job.

Rows are matched by where their record was, or in a table that is upserted by key. Columns are
compared as values, whatever types they have (`alike`). A row that is a dead letter on the other
side is told apart: its decoding changed, and nothing is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from strandline.lakehouse.rebuild.alike import alike
from strandline.lakehouse.rebuild.rows import rows_of
from strandline.lakehouse.tables.definition import DEAD_LETTERS, LATE
from strandline.lakehouse.tables.identity import OffsetRange
from strandline.lakehouse.tables.names import OwnNames
from strandline.lakehouse.tables.store import TableStore
from strandline.lakehouse.verify.places import held

EXAMPLES: Final = 20
_FROM: Final = "=from"
_TO: Final = "=to"
"""Of ranges, beside the columns of a table, none of which can be called so."""


@dataclass(slots=True)
class Difference:
    """See the module. Numbers of rows."""

    same: int = 0
    changed: int = 0
    only_live: int = 0
    only_rebuilt: int = 0
    dead_in_rebuilt: int = 0
    """Rows of the live table that are dead letters of the rebuild."""
    dead_in_live: int = 0
    columns: dict[str, int] = field(default_factory=dict)
    """Changed values by column."""
    schema: list[str] = field(default_factory=list)
    """How the columns themselves differ, in sentences."""
    examples: list[dict[str, Any]] = field(default_factory=list)

    @property
    def is_none(self) -> bool:
        """Whether the two are the same, apart from the types of columns."""
        return not (
            self.changed
            or self.only_live
            or self.only_rebuilt
            or self.dead_in_live
            or self.dead_in_rebuilt
        )


def difference(
    spark: SparkSession, live: TableStore, rebuilt: TableStore, ranges: Sequence[OffsetRange]
) -> Difference:
    """Compare what the two have of `ranges`."""
    names = live.spec.names
    left = _within(spark, _all_rows(spark, live, names), ranges, names)
    right = _all_rows(spark, rebuilt, names)
    found = Difference(schema=schema_differences(left.schema, right.schema))
    keys = [names.key] if live.spec.mode == "upsert" else list(names.record)
    if live.spec.explode:
        keys.append(names.row)
    joined = _joined(left, right, keys, names)
    joined = _marked(joined, _dead(spark, rebuilt, names), "dead_in_rebuilt", "live")
    joined = _marked(joined, _dead(spark, live, names), "dead_in_live", "rebuilt")
    judged = joined.withColumn("kind", _kind()).persist()
    try:
        for row in judged.groupBy("kind").count().collect():
            setattr(found, row.kind, row["count"])
        changed = judged.select(f.explode("different").alias("column")).groupBy("column").count()
        found.columns = {row["column"]: row["count"] for row in changed.orderBy("column").collect()}
        wrong = judged.where("kind <> 'same'").select("kind", "different", "at.*")
        wrong = wrong.orderBy(*names.record)
        found.examples = [
            {
                "kind": row.kind,
                "topic": row[names.topic],
                "partition": row[names.partition],
                "offset": row[names.offset],
                "columns": list(row.different or ()),
            }
            for row in wrong.limit(EXAMPLES).collect()
        ]
    finally:
        judged.unpersist()
    return found


def schema_differences(live: StructType, rebuilt: StructType) -> list[str]:
    """Columns that only one side has, and those of another type."""
    ours = {each.name: each.dataType.simpleString() for each in live}
    theirs = {each.name: each.dataType.simpleString() for each in rebuilt}
    lines = [f"Column '{name}' is only in the live table." for name in ours.keys() - theirs.keys()]
    lines += [f"Column '{name}' is only in the rebuild." for name in theirs.keys() - ours.keys()]
    lines += [
        f"Column '{name}' is {ours[name]} in the live table and {theirs[name]} in the rebuild."
        for name in ours.keys() & theirs.keys()
        if ours[name] != theirs[name]
    ]
    return sorted(lines)


def _all_rows(spark: SparkSession, store: TableStore, names: OwnNames) -> DataFrame:
    """Rows and late rows, their own columns called as `names` says."""
    rows = rows_of(spark, store, None)
    if store.files(LATE):  # whatever the definition says of late rows by now
        rows = rows.unionByName(rows_of(spark, store, LATE), allowMissingColumns=True)
    return rows.withColumnsRenamed(store.spec.names.renamed(names))


def _within(
    spark: SparkSession, rows: DataFrame, ranges: Sequence[OffsetRange], names: OwnNames
) -> DataFrame:
    columns = f"{names.topic} string, {names.partition} int, `{_FROM}` long, `{_TO}` long"
    wanted = spark.createDataFrame([tuple(each[:4]) for each in ranges], columns)
    offset = f.col(names.offset)
    return (
        rows.join(f.broadcast(wanted), [names.topic, names.partition])
        .where((offset >= f.col(f"`{_FROM}`")) & (offset < f.col(f"`{_TO}`")))
        .drop(_FROM, _TO)
    )


def _joined(left: DataFrame, right: DataFrame, keys: list[str], names: OwnNames) -> DataFrame:
    """Both sides' rows as structs, where each record's row is, and which values differ."""
    sides = []
    for rows, name in ((left, "live"), (right, "rebuilt")):
        sides.append(
            rows.select(*keys, f.struct(*(f.col(f"`{each}`") for each in rows.columns)).alias(name))
        )
    both = sides[0].join(sides[1], keys, "full_outer")
    ours, theirs = ({each.name: each.dataType for each in rows.schema} for rows in (left, right))
    common = [name for name in ours if name in theirs and name not in keys]
    different = [
        f.when(
            ~alike(ours[name], theirs[name], _field("live", name), _field("rebuilt", name)),
            f.lit(name),
        )
        for name in common
    ]
    is_pair = f.col("live").isNotNull() & f.col("rebuilt").isNotNull()
    place = [
        f.coalesce(_field("live", name), _field("rebuilt", name)).alias(name)
        for name in names.record
    ]
    return both.select(
        f.struct(*place).alias("at"),
        f.col("live").isNotNull().alias("in_live"),
        f.col("rebuilt").isNotNull().alias("in_rebuilt"),
        f.when(is_pair, f.array_compact(f.array(*different))).alias("different"),
    )


def _field(side: str, name: str) -> Column:
    return f.col(side).getField(name)


def _dead(spark: SparkSession, store: TableStore, names: OwnNames) -> DataFrame:
    return held(spark, store.spec, DEAD_LETTERS, store.files(DEAD_LETTERS)).select(
        f.struct(
            f.col("topic").alias(names.topic),
            f.col("partition").alias(names.partition),
            f.col("offset").alias(names.offset),
        ).alias("at")
    )


def _marked(rows: DataFrame, dead: DataFrame, name: str, side: str) -> DataFrame:
    """Mark rows that only one side has and that are dead letters of the other."""
    other = "rebuilt" if side == "live" else "live"
    marks = dead.distinct().withColumn("is_dead", f.lit(True))
    return rows.join(marks, "at", "left").select(
        *rows.columns,
        (f.col("is_dead").isNotNull() & f.col(f"in_{side}") & ~f.col(f"in_{other}")).alias(name),
    )


def _kind() -> Column:
    return (
        f.when(f.col("dead_in_rebuilt"), "dead_in_rebuilt")
        .when(f.col("dead_in_live"), "dead_in_live")
        .when(~f.col("in_rebuilt"), "only_live")
        .when(~f.col("in_live"), "only_rebuilt")
        .when(f.size("different") > 0, "changed")
        .otherwise("same")
    )
