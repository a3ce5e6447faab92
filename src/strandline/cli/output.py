"""How commands print: tables for people, JSON for programs, bytes that may be anything.

Names of groups, clients and the like are chosen by those who connect: what could move the cursor,
colour a terminal or name its window is escaped.
"""

from __future__ import annotations

import codecs
import json
import sys
from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import click

from strandline.numerals import counted as counted  # with the others

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_EPOCH_MS_MAX: Final = 253_402_300_799_999
"""The end of the year 9999, the last that can be written."""


def print_json(value: object) -> None:
    """One document, indented."""
    click.echo(json_text(value, indent=2))


def json_text(
    value: object,
    *,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    default: Callable[[Any], Any] | None = None,
) -> str:
    """JSON for standard output, with the arguments of `json.dumps`."""
    text = json.dumps(
        value,
        indent=indent,
        separators=separators,
        default=default,
        ensure_ascii=not _takes_all_letters(),
    )
    if all(line.isprintable() for line in text.split("\n")):
        return text
    # Within strings only: what is around them is printable, or the end of a line.
    return "".join(
        char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text
    )


def _takes_all_letters() -> bool:
    """Whether standard output has a code for each letter that a name may have."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return codecs.lookup(encoding).name.startswith("utf")


def print_table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Columns as wide as needed; numbers to the right; None as a dash."""
    cells = [["-" if cell is None else shown_text(str(cell)) for cell in row] for row in rows]
    widths = [
        max(len(header), *(len(row[at]) for row in cells)) if cells else len(header)
        for at, header in enumerate(headers)
    ]
    to_the_right = [
        bool(cells) and all(_is_number(row[at]) for row in cells) for at in range(len(headers))
    ]
    for row in ([*headers], *cells):
        line = "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, to_the_right, strict=True)
        )
        click.echo(line.rstrip())


def size_text(size: int) -> str:
    """Bytes in the largest unit that leaves a number of at least one."""
    amount = float(size)
    for unit in _UNITS:
        if amount < 1024 or unit == _UNITS[-1]:
            return f"{size} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{size} B"


def time_text(timestamp_ms: int) -> str:
    """A timestamp in UTC with milliseconds; the number itself if it is no time at all."""
    if not 0 <= timestamp_ms <= _EPOCH_MS_MAX:
        return str(timestamp_ms)
    seconds, milliseconds = divmod(timestamp_ms, 1000)
    moment = datetime.fromtimestamp(seconds, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{milliseconds:03d}Z"


def json_bytes(data: bytes | None) -> Any:
    """Bytes in JSON: text if they are UTF-8, else `{"base64": ...}`; null stays null."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode()}


def shown_bytes(data: bytes | None) -> str:
    """Bytes for a terminal: what could move the cursor or is not UTF-8 is escaped."""
    if data is None:
        return "null"
    return shown_text(data.decode("utf-8", "backslashreplace"))


def shown_text(text: str) -> str:
    """Text of others for a terminal: what could move the cursor is escaped."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode()


def _is_number(text: str) -> bool:
    return text == "-" or text.removeprefix("-").isdigit()


def listed(names: Sequence[object], most: int, noun: str | None = None) -> str:
    """`a, b and 3 more`, or with a noun `a, b and 3 more partitions`: at most `most` are named."""
    shown, left = ", ".join(map(str, names[:most])), len(names) - most
    if left <= 0:
        return shown
    more = f"{left:,} more" if noun is None else counted(left, f"more {noun}")
    return f"{shown} and {more}"
