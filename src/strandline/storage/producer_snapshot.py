"""Producer state on disk: `<offset, 20 digits>.snapshot` files in the partition's directory.

This file knows their bytes and which of them exist. It must not know when one is due. A snapshot
holds the state at its offset, built from the batches below it, with only the last batch of each
producer; loading the newest one and scanning the rest of the log gives the state at the log's
end. The batches before a producer's last one are found in the log when they are asked for
(`producer_recall`). Big endian:

    ┌─ at ┬─────────────────────┬ bytes ┐
    │   0 │ version, 1          │     2 │
    │   2 │ CRC-32C of 6..end   │     4 │
    │   6 │ number of producers │     4 │
    └─────┴─────────────────────┴───────┘ then for each of them
    ┌─ at ┬──────────────────────────┬ bytes ┐
    │   0 │ producer id              │     8 │
    │   8 │ producer epoch           │     2 │
    │  10 │ last sequence            │     4 │ -1 without a batch
    │  14 │ last offset              │     8 │ -1 without a batch
    │  22 │ last offset delta        │     4 │ first offset = last offset - this
    │  26 │ last timestamp           │     8 │
    │  34 │ coordinator epoch        │     4 │ -1: none
    │  38 │ transaction first offset │     8 │ -1: no open transaction
    └─────┴──────────────────────────┴───────┘

A damaged snapshot is worth nothing but costs nothing either: it is deleted and an older one used.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from struct import Struct, error
from typing import Final

from crc32c import crc32c

from strandline.errors import StorageError
from strandline.storage.files import Files, MissingFile, join
from strandline.storage.producer_entry import ProducerEntry
from strandline.storage.unsynced_write import write_unsynced
from strandline.types import NO_OFFSET, Offset, ProducerEpoch, ProducerId

SUFFIX: Final = ".snapshot"
RETIRED_SUFFIX: Final = ".deleted"
VERSION: Final = 1

_PREFIX: Final = Struct(">hIi")
_ENTRY: Final = Struct(">qhiqiqiq")
_COUNT: Final = Struct(">i")
_CRC_COVERS_FROM: Final = 6


class DamagedSnapshot(StorageError):
    """A producer snapshot's bytes are not those that were written."""


def snapshot_name(offset: Offset) -> str:
    """The file name of the snapshot at `offset`."""
    return f"{offset:020d}{SUFFIX}"


def offset_in_name(name: str) -> Offset | None:
    """The offset of a snapshot's file name; None for any other name."""
    digits = name.removesuffix(SUFFIX)
    if name.endswith(SUFFIX) and len(digits) == 20 and digits.isascii() and digits.isdigit():
        return Offset(int(digits))
    return None


def encode_snapshot(entries: Collection[ProducerEntry]) -> bytes:
    """The bytes of a snapshot of these producers, in their order."""
    body = bytearray(_COUNT.pack(len(entries)))
    for entry in entries:
        last_sequence, last_offset, delta = (
            entry.batches[-1][:3] if entry.batches else (-1, NO_OFFSET, 0)
        )
        body += _ENTRY.pack(
            entry.producer_id,
            entry.epoch,
            last_sequence,
            last_offset,
            delta,
            entry.last_active_ms,
            entry.coordinator_epoch,
            entry.transaction_first_offset,
        )
    return _PREFIX.pack(VERSION, crc32c(body), len(entries)) + body[_COUNT.size :]


def decode_snapshot(data: bytes) -> list[ProducerEntry]:
    """The producers in a snapshot's bytes. Raises `DamagedSnapshot`."""
    try:
        version, crc, count = _PREFIX.unpack_from(data)
    except error as shortage:
        raise DamagedSnapshot(f"It has only {len(data)} bytes.") from shortage
    if version != VERSION:
        raise DamagedSnapshot(f"It has version {version}; only {VERSION} is known.")
    if len(data) != _PREFIX.size + count * _ENTRY.size:
        raise DamagedSnapshot(f"It announces {count} producers and has {len(data)} bytes.")
    if crc != crc32c(memoryview(data)[_CRC_COVERS_FROM:]):
        raise DamagedSnapshot("Its checksum does not match.")
    return [_entry(*fields) for fields in _ENTRY.iter_unpack(memoryview(data)[_PREFIX.size :])]


@dataclass(frozen=True, slots=True)
class Reload:
    """What a rebuild of the state of producers found on disk."""

    scan_from: Offset
    """Batches from here to the log's end must now be given to `replay`."""
    damaged_snapshots: tuple[str, ...]
    """A sentence for each snapshot that was unreadable and is now deleted."""


