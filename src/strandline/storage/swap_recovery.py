"""Finishing or undoing what compaction was doing when the process ended.

This file knows the suffixes and the decision they stand for. It must not know batches, except to
ask where a swapped segment ends.

Compaction writes `.cleaned` files, renames them to `.swap` from the highest base offset down, then
renames the old files to `.deleted` and the `.swap` files to their final names. So any `.cleaned`
file means that the decision was not made: what was renamed already (`.swap` at or above the lowest
`.cleaned`) goes too. Only `.swap` files mean that it was made: the old files in their range go, and
the `.swap` files take their place.

The end of a swapped segment says which segments it stands for: the last batch of what was compacted
stays, even without records. What must not be seen in another order after a power failure is synced
in between, as in the swap itself (`segment_swap`).
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing

from strandline.errors import StorageError
from strandline.storage.batch_scan import SCAN_CHUNK_BYTES, headers_between
from strandline.storage.files import Files, join
from strandline.storage.segment_names import (
    CLEANED,
    DELETED,
    LOG,
    SEGMENT_FILES,
    SWAP,
    SegmentFileName,
    parse_segment_name,
    segment_path,
)
from strandline.storage.segment_swap import rename_suffix


def finish_interrupted_swaps(files: Files, directory: str, names: Iterable[str]) -> list[str]:
    """Leave no temporary segment files in the directory, which has these names; a sentence for each
    thing done."""
    named = [(name, parse_segment_name(name)) for name in names]
    found = {name: parsed for name, parsed in named if parsed is not None}
    notes: list[str] = []

    def remove(names: list[str], why: str) -> None:
        for name in names:
            files.remove(join(directory, name))
            notes.append(f"Removed {join(directory, name)}: {why}.")

    remove([n for n, p in found.items() if p.suffix == DELETED], "it was to be deleted")
    decided = decided_swaps(found.values())
    given_up = [n for n, p in found.items() if p.suffix == SWAP and p not in decided]
    remove(given_up, "its compaction was not finished")
    # The cleaned files go last: while one is left, a second crash comes to the same decision.
    cleaned = [name for name, parsed in found.items() if parsed.suffix == CLEANED]
    remove(sorted(cleaned, reverse=True), "its compaction was not finished")
    if decided:
        # The renames that decide may be in memory only; without them the old files are needed.
        files.sync_directory(directory)
        replaced = replaced_offsets(files, directory, decided)
        old = [name for name, parsed in found.items() if _is_replaced(parsed, replaced)]
        remove(old, "a compacted segment replaces it")
        files.sync_directory(directory)
        for base_offset in sorted({parsed.base_offset for parsed in decided}):
            rename_suffix(files, directory, base_offset, SWAP, "")
        swapped = sorted(name for name, parsed in found.items() if parsed in decided)
        notes += [f"Finished the compaction of {join(directory, name)}." for name in swapped]
    if notes:
        files.sync_directory(directory)
    return notes


def decided_swaps(found: Iterable[SegmentFileName]) -> set[SegmentFileName]:
    """The `.swap` files that are to take the place of others."""
    found = list(found)
    undecided = min((each.base_offset for each in found if each.suffix == CLEANED), default=None)
    return {
        each
        for each in found
        if each.suffix == SWAP and (undecided is None or each.base_offset < undecided)
    }


def replaced_offsets(
    files: Files,
    directory: str,
    swaps: Iterable[SegmentFileName],
    *,
    tolerates_damage: bool = False,
) -> range:
    """The offsets that swapped segments cover: ordinary segments that begin there are replaced.

    Where a swapped segment cannot be read it ends, or with `tolerates_damage=False` the error is
    raised.
    """
    bases = [each.base_offset for each in swaps if each.kind == LOG]
    ends = [_end_offset(files, directory, base, tolerates_damage) for base in bases]
    return range(min(bases), max(ends)) if bases else range(0)


def _is_replaced(name: SegmentFileName, offsets: range) -> bool:
    return not name.suffix and name.kind in SEGMENT_FILES and name.base_offset in offsets


def _end_offset(files: Files, directory: str, base_offset: int, tolerates_damage: bool) -> int:
    end = base_offset
    try:
        with closing(files.open(segment_path(directory, base_offset, LOG) + SWAP)) as file:
            for _, header in headers_between(file, 0, file.size, SCAN_CHUNK_BYTES):
                end = header.next_offset
    except StorageError:
        if not tolerates_damage:
            raise
    return end
