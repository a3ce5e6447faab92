"""The segments of one replica as its next start would find them, and whether they stay the same.

This file knows names: which files are in use, and which a compaction left in the middle of a swap
will put in the place of others (see `storage/swap_recovery`). It must not know what is in them,
except where a swapped segment ends.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from strandline.storage.files import Files, join
from strandline.storage.segment_names import (
    INDEXES,
    LOG,
    SWAP,
    SegmentFileName,
    parse_segment_name,
    segment_path,
)
from strandline.storage.swap_recovery import decided_swaps, replaced_offsets


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
    found = _segment_files(files, directory)
    swaps = decided_swaps(found)
    replaced = replaced_offsets(files, directory, swaps, tolerates_damage=True)
    swapped = [each.base_offset for each in swaps if each.kind == LOG]
    plain = [
        each.base_offset
        for each in found
        if not each.suffix and each.kind == LOG and each.base_offset not in replaced
    ]
    return sorted(
        [SegmentFiles(base, segment_path(directory, base, LOG), False) for base in plain]
        + [SegmentFiles(base, segment_path(directory, base, LOG) + SWAP, True) for base in swapped],
        key=lambda segment: segment.base_offset,
    )


def lonely_indexes(files: Files, directory: str) -> list[tuple[int, str]]:
    """Base offsets and paths of the indexes whose segment is gone."""
    found = [each for each in _segment_files(files, directory) if not each.suffix]
    return lonely_among(found, directory)


def lonely_among(found: Collection[SegmentFileName], directory: str) -> list[tuple[int, str]]:
    """`lonely_indexes` of a directory that has these files."""
    bases = {each.base_offset for each in found if each.kind == LOG}
    return [
        (each.base_offset, segment_path(directory, each.base_offset, each.kind))
        for each in found
        if each.kind in INDEXES and each.base_offset not in bases
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


def _segment_files(files: Files, directory: str) -> list[SegmentFileName]:
    names = [parse_segment_name(name) for name in files.list_directory(directory)]
    return [each for each in names if each is not None]