class ProducerSnapshots:
    """The snapshot files of one partition. Knows their offsets without asking the disk."""

    __slots__ = ("_files", "directory", "offsets")

    def __init__(self, files: Files, directory: str) -> None:
        self.directory = directory
        self.offsets: list[Offset] = []
        """In increasing order; equal to the files in the directory."""
        self._files = files

    def scan(self, names: Iterable[str]) -> None:
        """Find the snapshots among these files of the directory, and remove what interrupted writes
        and deletions have left."""
        self.offsets = []
        for name in names:
            offset = offset_in_name(name)
            if offset is not None:
                insort(self.offsets, offset)
            elif name.endswith((f"{SUFFIX}.tmp", f"{SUFFIX}{RETIRED_SUFFIX}")):
                self._files.remove(join(self.directory, name))

    @property
    def newest(self) -> Offset | None:
        return self.offsets[-1] if self.offsets else None

    @property
    def oldest(self) -> Offset | None:
        return self.offsets[0] if self.offsets else None

    def path_of(self, offset: Offset) -> str:
        return join(self.directory, snapshot_name(offset))

    def write(self, offset: Offset, entries: Collection[ProducerEntry], *, sync: bool) -> str:
        """Write the snapshot at `offset` and return its path.

        Without `sync` the caller must sync the file before the recovery point passes `offset`.
        A file torn by a crash before that is recognised by its checksum.
        """
        path, data = self.path_of(offset), encode_snapshot(entries)
        if sync:
            self._files.write_atomically(path, data)
        else:
            write_unsynced(self._files, path, data)
        if offset not in self.offsets:
            insort(self.offsets, offset)
        return path

    def read(self, offset: Offset) -> list[ProducerEntry]:
        """The producers in the snapshot at `offset`. Raises `DamagedSnapshot`."""
        try:
            return decode_snapshot(self._files.read_bytes(self.path_of(offset)))
        except DamagedSnapshot as damage:
            raise DamagedSnapshot(
                f"The producer snapshot {self.path_of(offset)} is damaged. {damage}"
            ) from damage

    def read_newest(self) -> tuple[list[ProducerEntry] | None, tuple[str, ...]]:
        """The producers in the newest snapshot that is good; None without any.

        Newer ones that cannot be read are removed, with a sentence for each.
        """
        damaged: list[str] = []
        while (newest := self.newest) is not None:
            try:
                return self.read(newest), tuple(damaged)
            except (DamagedSnapshot, MissingFile) as fault:
                damaged.append(str(fault))
                self.remove((newest,))
        return None, tuple(damaged)

    def keep_between(self, lowest: Offset, highest: Offset) -> None:
        """Remove all snapshots outside of `[lowest, highest]`, durably.

        One from above the end of the log must not come back after a crash: other batches will be
        there.
        """
        if self.remove([at for at in self.offsets if not lowest <= at <= highest]):
            self._files.sync_directory(self.directory)

    def remove(self, offsets: Iterable[Offset]) -> bool:
        """Remove these snapshots; whether there were any."""
        found = [offset for offset in offsets if offset in self.offsets]
        for offset in found:
            self._files.remove(self.path_of(offset))
            self.offsets.remove(offset)
        return bool(found)

    def remove_below(self, offset: Offset) -> bool:
        """Remove the snapshots at offsets below `offset`; whether there were any."""
        return self.remove(self.offsets[: bisect_left(self.offsets, offset)])

    def retire(self, offset: Offset) -> str | None:
        """Rename the snapshot of a deleted segment; returns the path to remove later, if any."""
        if offset not in self.offsets:
            return None
        path = self.path_of(offset)
        self.offsets.remove(offset)
        if not self._files.exists(path):
            return None
        self._files.rename(path, path + RETIRED_SUFFIX)
        return path + RETIRED_SUFFIX

    def remove_strays(self, segment_base_offsets: Collection[Offset]) -> bool:
        """Remove the snapshots that belong to no segment; whether there were any.

        The newest of them stays if it lies above the last segment's base: a clean shutdown
        leaves that one at the end of the log.
        """
        bases = set(segment_base_offsets)
        strays = [offset for offset in self.offsets if offset not in bases]
        if strays and (not bases or strays[-1] > max(bases)):
            strays.pop()
        return self.remove(strays)


def _entry(
    producer_id: int,
    epoch: int,
    last_sequence: int,
    last_offset: int,
    delta: int,
    timestamp: int,
    coordinator_epoch: int,
    transaction_first_offset: int,
) -> ProducerEntry:
    entry = ProducerEntry(ProducerId(producer_id), ProducerEpoch(epoch))
    if last_offset >= 0:
        entry.remember(last_sequence, last_offset, delta, timestamp)
        entry.is_partial = True
    entry.last_timestamp = timestamp
    entry.coordinator_epoch = coordinator_epoch
    entry.transaction_first_offset = Offset(max(transaction_first_offset, NO_OFFSET))
    return entry
