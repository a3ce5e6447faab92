"""Whole numbers in texts: those that come from outside (arguments, settings, other programs), and
those that sentences have."""

from __future__ import annotations

from typing import Final

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1


def whole_number(text: str, most: int) -> int | None:
    """The number that the digits are, if it is at most `most`; None for any other text."""
    digits = text.lstrip("0") or "0" if text else ""
    if not (digits.isascii() and digits.isdigit()) or len(digits) > len(str(most)):
        return None  # Python refuses to read very long numbers
    number = int(digits)
    return number if number <= most else None


def counted(number: int, noun: str, nouns: str | None = None) -> str:
    """`1 record`, `1,234 records`; `nouns` where an s does not make the plural."""
    return f"{number:,} {noun if number == 1 else nouns or noun + 's'}"
