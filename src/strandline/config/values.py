"""Kinds of values: from text to a Python value and back, as Kafka's `ConfigDef` reads them.

Theory: a setting arrives as text. White space around it does not count; numbers are checked
against the width of Kafka's Java type, because clients and tools rely on the same limits; a list
is split at commas. This file knows no setting by name.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Final

Value = bool | int | float | str | tuple[str, ...] | None
"""A parsed value. `None` means: not set, and without a default."""


class Kind(IntEnum):
    """The type of a setting's value. The numbers are those of the DescribeConfigs response."""

    UNKNOWN = 0
    """Of a setting that is not known here, and has no effect."""
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9

    @property
    def expectation(self) -> str:
        """What a value of this kind is, to complete "expected ..."."""
        return _EXPECTATIONS[self]


_EXPECTATIONS: Final = {
    Kind.UNKNOWN: "text",
    Kind.BOOLEAN: "true or false",
    Kind.STRING: "text",
    Kind.INT: "a 32-bit integer",
    Kind.SHORT: "a 16-bit integer",
    Kind.LONG: "a 64-bit integer",
    Kind.DOUBLE: "a number",
    Kind.LIST: "a comma-separated list",
    Kind.CLASS: "a class name",
    Kind.PASSWORD: "text",
}
_INTEGER_BITS: Final = {Kind.SHORT: 16, Kind.INT: 32, Kind.LONG: 64}
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_DOUBLE: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[dDfF]?")
_LIST_SEPARATOR: Final = re.compile(r"\s*,\s*")
_LONGEST_INTEGER: Final = 40
"""Digits beyond this are out of range for every kind; Python's conversion is quadratic."""


def parse_value(kind: Kind, text: str) -> Value:
    """Read `text`; raises ValueError when it is not a value of that kind."""
    text = text.strip()
    if kind in _INTEGER_BITS:
        return _parse_integer(text, _INTEGER_BITS[kind])
    if kind is Kind.BOOLEAN:
        lowered = text.lower()
        if lowered not in ("true", "false"):
            raise ValueError(text)
        return lowered == "true"
    if kind is Kind.DOUBLE:
        if _DOUBLE.fullmatch(text) is None:
            raise ValueError(text)
        return float(text.rstrip("dDfF"))
    if kind is Kind.LIST:
        return tuple(_LIST_SEPARATOR.split(text)) if text else ()
    return text


def _parse_integer(text: str, bits: int) -> int:
    if len(text) > _LONGEST_INTEGER or _INTEGER.fullmatch(text) is None:
        raise ValueError(text)
    number = int(text)
    if not -(1 << (bits - 1)) <= number < 1 << (bits - 1):
        raise ValueError(text)
    return number


def format_value(value: Value) -> str | None:
    """The text that Kafka shows for a value; `None` for no value."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, float):
        return _format_double(value)
    return str(value)


def _format_double(number: float) -> str:
    """Java's text for a double: plain from 10^-3 to 10^7, else one digit before the point and E."""
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        return repr(number)
    mantissa, _, exponent = repr(abs(number)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    zeros = len(whole) + len(fraction) - len(digits)
    power = len(whole) - zeros + int(exponent or 0) - 1
    digits = digits.rstrip("0")
    return f"{'-' if number < 0 else ''}{digits[0]}.{digits[1:] or '0'}E{power}"
