"""The segments of one replica as its next start would find them, and whether they stay the same.

This file knows names: which files are in use, and which a compaction left in the middle of a swap
will put in the place of others (see `storage/swap_recovery`). It must not know what is in them,
except where a swapped segment ends.
"""

from __future__ import annotations

from dataclasses import dataclass

from strandline.errors import CorruptRecords, StorageError
from strandline.records.batch import iterate_headers
from strandline.storage.files import Files, join
from strandline.storage.segment_names import (
    CLEANED,
    LOG,
    OFFSET_INDEX,
    SWAP,
    TIME_INDEX,
    TRANSACTION_INDEX,
    parse_segment_name,
    segment_path,
)


@dataclass(frozen=True, slots=True)
class SegmentFiles:
    """One segment. `is_swapped`: its indexes are made anew at the next start."""

    base_offset: int
    path: str
    is_swapped: bool

    def index_path(self, kind: str) -> str:
        """The path of one of its indexes."""
        if self.is_swapped:
            return self.path.removesuffix(LOG + SWAP) + kind + SWAP
        return self.path.removesuffix(LOG) + kind


def segments_of(files: Files, directory: str) -> list[SegmentFiles]:
    """The segments in the order of their offsets."""
    names = [parse_segment_name(name) for name in files.list_directory(directory)]
    found = [each for each in names if each is not None]
    undecided = min((n.base_offset for n in found if n.suffix == CLEANED), default=None)
    swapped = [
        n.base_offset
        for n in found
        if n.suffix == SWAP and n.kind == LOG and (undecided is None or n.base_offset < undecided)
    ]
    plain = [n.base_offset for n in found if not n.suffix and n.kind == LOG]
    if swapped:
        end = max(_end_of(files, directory, base) for base in swapped)
        plain = [base for base in plain if not min(swapped) <= base < end]
    return sorted(
        [SegmentFiles(base, segment_path(directory, base, LOG), False) for base in plain]
        + [SegmentFiles(base, segment_path(directory, base, LOG) + SWAP, True) for base in swapped],
        key=lambda segment: segment.base_offset,
    )


def lonely_indexes(files: Files, directory: str) -> list[tuple[int, str]]:
    """Base offsets and paths of indexes whose segment is gone, though there are newer ones."""
    names = [parse_segment_name(name) for name in files.list_directory(directory)]
    found = [each for each in names if each is not None and not each.suffix]
    bases = {each.base_offset for each in found if each.kind == LOG}
    last = max(bases, default=-1)
    return [
        (each.base_offset, segment_path(directory, each.base_offset, each.kind))
        for each in found
        if each.kind in (OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX)
        and each.base_offset not in bases
        and each.base_offset < last
    ]


def signature(files: Files, directory: str) -> tuple[tuple[str, int, int], ...]:
    """What changes when a running broker drops or rewrites segments, but not when it appends."""
    names = [
        name
        for name in files.list_directory(directory)
        if (named := parse_segment_name(name)) is not None and named.kind == LOG
    ]
    plain = [name for name in names if name.endswith(LOG)]
    active = max(plain, default="")
    facts = []
    for name in names:
        path = join(directory, name)
        is_active = name == active
        size = 0 if is_active else files.size_of(path)
        modified_ms = 0 if is_active else files.modified_ms(path)
        facts.append((name, size, modified_ms))
    return tuple(facts)


def _end_of(files: Files, directory: str, base_offset: int) -> int:
    """Behind the last batch of a swapped segment; its base offset if it cannot be read."""
    path = segment_path(directory, base_offset, LOG) + SWAP
    end = base_offset
    try:
        for _, header in iterate_headers(files.read_bytes(path)):
            end = header.next_offset
    except (CorruptRecords, StorageError):
        return end
    return end
