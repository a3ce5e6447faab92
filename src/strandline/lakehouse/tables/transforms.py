"""Partition transforms: from a column to the value that decides in which file a row lies.

Theory: the transforms and their values are those of the Iceberg specification (days, hours and
months since 1970, 32-bit Murmur3 buckets), for both formats: Iceberg stores them as they are; Delta
knows plain partition columns only, so that there a transform becomes a column of its own, whose
values `shown` makes readable.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

import mmh3
import pyarrow as pa
import pyarrow.compute as pc

from strandline.errors import InvalidSetting
from strandline.lakehouse.tables.held_times import nearest_held

PartitionValue = int | str | bool | None

_TEXT: Final = re.compile(r"\s*(?:([a-z]+)\s*\(\s*(?:(\d+)\s*,\s*)?([^(),]+?)\s*\)|([^(),]+?))\s*")
_EPOCH: Final = datetime.date(1970, 1, 1)
_EPOCH_TIME: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND: Final = datetime.timedelta(microseconds=1)
_HOUR_US: Final = 3_600_000_000
_WIDTH_MAX: Final = 1 << 20


class TransformKind(StrEnum):
    """What is done to the column."""

    IDENTITY = "identity"
    YEAR = "year"
    MONTH = "month"
    DAY = "day"
    HOUR = "hour"
    BUCKET = "bucket"
    TRUNCATE = "truncate"


_WITH_WIDTH: Final = frozenset({TransformKind.BUCKET, TransformKind.TRUNCATE})
_OF_TIME: Final = frozenset(
    {TransformKind.YEAR, TransformKind.MONTH, TransformKind.DAY, TransformKind.HOUR}
)


@dataclass(frozen=True, slots=True)
class Transform:
    """One part of a table's partitioning. `width` is the number of buckets or the length kept."""

    kind: TransformKind
    column: str
    width: int = 0

    @property
    def name(self) -> str:
        """The partition field's name; in a Delta table also the name of its column."""
        if self.kind is TransformKind.IDENTITY:
            return self.column
        suffix = "trunc" if self.kind is TransformKind.TRUNCATE else self.kind.value
        return f"{self.column}_{suffix}"

    @property
    def example_type(self) -> str:
        """The word for a type that the column may have."""
        return "timestamp" if self.kind in _OF_TIME else "string"

    def __str__(self) -> str:
        if self.kind is TransformKind.IDENTITY:
            return self.column
        width = f"{self.width}, " if self.kind in _WITH_WIDTH else ""
        return f"{self.kind.value}({width}{self.column})"

    def result_type(self, source: pa.DataType) -> pa.DataType:
        """The type of the column that a Delta table gets; raises InvalidSetting."""
        if self.kind in _OF_TIME:
            if not (
                pa.types.is_timestamp(source)
                or (pa.types.is_date32(source) and self.kind is not TransformKind.HOUR)
            ):
                raise _unfit(self, source)
            return {
                TransformKind.DAY: pa.date32(),
                TransformKind.YEAR: pa.int32(),
            }.get(self.kind, pa.string())
        if self.kind is TransformKind.BUCKET:
            if not (_whole(source) or _text(source) or pa.types.is_binary(source)):
                raise _unfit(self, source)
            return pa.int32()
        if self.kind is TransformKind.TRUNCATE:
            if not (pa.types.is_integer(source) or _text(source)):
                raise _unfit(self, source)
            return source
        if not (_whole(source) or _text(source) or pa.types.is_boolean(source)):
            raise _unfit(self, source)
        return source

    def apply(self, column: pa.Array) -> pa.Array:
        """The partition value of each row: integers, text or booleans, null where the row's is."""
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if self.kind in _OF_TIME:
            column = nearest_held(column)  # Spark's rows may have others
        match self.kind:
            case TransformKind.YEAR:
                return pc.subtract(pc.year(column), 1970)
            case TransformKind.MONTH:
                years = pc.multiply(pc.subtract(pc.year(column), 1970), 12)
                return pc.add(years, pc.subtract(pc.month(column), 1))
            case TransformKind.DAY:
                return column.cast(pa.date32(), safe=False).cast(pa.int32())
            case TransformKind.HOUR:
                floored = pc.floor_temporal(column, unit="hour").cast(pa.timestamp("us", "UTC"))
                return pc.divide(floored.cast(pa.int64()), _HOUR_US)
            case TransformKind.BUCKET:
                return _buckets(column, self.width)
            case TransformKind.TRUNCATE if _text(column.type):
                return pc.utf8_slice_codeunits(column, 0, self.width)
            case TransformKind.TRUNCATE:
                return _floored(column, self.width)
            case TransformKind.IDENTITY:
                return _plain(column)

    def shown(self, value: PartitionValue, source: pa.DataType) -> str | None:
        """The value as Delta writes it in its log and in paths."""
        if value is None or isinstance(value, str):
            return value
        if isinstance(value, bool):
            return "true" if value else "false"
        match self.kind:
            case TransformKind.YEAR:
                return str(1970 + value)
            case TransformKind.MONTH:
                return f"{1970 + value // 12:04}-{value % 12 + 1:02}"
            case TransformKind.DAY:
                return (_EPOCH + datetime.timedelta(days=value)).isoformat()
            case TransformKind.HOUR:
                day = _EPOCH + datetime.timedelta(days=value // 24)
                return f"{day.isoformat()}-{value % 24:02}"
        if self.kind is TransformKind.IDENTITY and pa.types.is_date32(source):
            return (_EPOCH + datetime.timedelta(days=value)).isoformat()
        if self.kind is TransformKind.IDENTITY and pa.types.is_timestamp(source):
            # As Delta's own writer: to Spark, a time without its zone is one of the session's.
            moment = (_EPOCH_TIME + value * _MICROSECOND).replace(tzinfo=None)
            return f"{moment.isoformat(timespec='microseconds')}Z"
        return str(value)

    def from_shown(self, value: object) -> PartitionValue:
        """The inverse of `shown`, after Delta's reader gave the text its column's type."""
        if isinstance(value, datetime.datetime):
            return (value.replace(tzinfo=datetime.UTC) - _EPOCH_TIME) // _MICROSECOND
        if isinstance(value, datetime.date):
            return (value - _EPOCH).days
        if value is None or isinstance(value, bool):
            return value
        if self.kind is TransformKind.YEAR:
            return int(str(value)) - 1970
        if self.kind is TransformKind.MONTH:
            year, month = str(value).split("-")
            return (int(year) - 1970) * 12 + int(month) - 1
        if self.kind is TransformKind.HOUR:
            day, _, hour = str(value).rpartition("-")
            return (datetime.date.fromisoformat(day) - _EPOCH).days * 24 + int(hour)
        return value if isinstance(value, int) else str(value)


def parse_transform(text: str) -> Transform:
    """Read `day(x)`, `bucket(16, x)` or `x`; raises InvalidSetting."""
    match = _TEXT.fullmatch(text)
    if match is None:
        raise _bad(text)
    word, width, argument, plain = match.groups()
    if plain is not None:
        return Transform(TransformKind.IDENTITY, plain)
    try:
        kind = TransformKind(word)
    except ValueError:
        raise _bad(text) from None
    if (kind in _WITH_WIDTH) != (width is not None):
        raise _bad(text)
    if width is not None and not 1 <= int(width[:9]) <= _WIDTH_MAX:
        raise InvalidSetting(
            "partition_by", f"The width in {text!r} must be between 1 and {_WIDTH_MAX}."
        )
    return Transform(kind, argument, int(width or 0))


def partition_names(transforms: Sequence[Transform], names: Mapping[str, str]) -> dict[str, str]:
    """What partition fields are called after columns got `names`, by what they were called."""
    before = {new: old for old, new in names.items()}
    return {
        replace(item, column=before[item.column]).name: item.name
        for item in transforms
        if item.column in before
    }


def bucket_of(value: object, count: int) -> int:
    """Iceberg's bucket of one value: numbers and times as 8 bytes, text as UTF-8."""
    if isinstance(value, bool | int):
        data = int(value).to_bytes(8, "little", signed=True)
    else:
        data = value.encode() if isinstance(value, str) else bytes(value)  # type: ignore[call-overload]
    return (mmh3.hash(data) & 0x7FFFFFFF) % count


def _buckets(column: pa.Array, count: int) -> pa.Array:
    encoded = _plain(column).dictionary_encode()
    buckets = pa.array(
        [bucket_of(item, count) for item in encoded.dictionary.to_pylist()], pa.int32()
    )
    return buckets.take(encoded.indices)


def _plain(column: pa.Array) -> pa.Array:
    """Days and moments as the numbers they are counted in; everything else as it is."""
    if pa.types.is_date32(column.type):
        return column.cast(pa.int32())
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    return column


def _floored(column: pa.Array, width: int) -> pa.Array:
    quotient = pc.divide(column, width)
    back = pc.multiply(quotient, width)
    # Arrow's division of integers cuts towards zero; Iceberg floors.
    return pc.if_else(pc.greater(back, column), pc.subtract(back, width), back)


def _whole(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_date32(kind) or pa.types.is_timestamp(kind)
    )


def _text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _bad(text: str) -> InvalidSetting:
    return InvalidSetting(
        "partition_by",
        f"{text!r} is no partition transform: expected a column, or year(x), month(x), day(x), "
        "hour(x), bucket(16, x) or truncate(4, x).",
    )


def _unfit(transform: Transform, source: pa.DataType) -> InvalidSetting:
    return InvalidSetting(
        "partition_by", f"{transform} cannot be made of column {transform.column} ({source})."
    )
