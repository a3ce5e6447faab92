"""Ranges of logs on their way to a client that are too long to be copied."""

from __future__ import annotations

from dataclasses import dataclass

from strandline.storage.files import File


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
