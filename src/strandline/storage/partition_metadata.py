"""`partition.metadata`: which topic id a partition's directory belongs to (KIP-516).

This file knows the two lines of that file. A topic may be deleted and made again under its name;
the id tells whose records these are. The file is written before the first record is, and durable
before any record counts as durable:

    ┌──────────────────────────────────┐
    │ version: 0                       │
    │ topic_id: t7xrRA7xSLyKjbfFqXnkUg │ no line end behind it
    └──────────────────────────────────┘
"""

from __future__ import annotations

import re
from typing import Final

from strandline.errors import StorageError
from strandline.storage.checkpoint_file import DamagedCheckpoint
from strandline.storage.files import Files, MissingFile, join
from strandline.storage.kafka_uuid import format_uuid, parse_uuid
from strandline.storage.unsynced_write import write_unsynced
from strandline.types import NO_TOPIC_ID, TopicId

FILE_NAME: Final = "partition.metadata"
VERSION: Final = 0

_SEPARATOR: Final = re.compile(r":[ \t\n\x0b\f\r]+")


def read_topic_id(files: Files, directory: str) -> TopicId | None:
    """The topic id in a partition's directory; None without the file. Raises `DamagedCheckpoint`.

    Later versions are read too, since they only add to this one.
    """
    path = join(directory, FILE_NAME)
    try:
        data = files.read_bytes(path)
    except MissingFile:
        return None
    try:
        lines = data.decode().splitlines()
        version = int(_value(lines[0]))
        topic_id = parse_uuid(_value(lines[1]))
    except (ValueError, IndexError) as error:
        raise DamagedCheckpoint(f"The file {path} does not name a topic id.") from error
    if version < VERSION:
        raise DamagedCheckpoint(f"The file {path} has version {version}.")
    if topic_id == NO_TOPIC_ID:
        raise DamagedCheckpoint(f"The file {path} names the zero topic id.")
    return topic_id


def write_topic_id(
    files: Files, directory: str, topic_id: TopicId, *, durably: bool = True
) -> None:
    """Say whose partition this is. A different id in the file is `StorageError`.

    If not `durably`, a power failure may leave any contents, or no file; an error leaves no file.
    """
    if topic_id == NO_TOPIC_ID:
        raise StorageError(f"The zero topic id cannot be written to {directory}.")
    present = read_topic_id(files, directory)
    if present is not None and present != topic_id:
        raise StorageError(
            f"The directory {directory} belongs to topic id {format_uuid(present)}, "
            f"not {format_uuid(topic_id)}."
        )
    if present is None:
        text = f"version: {VERSION}\ntopic_id: {format_uuid(topic_id)}"
        path = join(directory, FILE_NAME)
        if durably:
            files.write_atomically(path, text.encode())
        else:
            write_unsynced(files, path, text.encode())


def _value(line: str) -> str:
    name_and_value = _SEPARATOR.split(line)
    if len(name_and_value) != 2:
        raise ValueError(line)
    return name_and_value[1]
