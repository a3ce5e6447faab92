"""How JSON values may differ from columns in form, and what a table's definition says about it.

    names     exact: a field is called as its column, or it is a dead letter
              underscores: `http.status` fills `http_status`
    numbers   exact: integers are longs, fractions doubles
              double: numbers are doubles from the first on
              decimal: numbers are decimals of 38 digits, 18 of them behind the point
    times     by column: a pattern as of strptime, or seconds, millis, micros or nanos since 1970

This file knows single values. It must not know how many are read at once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

import pyarrow as pa

from strandline.errors import InvalidSetting
from strandline.lakehouse.values.decoding import BAD_VALUE, WRONG_TYPE, Unfit

EXACT: Final = "exact"
UNDERSCORES: Final = "underscores"
DOUBLE: Final = "double"
DECIMAL: Final = "decimal"
DECIMALS: Final = pa.decimal128(38, 18)

_UNITS_US: Final[Mapping[str, float]] = {
    "seconds": 1e6,
    "millis": 1e3,
    "micros": 1.0,
    "nanos": 1e-3,
}
_UNFIT: Final = re.compile(r"[ ,;{}()\n\t=./\\]|[\x00-\x1f]")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class JsonForms:
    """See the module; `time_formats` are of columns at the top."""

    names: str = EXACT
    numbers: str = EXACT
    time_formats: Mapping[str, str] = field(default_factory=dict)

    def column_of(self, name: str) -> str:
        """The column that a field fills."""
        return _UNFIT.sub("_", name) if self.names == UNDERSCORES and name else name

    def renamed(self, record: dict[str, object]) -> dict[str, object]:
        """A record with the names of columns, on all levels; raises Unfit for two of one column."""
        if self.names != UNDERSCORES:
            return record
        return dict(self._pairs(record))

    def _pairs(self, record: dict[str, object]) -> list[tuple[str, object]]:
        found: dict[str, str] = {}
        pairs = []
        for name, value in record.items():
            column = self.column_of(name)
            if column in found:
                both = f"{found[column]!r} and {name!r}"
                raise Unfit(BAD_VALUE, f"The fields {both} are of one column, {column}.")
            found[column] = name
            pairs.append((column, self._inner(value)))
        return pairs

    def _inner(self, value: object) -> object:
        if isinstance(value, dict):
            return dict(self._pairs(value))
        if isinstance(value, list):
            return [self._inner(each) for each in value]
        return value

    def scalar(self, kind: pa.DataType) -> pa.DataType:
        """The type that a new column gets for a number of a type."""
        if pa.types.is_integer(kind) or pa.types.is_floating(kind):
            if self.numbers == DOUBLE:
                return pa.float64()
            if self.numbers == DECIMAL:
                return DECIMALS
        return kind


def check_time_format(column: str, text: str) -> None:
    """Raise InvalidSetting for what is no format of times."""
    if text in _UNITS_US:
        return
    try:
        said = datetime(2001, 2, 3, 4, 5, 6, tzinfo=UTC).strftime(text)
        read = datetime.strptime(said, text)  # noqa: DTZ007  # only its date is looked at
    except ValueError as error:
        raise InvalidSetting("time_formats", f"{text!r} is no format of times: {error}.") from None
    if "%" not in text or read.year == 1900:
        raise InvalidSetting(
            "time_formats",
            f"The format {text!r} of {column} does not say the whole date: expected a pattern such "
            f"as '%d.%m.%Y %H:%M:%S', or {', '.join(_UNITS_US)}.",
        )


def is_numeric(text: str) -> bool:
    """Whether a format takes numbers since 1970."""
    return text in _UNITS_US


def moment(column: str, value: object, text: str) -> datetime:
    """A time in a format, UTC where it names no zone; raises Unfit.

    Nanoseconds are cut to microseconds, and a fraction of seconds becomes the nearest of these.
    """
    read = _since_1970(value, text) if text in _UNITS_US else _by_pattern(value, text)
    if read is None:
        what = f"is a time of the format {text!r}, and not {value!r:.80}"
        raise Unfit(WRONG_TYPE, f"The field {column} {what}.")
    return read


def _since_1970(value: object, unit: str) -> datetime | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        if isinstance(value, int) and unit == "nanos":
            return _EPOCH + timedelta(microseconds=value // 1000)
        return _EPOCH + timedelta(microseconds=round(value * _UNITS_US[unit]))
    except (OverflowError, ValueError):
        return None


def _by_pattern(value: object, pattern: str) -> datetime | None:
    if not isinstance(value, str):
        return None
    try:
        read = datetime.strptime(value, pattern)  # noqa: DTZ007  # the zone is seen to below
        return read.replace(tzinfo=UTC) if read.tzinfo is None else read.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
