"""Ranges of logs on their way to a client: small ones are read, others wait as what they are."""

from __future__ import annotations

from dataclasses import dataclass

from strandline.errors import StorageError
from strandline.storage.files import File
from strandline.storage.log_reader import LogSlice


@dataclass(slots=True)
class FileRange:
    """The unsent part of a log range.

    It has no descriptor of its own: a client that asks for much and reads nothing could use up the
    process's. If the log gives the file up first, the connection is closed, as by Kafka. It is
    closed as well if the file was cut since (`cuts`): other records, perhaps not committed, may
    have taken the place of those that were answered.
    """

    file: File
    position: int
    length: int
    cuts: int


def read_slice(chunk: LogSlice) -> bytes:
    """The bytes of a range, all of them or `StorageError`."""
    data = chunk.file.read_at(chunk.position, chunk.length)
    if len(data) != chunk.length:
        raise StorageError(f"{chunk.file.path} ends before the range that was to be sent.")
    return data
