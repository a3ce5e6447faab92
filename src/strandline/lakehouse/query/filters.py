"""Spark's filters as pyarrow's, where both mean the same.

What is left out: columns of fractions, since a NaN is greater than every number for Spark and not
for pyarrow; and filters that only Spark has. Spark applies these itself.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

_COMPARING: Final[Mapping[type[Filter], Callable[[Any, Any], Any]]] = {
    EqualTo: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
}


def expression_of(given: Filter, columns: pa.Schema) -> Any | None:
    """A filter of pyarrow's; None if there is none that gives the same rows."""
    path: tuple[str, ...] = getattr(given, "attribute", ())
    kind = _kind_at(path, columns)
    if kind is None:
        return None
    field = pc.field(*path)
    if isinstance(given, IsNull):
        return field.is_null()
    if isinstance(given, IsNotNull):
        return field.is_valid()
    if pa.types.is_floating(kind) or pa.types.is_nested(kind):
        return None
    try:
        if isinstance(given, In):
            # To Spark a null is in no list; to pyarrow it is in one that has a null.
            listed = [each for each in given.value if each is not None]
            return field.isin(pa.array(listed, kind))
        if isinstance(given, StringStartsWith) and pa.types.is_string(kind):
            return pc.starts_with(field, given.value)
        compare = _COMPARING.get(type(given))
        if compare is not None:
            return compare(field, pa.scalar(given.value, kind))  # type: ignore[attr-defined]
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError):
        return None
    return None


def _kind_at(path: tuple[str, ...], columns: pa.Schema) -> pa.DataType | None:
    """The type of a column, or of a field of structs."""
    kind: pa.DataType = pa.struct(list(columns))
    for name in path:
        if not pa.types.is_struct(kind) or kind.get_field_index(name) < 0:
            return None
        kind = kind.field(name).type
    return kind if path else None
