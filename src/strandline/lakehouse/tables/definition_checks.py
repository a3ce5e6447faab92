"""Which parts of a table's definition do not go together. Raises InvalidSetting throughout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from strandline.errors import InvalidSetting
from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.tables.names import FIRST, OwnNames
from strandline.lakehouse.tables.transforms import Transform, TransformKind
from strandline.schemas.registered import check_url


class Defined(Protocol):
    """What is looked at of a definition (`TableSpec`, which says what each part means)."""

    @property
    def name(self) -> str: ...
    @property
    def value_format(self) -> str: ...
    @property
    def framing(self) -> str: ...
    @property
    def key_format(self) -> str: ...
    @property
    def registry(self) -> str | None: ...
    @property
    def select(self) -> str | None: ...
    @property
    def transform(self) -> str | None: ...
    @property
    def explode(self) -> bool: ...
    @property
    def is_transformed(self) -> bool: ...
    @property
    def mode(self) -> str: ...
    @property
    def format(self) -> str: ...
    @property
    def names(self) -> OwnNames: ...
    @property
    def event_time(self) -> str | None: ...
    @property
    def partition_by(self) -> Sequence[Transform]: ...
    @property
    def columns(self) -> Mapping[str, str]: ...
    @property
    def place(self) -> Location: ...
    @property
    def topics(self) -> Sequence[str]: ...
    @property
    def keys(self) -> Sequence[str]: ...
    @property
    def writer(self) -> str: ...
    @property
    def is_of_queries(self) -> bool: ...
    @property
    def expire_rows_ms(self) -> int | None: ...


def check_registry(spec: Defined) -> None:
    """What a registry is for."""
    if spec.key_format == "avro" and spec.registry is None:
        raise InvalidSetting("registry", "Avro keys are read by their ids: name a registry.")
    if spec.registry is None:
        return
    check_url(spec.registry)
    if spec.framing != "confluent" and spec.value_format != "raw" and spec.key_format != "avro":
        raise InvalidSetting("framing", "Values with a registry are in the framing 'confluent'.")


def check_transformed(spec: Defined) -> None:
    """That a transform fits the table."""
    if spec.select is not None and spec.transform is not None:
        raise InvalidSetting("select", "A table has a select or a transform, not both.")
    if spec.transform is not None and not all(spec.transform.partition(":")):
        raise InvalidSetting(
            "transform", f"A transform is module:function, not '{spec.transform}'."
        )
    if spec.explode and not spec.is_transformed:
        raise InvalidSetting(
            "explode", "Only a select or a transform can give several rows for a record."
        )
    if spec.explode and spec.mode == "upsert":
        raise InvalidSetting(
            "explode", "A table that is upserted has one row per key: it cannot have several."
        )
    if spec.is_transformed and not spec.names.row:
        raise InvalidSetting(
            "version",
            f"Table '{spec.name}' has the column names of version 0.1.0; strandline table upgrade "
            f"{spec.name} comes before a select or a transform.",
        )


def check_renamed(spec: Defined) -> None:
    """That a column of the first version's is not meant by its name of then."""
    newer = FIRST.renamed(spec.names)
    for name, used in (
        ("event_time", [spec.event_time]),
        ("partition_by", [each.column for each in spec.partition_by]),
    ):
        for column in used:
            if column in FIRST.own - spec.names.own - spec.columns.keys():
                raise InvalidSetting(
                    name,
                    f"{name} cannot be {column}: that column is called {newer[column]} in tables "
                    "that are made now. If the values have a field of that name, give its type in "
                    "columns.",
                )


def check_writer(spec: Defined) -> None:
    """What Spark's own writer can do for a table."""
    if spec.format != "delta":
        raise InvalidSetting(
            "writer",
            "Spark's writer fills Delta tables only: Iceberg has no release for Spark 4.2 "
            "(org.apache.iceberg:iceberg-spark-runtime-4.2_2.13) that it could be. "
            "Leave the writer out.",
        )
    if not spec.place.is_local:
        raise InvalidSetting(
            "writer",
            "Spark's writer fills tables on disks only: two writers are kept apart there by a lock "
            "that a store does not have. Leave the writer out.",
        )
    if spec.mode != "append":
        raise InvalidSetting(
            "writer",
            "Spark's writer only appends: a table that is upserted is written by this package, "
            "which checks keys and offsets in the commit itself. Leave the writer out.",
        )
    for transform in spec.partition_by:
        if transform.kind is TransformKind.IDENTITY:
            raise InvalidSetting(
                "partition_by",
                "Spark's writer keeps a column that divides a table out of its files, so that "
                f"other readers of the files miss {transform.column}: divide the table by "
                "truncate or bucket of it, or leave the writer out.",
            )


def check_of_topics(spec: Defined) -> None:
    """That a table is filled from topics, for what only such tables have."""
    if spec.is_of_queries:
        raise InvalidSetting(
            "filled_by",
            f"The table {spec.name} has the results of Spark's queries, which fill it "
            "(docs/spark.md): it has no topics to be read, and no dead letters.",
        )


def check_filled_by_queries(spec: Defined) -> None:
    """That nothing is said of values and records, which the table has not."""
    if spec.topics:
        raise InvalidSetting("topics", "A table is filled by queries or from topics, not both.")
    if spec.event_time is not None or spec.is_transformed or spec.writer != "strandline":
        raise InvalidSetting(
            "filled_by", "A table that queries fill has no event time, transform or other writer."
        )
    if spec.expire_rows_ms is not None:
        raise InvalidSetting("expire-rows", "Rows of a table that queries fill have no age.")
    if (spec.mode == "upsert") != bool(spec.keys):
        raise InvalidSetting("keys", "A table that queries upsert has keys, and no other has any.")
    if len(set(spec.keys)) < len(spec.keys):
        raise InvalidSetting("keys", "A column stands twice among the keys.")
    others = [each.column for each in spec.partition_by if each.column not in spec.keys]
    if spec.keys and others:
        raise InvalidSetting(
            "partition_by",
            f"A table that queries upsert is divided by columns of its keys, and {others[0]} is "
            "none: a row's division must not change with it.",
        )
