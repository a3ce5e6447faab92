"""Whole numbers on a command line, in the ranges that the protocol has for them."""

from __future__ import annotations

from typing import Final

import click

_INT16_MAX: Final = 2**15 - 1
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1

BROKER: Final = click.IntRange(0, INT32_MAX)
PARTITION: Final = click.IntRange(0, INT32_MAX)
PARTITION_COUNT: Final = click.IntRange(1, INT32_MAX)
REPLICATION_FACTOR: Final = click.IntRange(1, _INT16_MAX)


def whole_number(text: str, most: int) -> int | None:
    """The number that the digits are, if it is at most `most`; None for any other text."""
    digits = text.lstrip("0") or "0" if text else ""
    if not (digits.isascii() and digits.isdigit()) or len(digits) > len(str(most)):
        return None  # Python refuses to read very long numbers
    number = int(digits)
    return number if number <= most else None
