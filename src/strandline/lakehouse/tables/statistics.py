"""Column statistics of a Parquet file, in the JSON that a Delta log keeps beside each file.

Bounds come from the file's own footer. Text is cut where Delta's writers cut it, upper bounds of
cut text are left out, and times are widened to whole milliseconds, as the Delta protocol asks. A
column without bounds is simply not skipped by readers. Letters are written as they are: delta-rs
and DuckDB take a pair of escapes for another letter, as from U+20000 on. This file reads no data.
"""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow.parquet as pq

_TEXT_MAX: Final = 32
_LAST: Final = datetime.datetime.max.replace(tzinfo=datetime.UTC)


def delta_statistics(footer: pq.FileMetaData) -> str:
    """`numRecords`, `minValues`, `maxValues`, `nullCount`; of fields of structs as well."""
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    unknown: set[str] = set()
    far: dict[str, set[str]] = {"min": set(), "max": set()}
    for name, statistics in _columns(footer):
        if statistics is None or not statistics.has_null_count:
            unknown.add(name)
            continue
        nulls[name] = nulls.get(name, 0) + statistics.null_count
        if not statistics.has_min_max:
            if statistics.num_values:
                unknown.add(name)
            continue
        for found, bound, choose in ((least, "min", min), (greatest, "max", max)):
            try:
                value = getattr(statistics, bound)
            except OverflowError:  # a time beyond the years 1 to 9999, which Spark's rows may have
                far[bound].add(name)
            else:
                found[name] = choose(found.get(name, value), value)
    return json.dumps(
        {
            "numRecords": footer.num_rows,
            "minValues": _nested(_shown(least, unknown | far["min"], upper=False)),
            "maxValues": _nested(_shown(greatest, unknown | far["max"], upper=True)),
            "nullCount": _nested(
                {name: count for name, count in nulls.items() if name not in unknown}
            ),
        },
        ensure_ascii=False,
    )


def _columns(footer: pq.FileMetaData) -> Iterator[tuple[str, Any]]:
    """What can be bounded: everything but elements of lists and maps, with dots in structs."""
    single = [
        number
        for number in range(footer.num_columns)
        if footer.schema.column(number).max_repetition_level == 0
    ]
    for group in range(footer.num_row_groups):
        chunks = footer.row_group(group)
        for number in single:
            chunk = chunks.column(number)
            yield chunk.path_in_schema, chunk.statistics


def _nested(found: Mapping[str, Any]) -> dict[str, Any]:
    """As Delta writes the fields of structs."""
    nested: dict[str, Any] = {}
    for name, value in found.items():
        *above, last = name.split(".")
        place = nested
        for part in above:
            place = place.setdefault(part, {})
        place[last] = value
    return nested


def _shown(bounds: dict[str, Any], unknown: set[str], *, upper: bool) -> dict[str, Any]:
    shown = {}
    for name, value in bounds.items():
        if name in unknown:
            continue
        text = _bound(value, upper=upper)
        if text is not None:
            shown[name] = text
    return shown


def _bound(value: Any, *, upper: bool) -> Any:
    if isinstance(value, bool | bytes):
        return None  # no format agrees on their order
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        # A NaN is in no bound of Parquet, yet greater than every number for Spark.
        return value if math.isfinite(value) and not upper else None
    if isinstance(value, str):
        return None if upper and len(value) > _TEXT_MAX else value[:_TEXT_MAX]
    if isinstance(value, datetime.datetime):
        moment = value.astimezone(datetime.UTC)
        if upper:
            rest = datetime.timedelta(microseconds=-moment.microsecond % 1000)
            if _LAST - moment < rest:
                return None
            moment += rest
        return f"{moment.replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"
    return value.isoformat() if isinstance(value, datetime.date) else None
