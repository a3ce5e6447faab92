"""The text files in which Kafka keeps small tables of numbers, and the offset tables among them.

This file knows the grammar and its error rules. It must not know what an offset means or when a
table is written; that is `log_directory` and `leader_epochs`. All of these files look alike:

    ┌──────────────────┐
    │ 0                │ version of the format
    │ 2                │ number of entries that follow
    │ orders 0 1287    │ one entry per line, fields parted by white space
    │ orders 1 990     │
    └──────────────────┘

A table is written whole: `Files.write_atomically` leaves the old or the new one after a crash. A
file that is absent, empty or ends after the version is an empty table, because Kafka creates these
files empty. Everything else that departs from the grammar is `DamagedCheckpoint`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from strandline.errors import StorageError
from strandline.storage.files import Files, MissingFile
from strandline.types import Offset, TopicPartition

VERSION: Final = 0

_LINE_END: Final = re.compile("\r\n|\r|\n")
_WHITE_SPACE: Final = re.compile("[ \t\n\x0b\f\r]+")
_NUMBER: Final = re.compile("[+-]?[0-9]{1,20}")


class DamagedCheckpoint(StorageError):
    """A checkpoint file does not follow its grammar."""


class OffsetCheckpoint:
    """A table of one offset per partition, such as `recovery-point-offset-checkpoint`.

    Writing contents that the file already holds is free: the high watermarks of an idle broker
    are checkpointed every few seconds.
    """

    __slots__ = ("_files", "_written", "path")

    def __init__(self, files: Files, path: str) -> None:
        self.path = path
        self._files = files
        self._written: bytes | None = None

    def read(self) -> dict[TopicPartition, Offset]:
        """The table; empty without a file. Raises `DamagedCheckpoint`."""
        return dict(
            _offset_entry(self.path, fields) for fields in read_checkpoint(self._files, self.path)
        )

    def write(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Replace the table. Entries are ordered, so that equal tables are equal bytes."""
        data = encode_checkpoint(
            f"{topic} {partition} {offset}"
            for (topic, partition), offset in sorted(offsets.items())
        )
        if data == self._written:
            return
        self._written = None
        self._files.write_atomically(self.path, data)
        self._written = data


def encode_checkpoint(lines: Iterable[str]) -> bytes:
    """The bytes of a checkpoint file with these entry lines."""
    entries = list(lines)
    return "".join(f"{line}\n" for line in (str(VERSION), str(len(entries)), *entries)).encode()


def read_checkpoint(files: Files, path: str) -> list[list[str]]:
    """The fields of each entry line; none without a file. Raises `DamagedCheckpoint`."""
    try:
        data = files.read_bytes(path)
    except MissingFile:
        return []
    return decode_checkpoint(data, path)


def decode_checkpoint(data: bytes, path: str) -> list[list[str]]:
    """The fields of each entry line in a checkpoint's bytes. `path` is for the error's sentence."""
    try:
        lines = _LINE_END.split(data.decode())
    except UnicodeDecodeError as error:
        raise DamagedCheckpoint(f"The checkpoint file {path} is not UTF-8 text.") from error
    if lines[-1] == "":
        lines.pop()
    if not lines:
        return []
    version = number_field(path, lines[0], 32)
    if version != VERSION:
        raise DamagedCheckpoint(
            f"The checkpoint file {path} has version {version}; only {VERSION} is known."
        )
    if len(lines) == 1:
        return []
    announced = number_field(path, lines[1], 32)
    if announced != len(lines) - 2:
        raise DamagedCheckpoint(
            f"The checkpoint file {path} announces {announced} entries and has {len(lines) - 2}."
        )
    return [_fields(line) for line in lines[2:]]


def number_field(path: str, text: str, bits: int) -> int:
    """A decimal number as Java reads it: an optional sign, digits, within `bits` bits."""
    if _NUMBER.fullmatch(text):
        number = int(text)
        if -(1 << (bits - 1)) <= number < 1 << (bits - 1):
            return number
    raise malformed(path, text)


def malformed(path: str, text: str) -> DamagedCheckpoint:
    """The error for a line that cannot be read."""
    return DamagedCheckpoint(f"The checkpoint file {path} has a malformed line: {text[:200]!r}.")


def _fields(line: str) -> list[str]:
    """The fields of a line. Like Kafka, leading white space makes an empty first field."""
    fields = _WHITE_SPACE.split(line)
    while fields and fields[-1] == "":
        fields.pop()
    return fields


def _offset_entry(path: str, fields: list[str]) -> tuple[TopicPartition, Offset]:
    if len(fields) != 3 or not fields[0]:
        raise malformed(path, " ".join(fields))
    partition = number_field(path, fields[1], 32)
    offset = number_field(path, fields[2], 64)
    if partition < 0 or offset < 0:
        raise malformed(path, " ".join(fields))
    return TopicPartition(fields[0], partition), Offset(offset)
