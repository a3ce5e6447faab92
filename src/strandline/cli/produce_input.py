"""Lines from a file or pipe as records, as they arrive.

This file knows how input is cut into lines and what a line means. It must not know the producer.
Reading goes by what is there, not by full buffers, so that the lines of a slow pipe can be sent
while it is silent.
"""

from __future__ import annotations

import json
import os
import re
import select
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

from strandline.client.outgoing_records import TIMESTAMP_MAX
from strandline.errors import StrandlineError
from strandline.types import NO_TIMESTAMP

CHUNK_BYTES: Final = 256 * 1024
_WAIT_MS: Final = 200
LINE_BYTES_MAX: Final = 64 * 1024 * 1024
_DIGITS_MAX: Final = 100
_DECODER: Final = json.JSONDecoder(parse_int=str)
_MARK: Final = re.compile(r"\s*([{:,}])\s*")
_FIELDS: Final = frozenset({"value", "key", "headers", "partition", "timestamp", "topic", "offset"})


class BadInput(StrandlineError):
    """A line cannot be made a record; the sentence names the line."""


class Lines(NamedTuple):
    """Complete lines without their ends, and whether the input is silent after them."""

    lines: list[bytes]
    is_pause: bool


@dataclass(frozen=True, slots=True)
class InputRecord:
    """What a line says."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    timestamp: int | None = None


def read_lines(descriptor: int, is_stopped: Callable[[], bool]) -> Iterator[Lines]:
    """The lines of an open file, in portions, until its end or until `is_stopped`.

    A last line needs no line end. When it is stopped the rest of a line is no line.
    """
    rest = b""
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    while not is_stopped():
        # Python resumes waiting after a signal, so the wait must end by itself.
        if not poller.poll(_WAIT_MS):
            continue
        chunk = os.read(descriptor, CHUNK_BYTES)
        if not chunk:
            if rest:
                yield Lines([rest], is_pause=True)
            return
        lines = (rest + chunk).split(b"\n")
        rest = lines.pop()
        if len(rest) > LINE_BYTES_MAX:
            raise BadInput(f"A line is longer than {LINE_BYTES_MAX} bytes.")
        yield Lines(lines, is_pause=not poller.poll(0))


def from_line(line: bytes, number: int, key_separator: bytes | None) -> InputRecord:
    """A line as it is, or with a key in front of the separator. Raises `BadInput`."""
    line = line.removesuffix(b"\r")
    if key_separator is None:
        return InputRecord(line)
    key, separator, value = line.partition(key_separator)
    if not separator:
        shown = key_separator.decode("utf-8", "backslashreplace")
        raise BadInput(f"Line {number} has no key separator '{shown}'.")
    return InputRecord(value, key)


def from_json(line: bytes, number: int) -> InputRecord:
    """An object as `consume --format json` prints it; topic and offset are passed over.

    Keys and values are null, text, or {"base64": ...}; anything else is sent as JSON text, just as
    it stands: numbers keep their digits, and objects what they name twice. Raises `BadInput`.
    """
    try:
        text = line.decode("utf-8-sig")
        found = json.loads(text, parse_constant=_refuse_constant, parse_int=_whole)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"Line {number} is not JSON: {error}.") from error
    if not isinstance(found, dict):
        raise BadInput(f"Line {number} is not a JSON object.")
    unknown = sorted(found.keys() - _FIELDS)
    if unknown:
        raise BadInput(f"Line {number} has the field '{unknown[0]}', which means nothing here.")
    return InputRecord(
        _bytes(found.get("value"), number, lambda: _written(text, "value")),
        _bytes(found.get("key"), number, lambda: _written(text, "key")),
        tuple(_headers(found.get("headers", []), number)),
        _integer(found.get("partition"), "partition", number),
        _timestamp(found.get("timestamp"), number),
    )


def _refuse_constant(name: str) -> None:
    """NaN and the infinities, which Python reads and few others do."""
    raise ValueError(f"{name} is not JSON")


def _whole(digits: str) -> int | str:
    """The number; its digits if they are more than Python reads, which no field here can have."""
    return int(digits) if len(digits) <= _DIGITS_MAX else digits


def _written(line: str, field: str) -> str:
    """How the value of a field stands in a line that is a JSON object and has the field."""
    found = ""
    mark, at = _mark(line, 0)
    while mark != "}":
        name, at = _DECODER.raw_decode(line, at)
        _, begin = _mark(line, at)
        _, end = _DECODER.raw_decode(line, begin)
        if name == field:  # the last of its name counts, as for `json.loads`
            found = line[begin:end]
        mark, at = _mark(line, end)
    return found


def _mark(line: str, at: int) -> tuple[str, int]:
    """The brace, colon or comma that comes next, and where what follows it begins."""
    match = _MARK.match(line, at)
    if match is None:
        raise ValueError("It is no JSON object.")
    return match[1], match.end()


def _headers(found: Any, number: int) -> Iterator[tuple[str, bytes | None]]:
    """Pairs, or an object if no name repeats."""
    pairs = list(found.items()) if isinstance(found, dict) else found
    if not isinstance(pairs, list):
        raise BadInput(f"Line {number} has headers that are neither a list nor an object.")
    for pair in pairs:
        if not isinstance(pair, (list, tuple)) or len(pair) != 2 or not isinstance(pair[0], str):
            raise BadInput(f"Line {number} has a header that is not a pair of name and value.")
        _encoded(pair[0], number)
        yield pair[0], _bytes(pair[1], number, partial(_compact, pair[1], number))


def _bytes(found: Any, number: int, written: Callable[[], str]) -> bytes | None:
    """What a key, a value or a header is sent as; `written` gives the JSON text of other things."""
    if found is None:
        return None
    if isinstance(found, str):
        return _encoded(found, number)
    if isinstance(found, dict) and found.keys() == {"base64"}:
        try:
            return b64decode(found["base64"], validate=True)
        except (Base64Error, TypeError, ValueError) as error:
            raise BadInput(f"Line {number} has broken base64: {error}.") from error
    return _encoded(written(), number)


def _compact(found: Any, number: int) -> str:
    try:
        return json.dumps(found, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError as error:
        raise BadInput(f"Line {number} has a number in a header that is too large.") from error


def _encoded(text: str, number: int) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:  # JSON can say it: "\ud800"
        raise BadInput(f"Line {number} has a half of a character, which is no text.") from error


def _timestamp(found: Any, number: int) -> int | None:
    timestamp = _integer(found, "timestamp", number)
    if timestamp is not None and not NO_TIMESTAMP <= timestamp <= TIMESTAMP_MAX:
        raise BadInput(f"Line {number} has a timestamp that is not a time in milliseconds.")
    return timestamp


def _integer(found: Any, name: str, number: int) -> int | None:
    if found is None or (isinstance(found, int) and not isinstance(found, bool)):
        return found
    raise BadInput(f"Line {number} has a {name} that is not a whole number.")
