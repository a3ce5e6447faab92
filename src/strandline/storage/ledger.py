"""The truncation ledger of one log directory: what replicas had to remove, copied aside first.

A follower whose log disagrees with its leader's removes the end of its own. Mostly that is nothing
that were acknowledged; after an unclean election it may be committed records. This keeps them
for a while, with the reason, so that people can look at them and produce them again.

    <log dir>/truncated-<broker>-<wall ms>-<n>.ledger

    {"version": 1, "topic": ..., "from_offset": ..., ...}\\n      one line of JSON
    record batches as they were in the log, whole, one after the other

An entry is written beside its name, synced and renamed, before anything is removed: after a crash
it is there whole, or not at all. Plain files in the log directory itself, because Kafka reads every
directory there as a partition. To copy is a favour: a truncation must go on if it fails. A
copy may take half of the room that is left, since the truncation gives as much back.

This file knows files and batches. It must not know why a replica truncates.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Final

from strandline.errors import StorageError
from strandline.storage.files import DiskFull, Files, MissingFile, join
from strandline.storage.log import Log
from strandline.storage.log_reader import LogSlice
from strandline.types import Offset

VERSION: Final = 1
ENTRY_BYTES_MAX: Final = 64 << 20
"""Of a longer suffix the first so many bytes are kept: it is copied while the node waits."""
HEAD_BYTES_MAX: Final = 1 << 20
_CHUNK_BYTES: Final = 1 << 20
_PREFIX: Final = "truncated-"
_SUFFIX: Final = ".ledger"
_UNFINISHED: Final = ".ledger.new"
_NAME: Final = re.compile(r"truncated-\d+-\d+-\d+\.ledger")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Who truncates, and why; told by the caller."""

    broker: int
    wall_ms: int
    leader: int
    leader_epoch: int
    reason: str
    unclean: bool
    """Whether the leader was elected uncleanly: then the records may have been committed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One removed suffix. Offsets: from the first one removed to the former log end, exclusive."""

    id: str
    topic: str
    partition: int
    topic_id: str
    broker: int
    wall_ms: int
    leader: int
    leader_epoch: int
    reason: str
    unclean: bool
    from_offset: int
    to_offset: int
    high_watermark: int
    """Of this replica when it truncated: below it, it knew that the records were committed."""
    epochs: list[list[int]]
    """Leader epochs with the offsets at which they began, as far as they reach into the suffix."""
    size_bytes: int
    kept_to_offset: int
    """Less than `to_offset` if the suffix was longer than an entry may be."""


