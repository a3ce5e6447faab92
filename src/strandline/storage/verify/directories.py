"""Which replicas lie in the given directories, and what the checkpoints say of them.

This file knows directories and their tables. It must not know what is in a log.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from strandline.errors import InvalidSetting, StorageError
from strandline.storage import clean_shutdown, meta_properties
from strandline.storage.checkpoint_file import OffsetCheckpoint
from strandline.storage.directory_contents import scan_directory
from strandline.storage.files import Files, join
from strandline.storage.log_directory import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
)
from strandline.storage.meta_properties import read_meta_properties
from strandline.storage.verify.findings import Finding, Kind
from strandline.types import BrokerId, Offset, TopicPartition

_INSIDE = ("", "brokers")
"""Where below a data directory of several brokers their log directories are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One replica of a partition, as its log directory describes it."""

    broker: int
    directory: str
    """The partition's own directory."""
    high_watermark: int | None
    """None where no checkpoint tells it."""
    log_start: int
    was_compacted: bool
    """Whether the cleaner has a checkpoint for it."""
    is_clean: bool
    """Whether the last shutdown was clean, so that all of the log can be judged."""
    recovery_point: int
    """What lies at or above it was not synced for certain; after a clean shutdown all was."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """Everything that is to be audited. `findings` are about the tables of the directories."""

    partitions: dict[TopicPartition, tuple[Replica, ...]]
    findings: tuple[Finding, ...]
    directories: tuple[str, ...]


def find_log_directories(files: Files, given: Iterable[str]) -> list[str]:
    """The log directories among the given ones and, in a data directory of several, below them.

    Raises `InvalidSetting` for a directory that is none and has none.
    """
    found: list[str] = []
    for path in given:
        path = os.path.abspath(path)
        if not files.is_directory(path):
            raise InvalidSetting("log-dirs", f"There is no directory '{path}'.")
        below = [each for each in _below(files, path) if _is_log_directory(files, each)]
        here = [path] if _is_log_directory(files, path) else []
        if not (here or below):
            raise InvalidSetting(
                "log-dirs",
                f"'{path}' is no log directory and has none: there is no meta.properties.",
            )
        found += [*here, *below]
    return list(dict.fromkeys(found))


def take_inventory(
    files: Files, directories: Sequence[str], topics: frozenset[str] = frozenset()
) -> Inventory:
    """The replicas of the topics (all, if none are named) in these log directories.

    Raises `InvalidSetting` when two directories hold the same replica of the same broker.
    """
    partitions: dict[TopicPartition, list[Replica]] = {}
    findings: list[Finding] = []
    for number, path in enumerate(directories):
        tables = _Tables(files, path, -1 - number)
        findings += tables.findings
        for at in scan_directory(files, path).partitions:
            if topics and at.topic not in topics:
                continue
            replica = tables.replica(at)
            others = partitions.setdefault(at, [])
            for other in others:
                if other.broker == replica.broker:
                    raise InvalidSetting(
                        "log-dirs",
                        f"'{other.directory}' and '{replica.directory}' are the same replica, of "
                        f"broker {replica.broker}: one seems to be a copy of the other.",
                    )
            others.append(replica)
    ordered = {at: tuple(sorted(found, key=_broker)) for at, found in sorted(partitions.items())}
    return Inventory(ordered, tuple(findings), tuple(directories))


class _Tables:
    """The checkpoints of one log directory. One that cannot be read is a finding."""

    def __init__(self, files: Files, path: str, anonymous: int) -> None:
        self.findings: list[Finding] = []
        self._path = path
        self._broker = self._owner(files, anonymous)
        self._high_watermarks = self._table(files, HIGH_WATERMARKS)
        self._log_starts = self._table(files, LOG_STARTS) or {}
        self._recovery_points = self._table(files, RECOVERY_POINTS) or {}
        self._cleaned = self._table(files, CLEANER_OFFSETS) or {}
        self._is_clean = files.exists(join(path, clean_shutdown.FILE_NAME))

    def replica(self, at: TopicPartition) -> Replica:
        high_watermark = (self._high_watermarks or {}).get(at)
        return Replica(
            broker=self._broker,
            directory=join(self._path, str(at)),
            high_watermark=high_watermark,
            log_start=self._log_starts.get(at, Offset(0)),
            was_compacted=at in self._cleaned,
            is_clean=self._is_clean,
            recovery_point=self._recovery_points.get(at, Offset(0)),
        )

    def _owner(self, files: Files, anonymous: int) -> BrokerId:
        """The broker; a negative number where that cannot be known."""
        try:
            found = read_meta_properties(files, self._path)
        except StorageError as error:
            self._add(str(error), meta_properties.FILE_NAME)
            found = None
        if found is None or found.broker_id is None:
            return BrokerId(anonymous)
        return found.broker_id

    def _table(self, files: Files, name: str) -> dict[TopicPartition, Offset] | None:
        try:
            return OffsetCheckpoint(files, join(self._path, name)).read()
        except StorageError as error:
            self._add(str(error), name)
            return None

    def _add(self, sentence: str, name: str) -> None:
        broker = getattr(self, "_broker", -1)
        self.findings.append(
            Finding(
                kind=Kind.CHECKPOINT,
                topic="",
                partition=-1,
                brokers=(broker,) if broker >= 0 else (),
                path=join(self._path, name),
                offset=-1,
                end_offset=-1,
                sentence=sentence,
            )
        )


def _below(files: Files, path: str) -> list[str]:
    found = []
    for name in _INSIDE:
        parent = join(path, name) if name else path
        if files.is_directory(parent):
            inside = [join(parent, each) for each in files.list_directory(parent)]
            found += [each for each in inside if files.is_directory(each)]
    return found


def _is_log_directory(files: Files, path: str) -> bool:
    return files.exists(join(path, meta_properties.FILE_NAME))


def _broker(replica: Replica) -> int:
    return replica.broker
