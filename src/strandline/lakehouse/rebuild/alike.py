"""Whether a value of a table is that of its rebuild, although their columns may have other types.

Theory: a rebuild has the types that today's definition gives, and of structs only the fields that
its own records have. So values are compared part by part: a field that one side has not is null
there, numbers are compared as numbers, and text as a value of the live table's type. Spark itself
compares no maps, and ends a job at a text that is no number.
"""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    MapType,
    NumericType,
    StringType,
    StructType,
    TimestampType,
)

_TIMES: Final = (DateType, TimestampType)


def alike(live: DataType, rebuilt: DataType, left: Column, right: Column) -> Column:
    """Whether `left`, of the type `live`, is `right`, of the type `rebuilt`; never null."""
    if live == rebuilt and not _has_map(live):
        return left.eqNullSafe(right)
    is_same = f.coalesce(_is_same(live, rebuilt, left, right), f.lit(False))
    return (left.isNull() & right.isNull()) | is_same


def _is_same(live: DataType, rebuilt: DataType, left: Column, right: Column) -> Column:
    """The same for values that are not null; else it may be null."""
    match live, rebuilt:
        case StructType(), StructType():
            parts = _fields(live, rebuilt, left, right)
            return reduce(and_, parts, left.isNotNull() & right.isNotNull())
        case ArrayType(), ArrayType():
            pairs = f.zip_with(
                left, right, lambda a, b: alike(live.elementType, rebuilt.elementType, a, b)
            )
            return (f.size(left) == f.size(right)) & f.forall(pairs, lambda each: each)
        case MapType(), MapType() if live.keyType == rebuilt.keyType:
            keys = f.map_keys(right)
            return (f.size(left) == f.size(right)) & f.forall(
                f.map_keys(left),
                lambda key: (
                    f.array_contains(keys, key)
                    & alike(live.valueType, rebuilt.valueType, left[key], right[key])
                ),
            )
        case NumericType(), NumericType():
            return left == right
    if _is_castable(live, rebuilt):
        return left == right.try_cast(live)
    return f.lit(False)


def _fields(live: StructType, rebuilt: StructType, left: Column, right: Column) -> list[Column]:
    ours = {each.name: each.dataType for each in live}
    theirs = {each.name: each.dataType for each in rebuilt}
    found = []
    for name in {**ours, **theirs}:
        if name not in theirs:
            found.append(left.getField(name).isNull())
        elif name not in ours:
            found.append(right.getField(name).isNull())
        else:
            parts = left.getField(name), right.getField(name)
            found.append(alike(ours[name], theirs[name], *parts))
    return found


def _is_castable(live: DataType, rebuilt: DataType) -> bool:
    both = (live, rebuilt)
    if any(isinstance(each, (StructType, ArrayType, MapType)) for each in both):
        return False
    return any(isinstance(each, StringType) for each in both) or all(
        isinstance(each, _TIMES) for each in both
    )


def _has_map(kind: DataType) -> bool:
    match kind:
        case MapType():
            return True
        case ArrayType():
            return _has_map(kind.elementType)
        case StructType():
            return any(_has_map(each.dataType) for each in kind)
    return False
