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
)
from strandline.storage.segment_swap import rename_suffix


def finish_interrupted_swaps(files: Files, directory: str) -> list[str]:
    """Leave no temporary segment files in the directory; a sentence for each thing done."""
    named = [(name, parse_segment_name(name)) for name in files.list_directory(directory)]
    found = {name: parsed for name, parsed in named if parsed is not None}
    notes: list[str] = []

    def remove(names: list[str], why: str) -> None:
        for name in names:
            files.remove(join(directory, name))
            notes.append(f"Removed {join(directory, name)}: {why}.")

    remove([n for n, p in found.items() if p.suffix == DELETED], "it was to be deleted")
    cleaned = [name for name, parsed in found.items() if parsed.suffix == CLEANED]
    swaps = {name: parsed for name, parsed in found.items() if parsed.suffix == SWAP}
    if cleaned:
        undecided = min(found[name].base_offset for name in cleaned)
        given_up = [name for name, parsed in swaps.items() if parsed.base_offset >= undecided]
        remove(given_up, "its compaction was not finished")
        # The cleaned files go last: while one is left, a second crash comes to the same decision.
        remove(sorted(cleaned, reverse=True), "its compaction was not finished")
        swaps = {name: parsed for name, parsed in swaps.items() if name not in given_up}
    if swaps:
        # The renames that decide may be in memory only; without them the old files are needed.
        files.sync_directory(directory)
        remove(_replaced(files, directory, found, swaps), "a compacted segment replaces it")
        files.sync_directory(directory)
        for base_offset in sorted({parsed.base_offset for parsed in swaps.values()}):
            rename_suffix(files, directory, base_offset, SWAP, "")
        notes += [f"Finished the compaction of {join(directory, name)}." for name in sorted(swaps)]
    if notes:
        files.sync_directory(directory)
    return notes


def _replaced(
    files: Files,
    directory: str,
    found: dict[str, SegmentFileName],
    swaps: dict[str, SegmentFileName],
) -> list[str]:
    """The ordinary files of segments whose offsets the swapped segments cover."""
    logs = {name: parsed for name, parsed in swaps.items() if parsed.kind == LOG}
    if not logs:
        return []
    start = min(parsed.base_offset for parsed in logs.values())
    end = max(_end_offset(files, join(directory, name), p.base_offset) for name, p in logs.items())
    return [
        name
        for name, parsed in found.items()
        if not parsed.suffix and parsed.kind in SEGMENT_FILES and start <= parsed.base_offset < end
    ]


def _end_offset(files: Files, path: str, base_offset: int) -> int:
    file = files.open(path)
    try:
        end = base_offset
        for _, header in headers_between(file, 0, file.size, SCAN_CHUNK_BYTES):
            end = header.next_offset
    finally:
        file.close()
    return end
