"""Which times tables hold: those of the years 1 to 9999, as in SQL and in Python.

Arrow counts far beyond them. Such a time has no form in Delta's log, and most readers cannot take
it. In a value it makes a dead letter; the record's own time, which a producer may set to anything,
becomes the nearest one that is held.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

_FIRST_US: Final = -62_135_596_800_000_000
_LAST_US: Final = 253_402_300_799_999_999
_DAY_US: Final = 86_400_000_000
_UNITS_US: Final = {"ms": 1_000, "us": 1}


def are_held(times: pa.Array) -> bool:
    """Whether all of a column of times or days are such; null is."""
    first, last, counted = _range(times.type)
    found = pc.min_max(times.cast(counted))
    least, greatest = found["min"].as_py(), found["max"].as_py()
    return least is None or (first <= least and greatest <= last)


def nearest_held(times: pa.Array) -> pa.Array:
    """Each time or day, or the nearest that is held."""
    first, last, counted = _range(times.type)
    # Arrow compares no times of a zone.
    numbers = pc.max_element_wise(times.cast(counted), pa.scalar(first, counted), skip_nulls=False)
    numbers = pc.min_element_wise(numbers, pa.scalar(last, counted), skip_nulls=False)
    return numbers.cast(times.type)


def is_held_ms(at_ms: int) -> bool:
    """Whether a time in milliseconds since 1970 is such."""
    return _FIRST_US <= at_ms * 1_000 <= _LAST_US


def _range(kind: pa.DataType) -> tuple[int, int, pa.DataType]:
    """The first and the last of a type as it counts them, and the type of these numbers."""
    if pa.types.is_date32(kind):
        return _FIRST_US // _DAY_US, _LAST_US // _DAY_US, pa.int32()
    unit = _UNITS_US[kind.unit]
    return _FIRST_US // unit, _LAST_US // unit, pa.int64()
