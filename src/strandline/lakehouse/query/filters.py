"""Spark's filters as pyarrow's, where both mean the same.

What is left out: columns of fractions, since a NaN is greater than every number for Spark and not
for pyarrow; fields of structs; and filters that only Spark has. Spark applies these itself.
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
    attribute: tuple[str, ...] = getattr(given, "attribute", ())
    if len(attribute) != 1 or attribute[0] not in columns.names:
        return None
    name = attribute[0]
    kind = columns.field(name).type
    field = pc.field(name)
    if isinstance(given, IsNull):
        return field.is_null()
    if isinstance(given, IsNotNull):
        return field.is_valid()
    if pa.types.is_floating(kind) or pa.types.is_nested(kind):
        return None
    try:
        if isinstance(given, In):
            return field.isin(pa.array(list(given.value), kind))
        if isinstance(given, StringStartsWith) and pa.types.is_string(kind):
            return pc.starts_with(field, given.value)
        compare = _COMPARING.get(type(given))
        if compare is not None:
            return compare(field, pa.scalar(given.value, kind))  # type: ignore[attr-defined]
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError):
        return None
    return None
