"""Decoded values as JSON, for people: what JSON has no form for becomes a text.

Bytes become hexadecimal after `0x`, decimals their digits, dates and times ISO 8601.
"""

from __future__ import annotations

import datetime
import json
from decimal import Decimal


def json_text(value: object, *, indent: int | None = None) -> str:
    """The value as JSON. Numbers that are none stay `NaN` and `Infinity`."""
    return json.dumps(value, indent=indent, ensure_ascii=False, default=plain)


def plain(value: object) -> str:
    """The text that stands for a value without a form in JSON."""
    match value:
        case bytes():
            return f"0x{value.hex()}"
        case Decimal():
            return f"{value:f}"
        case datetime.datetime() | datetime.date() | datetime.time():
            return value.isoformat()
        case _:
            raise TypeError(f"{type(value).__name__} is no type of a decoded value.")
