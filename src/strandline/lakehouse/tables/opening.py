"""Which format a table has; the libraries of the other one are not even imported."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from strandline.errors import InvalidSetting
from strandline.lakehouse.locations.conditions import conditional_put_fault
from strandline.lakehouse.tables.backend import Backend
from strandline.lakehouse.tables.catalogs import entry_of
from strandline.lakehouse.tables.definition import LATE, TableSpec, partitioning
from strandline.lakehouse.tables.transforms import Transform

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def side_partitioning(spec: TableSpec, side: str | None) -> Sequence[Transform]:
    """Late rows are divided as the table is; dead letters are not."""
    if side is None:
        return partitioning(spec)
    return spec.partition_by if side == LATE else ()


def open_backend(
    spec: TableSpec, side: str | None = None, *, with_any_names: bool = False
) -> Backend:
    """The table, or one of its side tables; it need not exist.

    A table is refused whose own columns have other names than the definition says, unless
    `with_any_names`. Side tables follow their table, and are not.
    """
    transforms = side_partitioning(spec, side)
    is_placed = side is None and not spec.is_of_queries
    names = spec.names if is_placed and not with_any_names else None
    directory = spec.directory(side)
    try:
        if spec.format == "iceberg":
            from strandline.lakehouse.tables.iceberg import IcebergBackend

            return IcebergBackend(
                directory,
                transforms,
                catalog=entry_of(spec, side),
                names=names,
                keep_history_ms=spec.keep_history_ms,
            )
        from strandline.lakehouse.tables.delta import DeltaBackend

        for_spark = side is None and spec.writer == "spark"
        return DeltaBackend(
            directory,
            transforms,
            for_spark=for_spark,
            names=names,
            keep_history_ms=spec.keep_history_ms,
        )
    except ModuleNotFoundError as error:
        raise InvalidSetting(
            "format",
            f"{spec.format} tables need the package {error.name}: install strandline[spark].",
        ) from error


def check_commits(spec: TableSpec) -> None:
    """That two writers cannot overwrite each other's commits where a table lies.

    Raises InvalidSetting, naming the store, and StoreTrouble.
    """
    if spec.format != "delta":
        return  # its catalog decides between commits
    fault = conditional_put_fault(spec.place)
    if fault is not None:
        raise InvalidSetting("location", f"A Delta table cannot be kept in {spec.place}: {fault}")


def open_for_run(spec: TableSpec, spark: SparkSession) -> Backend:
    """The table, for committing batches to it: with the writer that its definition names.

    Raises InvalidSetting when that writer is not in the session.
    """
    if spec.writer != "spark":
        return open_backend(spec)
    from strandline.lakehouse.tables.delta_spark import SparkDeltaBackend

    return SparkDeltaBackend(spark, spec.directory(), partitioning(spec), names=spec.names)
