"""The marker of a clean shutdown, `.kafka_cleanshutdown` in a log directory.

This file knows the marker. Its presence at start says that every log was flushed and closed, so
that nothing needs recovery, and it names the broker epoch that shut down. Before Kafka 3.7 it was
empty; since then it is JSON: `{"version":0,"brokerEpoch":17}`.

Three keys are our own; Kafka and version 0.1.0 write none of them.

    "lives":[[17,17],[20,23]]   of which processes of this broker the directory holds everything:
                                one that comes back from an older copy lacks the later ones
    "unheard":1700000000000     when the last process began, if it never heard whether it was
                                registered: the cluster remembers which process a registration was
    "logs":{"<topic id>":[0,3]} which logs the broker had, in whichever of its directories: one of
                                them that is missing at the next start was removed, any other one
                                was never there
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from strandline.storage.files import Files, MissingFile, join
from strandline.storage.kafka_uuid import format_uuid, parse_uuid
from strandline.types import Lives, TopicId

FILE_NAME: Final = ".kafka_cleanshutdown"
VERSION: Final = 0

HeldLogs: TypeAlias = frozenset[tuple[TopicId, int]]
"""Logs of partitions, by their topic and number."""


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
    logs: HeldLogs | None = None
    """Which logs the broker had in all its directories, also in those that had failed; None if the
    marker does not say."""


def together(held: Iterable[HeldLogs | None]) -> HeldLogs | None:
    """The logs of several directories; None if it is not known of one of them."""
    every: set[tuple[TopicId, int]] = set()
    for logs in held:
        if logs is None:
            return None
        every |= logs
    return frozenset(every)


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
    content = _content(data)
    return CleanShutdown(
        _integer(content.get("brokerEpoch")),
        _lives(content.get("lives")),
        _integer(content.get("unheard")),
        _logs(content.get("logs")),
    )


def write_marker(files: Files, directory: str, shutdown: CleanShutdown) -> None:
    """Say durably that everything in the log directory is flushed and closed."""
    content: dict[str, object] = {"version": VERSION, "brokerEpoch": shutdown.broker_epoch}
    if shutdown.lives is not None:
        content["lives"] = shutdown.lives
    if shutdown.unheard_ms is not None:
        content["unheard"] = shutdown.unheard_ms
    if shutdown.logs is not None:
        topics: dict[str, list[int]] = {}
        for topic_id, partition in sorted(shutdown.logs):
            topics.setdefault(format_uuid(topic_id), []).append(partition)
        content["logs"] = topics
    data = json.dumps(content, separators=(",", ":")).encode()
    files.write_atomically(join(directory, FILE_NAME), data)


def _content(data: bytes) -> dict[str, Any]:
    """Contents that do not parse only leave it unknown; the file's presence is the mark."""
    try:
        content = json.loads(data)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _integer(value: Any) -> int | None:
    return value if type(value) is int else None


def _lives(value: Any) -> Lives | None:
    try:
        lives = tuple((first, last) for first, last in value)
    except (ValueError, TypeError):
        return None
    return lives if all(type(epoch) is int for life in lives for epoch in life) else None


def _logs(value: Any) -> HeldLogs | None:
    try:
        logs = frozenset((parse_uuid(text), each) for text, some in value.items() for each in some)
    except (ValueError, TypeError, AttributeError):
        return None
    return logs if all(type(partition) is int for _, partition in logs) else None