class Ledger:
    """See the module."""

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory

    def copy(self, log: Log, offset: Offset, cause: Cause, *, bytes_max: int) -> Entry | None:
        """Copy what a truncation to `offset` removes; None if that is nothing, or there is no room.

        Batches are removed whole, so the copy may begin below `offset`. Raises `StorageError`.
        """
        slices = list(_slices(log, offset, min(bytes_max, ENTRY_BYTES_MAX)))
        if not slices:
            return None
        size = sum(each.length for each in slices)
        if 2 * size > self._files.free_bytes(self._directory):
            raise DiskFull(f"There is no room in {self._directory} to keep {size} bytes aside.")
        entry = self._entry(log, slices, size, cause)
        path = self._path_of(entry.id)
        unfinished = path.removesuffix(_SUFFIX) + _UNFINISHED
        try:
            self._write(unfinished, entry, slices)
        except StorageError:
            with suppress(StorageError):  # what is left goes with the next `expire`
                self._files.remove(unfinished)
            raise
        self._files.rename(unfinished, path)
        self._files.sync_directory(self._directory)
        return entry

    def entries(self) -> list[Entry]:
        """What is kept, the oldest first. Raises `StorageError` for an entry that is damaged."""
        return [self._head(name)[0] for name in self._names()]

    def read(self, entry_id: str, position: int, length: int) -> bytes:
        """Bytes of an entry's batches from `position` on, fewer than `length` only at the end.

        Raises `MissingFile` if there is no such entry.
        """
        name = f"{_PREFIX}{entry_id}{_SUFFIX}"
        if name not in self._names():
            raise MissingFile(f"There is no entry {entry_id} in the ledger.")
        _, head_bytes = self._head(name)
        file = self._files.open(join(self._directory, name))
        try:
            return file.read_at(head_bytes + position, length)
        finally:
            file.close()

    def expire(self, now_ms: int, *, retention_ms: int, retention_bytes: int) -> int:
        """Remove what is too old or too much, the oldest first, and what a crash left unfinished;
        returns how many entries went. -1 has no limit."""
        names = self._names()
        for name in self._files.list_directory(self._directory):
            if name.endswith(_UNFINISHED) and is_of_ledger(name):
                self._files.remove(join(self._directory, name))
        sizes = {name: self._files.size_of(join(self._directory, name)) for name in names}
        total = sum(sizes.values())
        removed = 0
        for name in names:
            too_old = 0 <= retention_ms < now_ms - _wall_ms_of(name)
            if not too_old and not 0 <= retention_bytes < total:
                break
            self._files.remove(join(self._directory, name))
            total -= sizes[name]
            removed += 1
        return removed

    # -- Inside ------------------------------------------------------------------------------

    def _entry(self, log: Log, slices: list[LogSlice], size: int, cause: Cause) -> Entry:
        first = _first_offset(slices[0])
        epochs = log.leader_epochs.entries
        inside = [each for each in epochs if each.start_offset > first]
        before = [each for each in epochs if each.start_offset <= first][-1:]
        return Entry(
            id=self._new_id(cause),
            topic=log.topic_partition.topic,
            partition=log.topic_partition.partition,
            topic_id=str(log.topic_id),
            broker=cause.broker,
            wall_ms=cause.wall_ms,
            leader=cause.leader,
            leader_epoch=cause.leader_epoch,
            reason=cause.reason,
            unclean=cause.unclean,
            from_offset=first,
            to_offset=log.log_end_offset,
            high_watermark=log.high_watermark,
            epochs=[[each.epoch, each.start_offset] for each in (*before, *inside)],
            size_bytes=size,
            kept_to_offset=min(slices[-1].upper_offset, log.log_end_offset),
        )

    def _write(self, path: str, entry: Entry, slices: list[LogSlice]) -> None:
        self._files.remove(path)  # what a crash left
        head = json.dumps({"version": VERSION, **asdict(entry)}, separators=(",", ":"))
        file = self._files.open(path, create=True)
        try:
            file.append(head.encode() + b"\n")
            for each in slices:
                end = each.position + each.length
                for position in range(each.position, end, _CHUNK_BYTES):
                    file.append(each.file.read_at(position, min(_CHUNK_BYTES, end - position)))
            file.sync()
        finally:
            file.close()

    def _head(self, name: str) -> tuple[Entry, int]:
        path = join(self._directory, name)
        file = self._files.open(path)
        try:
            start = file.read_at(0, HEAD_BYTES_MAX)
        finally:
            file.close()
        line, newline, _ = start.partition(b"\n")
        try:
            fields = json.loads(line)
            is_ours = bool(newline) and fields.pop("version") == VERSION
            entry = Entry(**fields) if is_ours else None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StorageError(f"{path} is no entry of the ledger: {error}.") from error
        if entry is None:
            raise StorageError(f"{path} is no entry of the ledger in a version known here.")
        return entry, len(line) + 1

    def _names(self) -> list[str]:
        found = self._files.list_directory(self._directory)
        return sorted(filter(_NAME.fullmatch, found), key=_order_of)

    def _new_id(self, cause: Cause) -> str:
        number = 0
        while self._files.exists(self._path_of(f"{cause.broker}-{cause.wall_ms}-{number}")):
            number += 1
        return f"{cause.broker}-{cause.wall_ms}-{number}"

    def _path_of(self, entry_id: str) -> str:
        return join(self._directory, f"{_PREFIX}{entry_id}{_SUFFIX}")


def is_of_ledger(name: str) -> bool:
    """Whether a file of a log directory is an entry, or one that a crash left unfinished."""
    return _NAME.fullmatch(name.removesuffix(".new")) is not None


def _slices(log: Log, offset: Offset, bytes_max: int) -> Iterator[LogSlice]:
    """The batches from the one that holds `offset` to the end, as far as they fit."""
    position, left = max(offset, log.log_start_offset), bytes_max
    while position < log.log_end_offset:
        found = log.reader.read(
            position, left, end_offset=log.log_end_offset, at_least_one_batch=False
        )
        if found is None:
            return
        yield found
        position, left = found.upper_offset, left - found.length


def _first_offset(found: LogSlice) -> int:
    """The base offset of the batch with which a slice begins: its first eight bytes."""
    return int.from_bytes(found.file.read_at(found.position, 8), "big")


def _wall_ms_of(name: str) -> int:
    return _order_of(name)[0]


def _order_of(name: str) -> tuple[int, int]:
    """By time, and by number within a time."""
    _, wall_ms, number = name.removeprefix(_PREFIX).removesuffix(_SUFFIX).split("-")
    return int(wall_ms), int(number)
