"""Which leader epoch wrote which part of a partition's log (KIP-101, KIP-279).

This file knows the table of epochs and its file `leader-epoch-checkpoint` in the partition's
directory. It must not know batches or replicas: it is told where epochs start and where the log
was cut. Theory: epochs and start offsets both strictly increase, so the last offset that a given
epoch wrote is where the next one starts; followers truncate by that answer and never by the high
watermark.

Three times at which the file is written:

- An epoch that begins is only noted in memory: a broker may take over thousands of partitions at
  once. As long as nothing is written in it, nothing needs the entry after a crash; then recovery
  finds it in the batches that it reads. So it must be durable before the recovery point passes its
  first batch. It is written by steps of which those that sync may run in any thread (`prepare`,
  `adopt`, `note_durable`), or at once by `flush_assigned`.
- A cut at the end is durable when it returns, if the file may name what was cut: an epoch must not
  come back for offsets that an older one goes on to fill, since recovery takes such batches for
  truncated ones. Usually the file does not name it, because nothing was written in it.
- A cut at the start only changes memory and is written by `flush` or with the next entry: a stale
  entry that survives a crash is cut again when the log is loaded.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from strandline.config.topic import LONG_MAX
from strandline.errors import InvariantViolated
from strandline.storage.checkpoint_file import (
    encode_checkpoint,
    malformed,
    number_field,
    read_checkpoint,
)
from strandline.storage.files import Files
from strandline.types import NO_EPOCH, NO_OFFSET, LeaderEpoch, Offset

FILE_NAME: Final = "leader-epoch-checkpoint"
NEXT_SUFFIX: Final = ".next"
"""Ends the name of a table that is written and not in force yet; worthless after a restart."""
ALL_WRITTEN: Final = Offset(LONG_MAX)


class EpochEntry(NamedTuple):
    """One epoch and the offset at which its leader began to write."""

    epoch: LeaderEpoch
    start_offset: Offset


class EpochsToWrite(NamedTuple):
    """A table as it was at one time, on its way to the disk."""

    path: str
    data: bytes
    version: int
    latest_entry: EpochEntry | None

    def write(self, files: Files) -> None:
        """Bring it to the disk beside the file, durably but for its name; in any thread."""
        files.write_synced(self.path + NEXT_SUFFIX, self.data)

    def replace(self, files: Files) -> None:
        """Put it in the place of the file, durably once the directory is synced; in any thread."""
        self.write(files)
        files.rename(self.path + NEXT_SUFFIX, self.path)


class LeaderEpochs:
    """The leader epochs of one partition's log.

    - `latest` is the newest epoch or `NO_EPOCH`; a plain attribute, because every append compares
      its epoch with it. Only this class moves it.
    - `before_write` is called before each write of the file that is durable when it returns.
    - `unwritten_from`: where the first epoch begins that may not be on the disk; `ALL_WRITTEN`
      without one. The recovery point must not pass it.
    """

    __slots__ = (
        "_before_write",
        "_entries",
        "_files",
        "_named_to",
        "_path",
        "_unwritten",
        "_version",
        "_written_latest",
        "latest",
        "unwritten_from",
    )

    def __init__(
        self, files: Files, path: str, before_write: Callable[[], None] = lambda: None
    ) -> None:
        self._before_write = before_write
        self.latest: LeaderEpoch = NO_EPOCH
        self.unwritten_from = ALL_WRITTEN
        self._files = files
        self._path = path
        self._entries: list[EpochEntry] = []
        self._unwritten = False
        self._version = 0
        """Counts the changes and writes of the table: what was prepared before is void."""
        self._written_latest: LeaderEpoch = NO_EPOCH
        """The newest epoch that is certainly in the file."""
        self._named_to: Offset = NO_OFFSET
        """The greatest start offset that the file may have."""

    @classmethod
    def load(
        cls, files: Files, path: str, before_write: Callable[[], None] = lambda: None
    ) -> LeaderEpochs:
        """Read the table at `path`; empty without a file. Raises `DamagedCheckpoint`.

        Entries out of order are resolved as successive assignments, as Kafka does. The caller
        must then truncate from both ends to the log's real range.
        """
        epochs = cls(files, path, before_write)
        entries: list[EpochEntry] = []
        for fields in read_checkpoint(files, path):
            if len(fields) != 2:
                raise malformed(path, " ".join(fields))
            epoch, start = number_field(path, fields[0], 32), number_field(path, fields[1], 64)
            if epoch < 0 or start < 0:
                raise malformed(path, " ".join(fields))
            entries = with_entry(entries, EpochEntry(LeaderEpoch(epoch), Offset(start))) or entries
            epochs._named_to = max(epochs._named_to, Offset(start))
        epochs._written_latest = entries[-1].epoch if entries else NO_EPOCH
        epochs._publish(entries)
        return epochs

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        """All entries in order."""
        return tuple(self._entries)

    @property
    def latest_entry(self) -> EpochEntry | None:
        return self._entries[-1] if self._entries else None

    @property
    def has_unwritten_changes(self) -> bool:
        """Whether `flush` has something to write."""
        return self._unwritten

    def assign(self, epoch: LeaderEpoch, start_offset: Offset, *, later: bool = False) -> bool:
        """Note that `epoch` starts at `start_offset`; returns whether that changed the table.

        The change is on disk when this returns, unless it is to be written `later`; after a
        `StorageError` the table is as before.
        Entries that contradict the new one (same or later epoch, or same or later start) go: no
        data was written under them, or it was truncated.
        """
        if epoch < 0 or start_offset < 0:
            raise InvariantViolated(f"Leader epoch {epoch} cannot start at offset {start_offset}.")
        changed = with_entry(self._entries, EpochEntry(epoch, start_offset))
        if changed is None:
            return False
        if not later:
            self._write(changed)
        self._publish(changed)
        return True

    def end_offset_for(
        self, epoch: LeaderEpoch, log_end_offset: Offset
    ) -> tuple[LeaderEpoch, Offset]:
        """The largest known epoch up to `epoch`, and where it ends.

        `(NO_EPOCH, NO_OFFSET)` when that is unknown: for an epoch newer than all, or none at all.
        An epoch older than all known ones ends where the first known one starts, since its data is
        gone (KAFKA-7415).
        """
        if epoch == NO_EPOCH:
            return NO_EPOCH, NO_OFFSET
        if epoch == self.latest:
            return epoch, log_end_offset
        higher = bisect_right(self._entries, epoch, key=_epoch_of)
        if higher == len(self._entries):
            return NO_EPOCH, NO_OFFSET
        found = self._entries[higher - 1].epoch if higher else epoch
        return found, self._entries[higher].start_offset

    def epoch_for_offset(self, offset: Offset) -> LeaderEpoch:
        """The epoch that wrote `offset`, or `NO_EPOCH` when it lies below all known starts."""
        following = bisect_right(self._entries, offset, key=_start_of)
        return self._entries[following - 1].epoch if following else NO_EPOCH

    def entries_in_range(self, start_offset: Offset, end_offset: Offset) -> tuple[EpochEntry, ...]:
        """The entries that a log of just `[start_offset, end_offset)` would have."""
        kept = from_start(self._entries, start_offset) if start_offset >= 0 else self._entries
        return tuple(up_to_end(kept, end_offset) if end_offset >= 0 else kept)

    def truncate_from_end(self, end_offset: Offset) -> bool:
        """Drop the epochs that start at or after `end_offset`; returns whether there were any.

        Needed even if the log itself does not shrink: an ex-leader may hold an epoch in which it
        wrote nothing (KAFKA-10706). A negative offset is an unknown end and drops nothing. When
        this returns, the file names none of them; after a `StorageError` the table is as before.
        """
        if end_offset < 0:
            return False
        kept = up_to_end(self._entries, end_offset)
        if self._named_to >= end_offset:
            self._write(kept)
        if len(kept) == len(self._entries):
            return False
        self._publish(kept)
        return True

    def truncate_from_start(self, start_offset: Offset) -> bool:
        """Forget epochs that ended at or before `start_offset`; returns whether entries changed.

        The epoch to which `start_offset` belongs stays, rewritten to start there.
        """
        return self._maybe_keep(from_start(self._entries, start_offset))

    def put_in_front(self, entries: Iterable[EpochEntry]) -> bool:
        """Add older epochs that batches bear out; what contradicts them goes, as in `load`."""
        complete: list[EpochEntry] = []
        for entry in (*entries, *self._entries):
            complete = with_entry(complete, entry) or complete
        return self._maybe_keep(complete)

    def replace(self, entries: Iterable[EpochEntry]) -> bool:
        """Have these entries and no others, those of a log with the same records; returns whether
        that changed the table. Then `flush`."""
        return self._maybe_keep(list(entries))

    def clear(self) -> bool:
        """Forget everything, as after a full truncation; returns whether there was anything."""
        return self._maybe_keep([])

    def flush(self) -> None:
        """Write and sync what truncation changed in memory."""
        if self._unwritten:
            self._write(self._entries)

    def flush_assigned(self) -> None:
        """Write and sync the epochs that were assigned in memory only, at once."""
        if self.unwritten_from != ALL_WRITTEN:
            self._write(self._entries)

    @property
    def unwritten(self) -> EpochsToWrite | None:
        """The table as it is now, if the file is not so."""
        is_written = not self._unwritten and self.unwritten_from == ALL_WRITTEN
        return None if is_written else self.prepare()

    def prepare(self) -> EpochsToWrite:
        """The table as it is now, to be written elsewhere (`EpochsToWrite.write`)."""
        data = self._encoded(self._entries)
        return EpochsToWrite(self._path, data, self._version, self.latest_entry)

    def adopt(self, written: EpochsToWrite) -> bool:
        """Let a prepared table take the place of the file; whether it is still the right one.

        Durable when the directory is synced; then call `note_durable`.
        """
        if (written.version, written.path) != (self._version, self._path):
            return False
        if written.latest_entry is not None:
            self._named_to = max(self._named_to, written.latest_entry.start_offset)
        self._files.rename(written.path + NEXT_SUFFIX, written.path)
        return True

    def note_durable(self, written: EpochsToWrite) -> bool:
        """The table that was adopted is on the disk; whether it still is the table."""
        if (written.version, written.path) != (self._version, self._path):
            return False
        self._is_written(written.latest_entry)
        return True

    def moved_to(self, path: str) -> None:
        """Tell that the file is now at `path`, because its directory was renamed."""
        self._path = path
        self._version += 1

    def check(self) -> None:
        """Raise `InvariantViolated` unless epochs and starts strictly increase (I-03)."""
        for lower, higher in zip(self._entries, self._entries[1:], strict=False):
            if lower.epoch >= higher.epoch or lower.start_offset >= higher.start_offset:
                raise InvariantViolated(
                    f"The leader epochs {lower} and {higher} are out of order.", invariant="I-03"
                )

    def _maybe_keep(self, entries: list[EpochEntry]) -> bool:
        if entries == self._entries:
            return False
        self._publish(entries)
        self._unwritten = True
        return True

    def _publish(self, entries: list[EpochEntry]) -> None:
        self._entries = entries
        self._version += 1
        self.latest = entries[-1].epoch if entries else NO_EPOCH
        self._find_unwritten()

    def _find_unwritten(self) -> None:
        first = bisect_right(self._entries, self._written_latest, key=_epoch_of)
        unwritten = self._entries[first:]
        self.unwritten_from = unwritten[0].start_offset if unwritten else ALL_WRITTEN

    def _write(self, entries: list[EpochEntry]) -> None:
        self._version += 1
        if entries:
            self._named_to = max(self._named_to, entries[-1].start_offset)
        self._before_write()
        self._files.write_atomically(self._path, self._encoded(entries))
        self._is_written(entries[-1] if entries else None)

    def _is_written(self, newest: EpochEntry | None) -> None:
        self._unwritten = False
        self._written_latest, self._named_to = newest or (NO_EPOCH, NO_OFFSET)
        self._find_unwritten()

    @staticmethod
    def _encoded(entries: list[EpochEntry]) -> bytes:
        return encode_checkpoint(f"{epoch} {start_offset}" for epoch, start_offset in entries)


def with_entry(entries: list[EpochEntry], added: EpochEntry) -> list[EpochEntry] | None:
    """The table after an assignment, or None when the assignment says nothing new."""
    if entries:
        newest = entries[-1]
        if added.epoch == newest.epoch and added.start_offset >= newest.start_offset:
            return None
    kept = min(
        bisect_left(entries, added.epoch, key=_epoch_of),
        bisect_left(entries, added.start_offset, key=_start_of),
    )
    return [*entries[:kept], added]


def up_to_end(entries: list[EpochEntry], end_offset: Offset) -> list[EpochEntry]:
    """The entries that start below `end_offset`."""
    return entries[: bisect_left(entries, end_offset, key=_start_of)]


def from_start(entries: list[EpochEntry], start_offset: Offset) -> list[EpochEntry]:
    """The entries of a log that starts at `start_offset`."""
    following = bisect_right(entries, start_offset, key=_start_of)
    if following == 0:
        return entries
    return [EpochEntry(entries[following - 1].epoch, start_offset), *entries[following:]]


def _epoch_of(entry: EpochEntry) -> LeaderEpoch:
    return entry.epoch


def _start_of(entry: EpochEntry) -> Offset:
    return entry.start_offset
