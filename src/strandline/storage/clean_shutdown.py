"""The marker of a clean shutdown, `.kafka_cleanshutdown` in a log directory.

This file knows the marker. Its presence at start says that every log was flushed and closed, so
that nothing needs recovery, and it names the broker epoch that shut down. Before Kafka 3.7 it was
empty; since then it is JSON: `{"version":0,"brokerEpoch":17}`.

Two keys are our own. `"lives":[[17,17],[20,23]]`: of which processes of this broker the directory
holds everything. A directory that comes back from an older copy lacks the later ones. And
`"unheard":1700000000000`: when the last process began, if it never heard whether it was registered;
the cluster remembers of a registration which process it was. Kafka and version 0.1.0 write neither.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from strandline.storage.files import Files, MissingFile, join
from strandline.types import Lives

FILE_NAME: Final = ".kafka_cleanshutdown"
VERSION: Final = 0


@dataclass(frozen=True, slots=True)
class CleanShutdown:
    """The last shutdown was clean."""

    broker_epoch: int | None
    """The epoch of the broker that shut down, the earliest since which nothing was lost; None if
    the marker does not say."""
    lives: Lives | None = None
    """None if the marker does not say."""
    unheard_ms: int | None = None
    """The wall time at which a process began that never heard of a registration of its own."""


def take_marker(files: Files, directory: str) -> CleanShutdown | None:
    """Read the marker and remove it durably; None means that the last shutdown was not clean.

    It goes at once: a crash while logs are loaded must count as unclean (KAFKA-10471).
    """
    path = join(directory, FILE_NAME)
    try:
        data = files.read_bytes(path)
    except MissingFile:
        return None
    files.remove(path)
    files.sync_directory(directory)
    return CleanShutdown(_integer(data, "brokerEpoch"), _lives(data), _integer(data, "unheard"))


def write_marker(files: Files, directory: str, shutdown: CleanShutdown) -> None:
    """Say durably that everything in the log directory is flushed and closed."""
    content: dict[str, object] = {"version": VERSION, "brokerEpoch": shutdown.broker_epoch}
    if shutdown.lives is not None:
        content["lives"] = shutdown.lives
    if shutdown.unheard_ms is not None:
        content["unheard"] = shutdown.unheard_ms
    data = json.dumps(content, separators=(",", ":")).encode()
    files.write_atomically(join(directory, FILE_NAME), data)


def _integer(data: bytes, key: str) -> int | None:
    """Contents that do not parse only leave it unknown; the file's presence is the mark."""
    try:
        number = json.loads(data)[key]
    except (ValueError, KeyError, TypeError):
        return None
    return number if type(number) is int else None


def _lives(data: bytes) -> Lives | None:
    try:
        pairs = json.loads(data)["lives"]
        lives = tuple((first, last) for first, last in pairs)
    except (ValueError, KeyError, TypeError):
        return None
    return lives if all(type(epoch) is int for life in lives for epoch in life) else None
