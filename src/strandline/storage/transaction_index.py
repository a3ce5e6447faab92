"""The aborted transactions of one segment: its `.txnindex` file (KIP-98).

This file knows the entries and how they are searched. It must not know producers or control
records: it is told of each abort. Readers with isolation `read_committed` get the list of aborted
transactions that touch what they fetched and skip their records. One entry per abort marker, in
the order of the markers; a segment without aborts has no file. Big endian:

    ┌─ at ┬────────────────────┬ bytes ┐
    │   0 │ version, 0         │     2 │
    │   2 │ producer id        │     8 │
    │  10 │ first offset       │     8 │ of the transaction, maybe in an earlier segment
    │  18 │ last offset        │     8 │ of its abort marker
    │  26 │ last stable offset │     8 │ once the marker was written
    └─────┴────────────────────┴───────┘

Since a reader never gets beyond the last stable offset, a search may stop at the first entry whose
last stable offset reaches the end of the fetched range: no later entry can begin inside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple

from strandline.errors import InvariantViolated
from strandline.storage.files import File, Files, parent_of
from strandline.storage.index_file import DamagedIndex
from strandline.storage.open_transactions import CompletedTransaction
from strandline.types import NO_OFFSET, Offset, ProducerId

SUFFIX: Final = ".txnindex"
VERSION: Final = 0
ENTRY: Final = Struct(">hqqqq")
ENTRY_BYTES: Final = ENTRY.size
ENTRIES_PER_READ: Final = 1024
"""How much of a file is in memory at a time."""


class AbortedTransaction(NamedTuple):
    """One aborted transaction. `last_offset` is that of its marker."""

    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset
    last_stable_offset: Offset

    @classmethod
    def of(cls, completed: CompletedTransaction, last_stable_offset: Offset) -> AbortedTransaction:
        """A transaction whose marker aborts it, and up to where readers may go behind that."""
        return cls(
            completed.producer_id,
            completed.first_offset,
            completed.last_offset,
            last_stable_offset,
        )


class AbortedSearch(NamedTuple):
    """What one segment's index says about a fetched range."""

    transactions: list[AbortedTransaction]
    complete: bool
    """Whether the indexes of later segments can be left alone."""


class TransactionIndex:
    """The transaction index of one segment. The file appears with the first entry."""

    __slots__ = ("_file", "_files", "_last_offset", "_looked", "path")

    def __init__(self, files: Files, path: str) -> None:
        self.path = path
        self._files = files
        self._file: File | None = None
        self._looked = False
        self._last_offset: Offset | None = None

    @property
    def file(self) -> File | None:
        """The file, which a driver syncs; None while the segment has no aborts."""
        if not self._looked:
            if self._files.exists(self.path):
                self._file = self._files.open(self.path)
            self._looked = True
        return self._file

    def append(self, aborted: AbortedTransaction) -> None:
        """Add an abort. Markers come in order: an earlier one is `InvariantViolated`."""
        file = self.file
        if file is None:
            file = self._file = self._files.open(self.path, create=True)
        newest = self._newest_offset(file)
        if aborted.last_offset <= newest:
            raise InvariantViolated(
                f"The abort marker at offset {aborted.last_offset} comes after the one at "
                f"{newest} in {self.path}."
            )
        file.append(ENTRY.pack(VERSION, *aborted))
        self._last_offset = aborted.last_offset

    def entries(self) -> Iterator[AbortedTransaction]:
        """All entries in order. Raises `DamagedIndex`."""
        file = self.file
        size = 0 if file is None else file.size
        if size % ENTRY_BYTES:
            raise DamagedIndex(f"{self.path} ends inside an entry ({size} bytes).")
        if file is None:
            return
        for position in range(0, size, ENTRIES_PER_READ * ENTRY_BYTES):
            data = file.read_at(position, min(ENTRIES_PER_READ * ENTRY_BYTES, size - position))
            if len(data) % ENTRY_BYTES:
                raise DamagedIndex(f"{self.path} was shortened while it was read.")
            for fields in ENTRY.iter_unpack(data):
                if fields[0] != VERSION:
                    raise DamagedIndex(
                        f"{self.path} has an entry of version {fields[0]}; only {VERSION} is known."
                    )
                yield AbortedTransaction._make(fields[1:])

    def collect_aborted(self, fetch_offset: Offset, upper_bound: Offset) -> AbortedSearch:
        """The aborted transactions that overlap `[fetch_offset, upper_bound)`."""
        found: list[AbortedTransaction] = []
        for aborted in self.entries():
            if aborted.last_offset >= fetch_offset and aborted.first_offset < upper_bound:
                found.append(aborted)
            if aborted.last_stable_offset >= upper_bound:
                return AbortedSearch(found, complete=True)
        return AbortedSearch(found, complete=False)

    def truncate_to(self, offset: Offset) -> None:
        """Drop the transactions whose marker lies at or beyond `offset`."""
        kept, newest = 0, NO_OFFSET
        for aborted in self.entries():
            if aborted.last_offset >= offset:
                break
            kept, newest = kept + 1, aborted.last_offset
        if self._file is not None:
            if self._file.size > kept * ENTRY_BYTES:
                self._file.truncate(kept * ENTRY_BYTES)
            self._last_offset = newest

    def replace(self, transactions: Sequence[AbortedTransaction]) -> None:
        """Have these take the place of all entries, whatever state they are in: durably, and so
        that a crash leaves the old ones or the new ones. Raises `StorageError`."""
        self.close()
        if transactions:
            entries = b"".join(ENTRY.pack(VERSION, *each) for each in transactions)
            self._files.write_atomically(self.path, entries)
        else:
            self._files.remove(self.path)
            self._files.sync_directory(parent_of(self.path))

    def reset(self) -> None:
        """Drop all entries, whatever state they are in, in order to rebuild them."""
        if self.file is not None:
            self.file.truncate(0)
        self._last_offset = NO_OFFSET

    @property
    def is_empty(self) -> bool:
        file = self.file
        return file is None or file.size == 0

    def moved_to(self, path: str) -> None:
        """Tell that the file, or a directory above it, was renamed."""
        self.path = path
        if self._file is not None:
            self._file.moved_to(path)

    def close(self) -> None:
        """Give the file up; the next use opens it again."""
        if self._file is not None:
            self._file.close()
        self._file = None
        self._looked = False
        self._last_offset = None

    def remove(self) -> bool:
        """Close and remove the file; whether there was one."""
        self.close()
        return self._files.remove(self.path)

    def _newest_offset(self, file: File) -> Offset:
        if self._last_offset is None:
            size = file.size
            if size % ENTRY_BYTES:
                raise DamagedIndex(f"{self.path} ends inside an entry ({size} bytes).")
            last = file.read_at(size - ENTRY_BYTES, ENTRY_BYTES) if size else b""
            self._last_offset = Offset(ENTRY.unpack(last)[3]) if last else NO_OFFSET
        return self._last_offset
