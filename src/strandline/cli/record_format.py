"""How `consume` prints a record: its value, JSON, everything in a line, or a template.

Templates are those of kcat as far as they go here:

    %t topic   %p partition   %o offset   %T timestamp   %k key   %s value   %h headers
    %K size of the key   %S size of the value   %% a percent sign   \\n \\t escapes
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

from strandline.cli.output import json_bytes, shown_bytes, time_text
from strandline.errors import InvalidSetting
from strandline.records.record import Record
from strandline.types import TopicPartition

Formatter = Callable[[TopicPartition, Record], bytes]

_FIELDS: Final = frozenset(("", *"tpoTkshKS%"))
_ESCAPES: Final = {"\\n": "\n", "\\t": "\t", "\\0": "\0", "\\\\": "\\"}


def formatter_for(form: str, *, is_terminal: bool) -> Formatter:
    """The formatter by its name, or for a template. Raises `InvalidSetting` for neither.

    On a terminal, bytes that could control it are escaped; into a pipe they go as they are.
    """
    plain = shown if is_terminal else raw
    if form == "value":
        return _template("%s\n", plain)
    if form == "json":
        return as_json
    if form == "verbose":
        return verbose
    if "%" in form:
        return _template(form, plain)
    raise InvalidSetting(
        "--format", f"'{form}' is none of value, json, verbose, nor a template with % in it."
    )


def raw(data: bytes | None) -> bytes:
    """Bytes as they are."""
    return data or b""


def shown(data: bytes | None) -> bytes:
    """Bytes that are safe for a terminal."""
    return b"" if data is None else shown_bytes(data).encode()


def as_json(partition: TopicPartition, record: Record) -> bytes:
    """An object in a line, which `produce --format json` takes."""
    found = {
        "topic": partition.topic,
        "partition": partition.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": json_bytes(record.key),
        "value": json_bytes(record.value),
        "headers": [
            [name.encode("utf-8", "surrogateescape").decode("utf-8", "replace"), json_bytes(value)]
            for name, value in record.headers
        ],
    }
    return json.dumps(found, ensure_ascii=False).encode() + b"\n"


def verbose(partition: TopicPartition, record: Record) -> bytes:
    """Everything in one line for people."""
    parts = [f"{partition} @ {record.offset}", time_text(record.timestamp)]
    if record.key is not None:
        parts.append(f"key={shown_bytes(record.key)}")
    if record.headers:
        parts.append(f"headers={_headers(record)}")
    parts.append(f"value={shown_bytes(record.value)}")
    return "  ".join(parts).encode() + b"\n"


def _template(form: str, plain: Callable[[bytes | None], bytes]) -> Formatter:
    parts = _parse(form)
    for letter, _ in parts:
        if letter not in _FIELDS:
            raise InvalidSetting("--format", f"'%{letter}' means nothing in a template.")

    def formatted(partition: TopicPartition, record: Record) -> bytes:
        return b"".join(
            _field(letter, partition, record, plain) + text.encode() for letter, text in parts
        )

    return formatted


def _field(
    letter: str,
    partition: TopicPartition,
    record: Record,
    plain: Callable[[bytes | None], bytes],
) -> bytes:
    match letter:
        case "t":
            return partition.topic.encode()
        case "p":
            return str(partition.partition).encode()
        case "o":
            return str(record.offset).encode()
        case "T":
            return str(record.timestamp).encode()
        case "k":
            return plain(record.key)
        case "s":
            return plain(record.value)
        case "h":
            return _headers(record).encode()
        case "K":
            return _size(record.key)
        case "S":
            return _size(record.value)
        case "%":
            return b"%"
        case _:
            return b""  # the text in front of the first field


def _parse(form: str) -> list[tuple[str, str]]:
    """The template as fields, each with the text behind it; the first has no field."""
    parts: list[tuple[str, str]] = [("", "")]
    at = 0
    while at < len(form):
        pair = form[at : at + 2]
        if pair[0] == "%" and len(pair) == 2:
            parts.append((pair[1], ""))
            at += 2
            continue
        text = _ESCAPES.get(pair)
        letter, before = parts[-1]
        parts[-1] = (letter, before + (pair[0] if text is None else text))
        at += 1 if text is None else 2
    return parts


def _headers(record: Record) -> str:
    return ",".join(
        f"{shown_bytes(name.encode('utf-8', 'surrogateescape'))}={shown_bytes(value)}"
        for name, value in record.headers
    )


def _size(data: bytes | None) -> bytes:
    return b"-1" if data is None else str(len(data)).encode()
