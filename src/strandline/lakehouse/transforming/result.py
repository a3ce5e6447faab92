"""What a transform gave, as rows of the table: checked, and in the table's types.

Theory: a data frame says before it is carried out which columns it has. So most that can be wrong
with a transform is told from its result's schema, in a sentence, before a row is read. This file
knows Spark's types and the rules for a table's columns. It must not carry anything out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FractionalType,
    IntegralType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from strandline.lakehouse.pipeline.errors import TransformFailed
from strandline.lakehouse.spark_errors import first_of
from strandline.lakehouse.tables.definition import TableSpec, division_names
from strandline.lakehouse.tables.types import as_stored, name_fault, type_only_adds
from strandline.lakehouse.tables.upsert import DELETED
from strandline.lakehouse.tables.writing import value_columns
from strandline.lakehouse.transforming.given import Transform
from strandline.lakehouse.transforming.staging import own_columns

_PLAIN: Final = (StringType, BooleanType, TimestampType, DateType, BinaryType, DecimalType)
_IS_ROW: Final = "=row"


class Result:
    """A table's rows from the staged rows of a batch; raises TransformFailed in all it does."""

    def __init__(self, spec: TableSpec, table: pa.Schema, transform: Transform) -> None:
        """`table` are the columns that the table has."""
        self._spec = spec
        self._transform = transform
        self._known = {field.name: field.type for field in value_columns(spec, table)}
        self._record = list(spec.names.record)

    def of(self, staged: DataFrame) -> DataFrame:
        """The rows to be written, with the table's own columns, and what marks deletions."""
        if self._spec.mode == "upsert":
            return self._upserted(staged)
        rows = self._conforming(self._apply(staged), self._own_names())
        if not self._spec.explode:
            return rows
        order = [each.name for each in rows.schema if _is_ordered(each.dataType)]
        others = [name for name in order if name not in self._record]
        return rows.repartition(*self._record).sortWithinPartitions(
            *(f.col(_quoted(name)) for name in (*self._record, *others))
        )

    def _upserted(self, staged: DataFrame) -> DataFrame:
        """A row or a deletion for each staged record: what the transform drops is deleted. Rows of
        no such record are kept for those who count places, and refuse them."""
        names = self._spec.names
        live = staged.where(~f.col(f"`{DELETED}`")).drop(DELETED)
        rows = self._conforming(self._apply(live), self._record)
        rows = rows.withColumn(_IS_ROW, f.lit(True))
        own = [each.name for each in own_columns(self._spec)]
        joined = staged.select(*own).join(rows, self._record, "full")
        values = [each for each in rows.columns if each not in (*names.record, _IS_ROW)]
        return joined.select(
            *(f.col(_quoted(name)) for name in (*values, *own)),
            f.col(f"`{_IS_ROW}`").isNull().alias(DELETED),
        )

    def _own_names(self) -> list[str]:
        row = self._spec.names.row
        return [each.name for each in self._spec.own_columns() if each.name != row]

    def _apply(self, staged: DataFrame) -> DataFrame:
        own = [each.name for each in own_columns(self._spec)]
        try:
            result: object = self._transform.apply(staged, own)
        except PySparkException as error:
            raise self._failed(f"cannot be carried out: {first_of(error)}") from error
        except Exception as error:
            raise self._failed(f"raised {type(error).__name__}: {error}.") from error
        if not isinstance(result, DataFrame):
            raise self._failed(f"gives {type(result).__name__} in place of a DataFrame.")
        return result

    def _conforming(self, rows: DataFrame, own: Sequence[str]) -> DataFrame:
        """The result with the columns of the table's types; `own` are its own among them."""
        schema = rows.schema
        self._check_names(schema, own)
        place = {
            each.name: each.dataType
            for each in from_arrow_schema(pa.schema(list(own_columns(self._spec))))
        }
        columns = [
            self._value(each)
            for each in schema
            if each.name not in place and not isinstance(each.dataType, NullType)
        ]
        columns += [f.col(_quoted(name)).cast(place[name]).alias(name) for name in own]
        return rows.select(*columns)

    def _check_names(self, schema: StructType, own: Sequence[str]) -> None:
        names = [each.name for each in schema]
        for name in own:
            if name not in names:
                raise self._failed(
                    f"gives no column {name}: every row must keep the place of its record "
                    f"({', '.join(own)})."
                )
        twice = [name for name, times in Counter(names).items() if times > 1]
        spec = self._spec
        if twice:
            name = twice[0]
            own = f", one of them that of the values: take * except({name})"
            raise self._failed(
                f"gives two columns {name}{own if name in spec.known_columns() else ''}."
            )
        rows = {spec.names.row} if spec.explode else set()
        reserved = spec.names.reserved | division_names(spec) | rows
        place = {each.name for each in own_columns(spec)}
        values = [name for name in names if name not in place]
        for name in values:
            if (fault := name_fault(name, values, reserved)) is not None:
                raise self._failed(f"gives a column that no table can have. {fault}")
        needed = [each.column for each in spec.partition_by]
        if spec.event_time is not None:
            needed.append(spec.event_time)
        for name in needed:
            if name not in names:
                raise self._failed(
                    f"gives no column {name}, which the table is divided or dated by."
                )

    def _value(self, field: StructField) -> Column:
        kind = self._stored(field.name, field.dataType)
        known = self._known.get(field.name)
        found = (
            as_stored(pa.schema([pa.field("x", to_arrow_type(kind, timezone="UTC"))])).field(0).type
        )
        if known is None:
            if not self._spec.evolve:
                raise self._failed(
                    f"gives the column {field.name}, which the table has not, and its definition "
                    "lets it get none (evolve)."
                )
        elif not (type_only_adds(known, found) or type_only_adds(found, known)):
            if not (pa.types.is_floating(known) and pa.types.is_integer(found)):
                raise self._failed(
                    f"gives the column {field.name} as {found}, and the table has it as {known}."
                )
            kind = DoubleType()
        column = f.col(_quoted(field.name))
        return (column if kind == field.dataType else column.cast(kind)).alias(field.name)

    def _stored(self, name: str, kind: DataType) -> DataType:
        """The type in which a table keeps values of a type."""
        match kind:
            case DecimalType():
                return kind
            case IntegralType():
                return LongType()
            case FractionalType():
                return DoubleType()
            case ArrayType():
                return ArrayType(self._stored(f"{name}[]", kind.elementType))
            case MapType():
                return MapType(
                    self._stored(f"{name}.key", kind.keyType),
                    self._stored(f"{name}.value", kind.valueType),
                )
            case StructType() if kind.fields:
                parts = [
                    StructField(each.name, self._stored(f"{name}.{each.name}", each.dataType))
                    for each in kind
                ]
                return StructType(parts)
        if type(kind) in _PLAIN:
            return kind
        raise self._failed(
            f"gives the column {name} as {kind.simpleString()}, which no table keeps: cast it."
        )

    def _failed(self, what: str) -> TransformFailed:
        return TransformFailed(f"The {self._transform.label} {what}")


def _is_ordered(kind: DataType) -> bool:
    match kind:
        case MapType():
            return False
        case ArrayType():
            return _is_ordered(kind.elementType)
        case StructType():
            return all(_is_ordered(each.dataType) for each in kind)
    return True


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
