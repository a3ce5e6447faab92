"""How the files of a partition directory are called, and what each name says.

This file knows names only. A segment's files share its base offset, written with 20 digits so that
they sort by offset:

    00000000000000001234.log        the record batches
    00000000000000001234.index      offset -> position           (offset_index.py)
    00000000000000001234.timeindex  timestamp -> offset          (time_index.py)
    00000000000000001234.txnindex   aborted transactions         (transaction_index.py)
    00000000000000001234.snapshot   producer state at 1234       (producer_snapshot.py)

A further suffix says that a file is on its way: `.deleted` is removed after a delay, `.cleaned` is
compaction output not decided yet, `.swap` is decided output not yet in its place, `.tmp` an index
that is made anew and not whole yet.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from strandline.storage.files import join

LOG: Final = ".log"
OFFSET_INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TRANSACTION_INDEX: Final = ".txnindex"
SNAPSHOT: Final = ".snapshot"
INDEXES: Final = (OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX)
SEGMENT_FILES: Final = (LOG, *INDEXES)

DELETED: Final = ".deleted"
CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"
REBUILT: Final = ".tmp"
TEMPORARY: Final = (DELETED, CLEANED, SWAP)

OFFSET_DIGITS: Final = 20


class SegmentFileName(NamedTuple):
    """What a file name in a partition directory says."""

    base_offset: int
    kind: str
    """One of `SEGMENT_FILES` or `SNAPSHOT`."""
    suffix: str
    """One of `TEMPORARY`, or empty."""


def segment_path(directory: str, base_offset: int, kind: str) -> str:
    """The path of one of a segment's files."""
    return join(directory, f"{base_offset:0{OFFSET_DIGITS}d}{kind}")


def parse_segment_name(name: str) -> SegmentFileName | None:
    """What the name says, or None when it is not the name of a segment's file."""
    suffix = ""
    if name.endswith(TEMPORARY):
        name, dot, kind = name.rpartition(".")
        suffix = dot + kind
    stem, dot, kind = name.partition(".")
    kind = dot + kind
    if len(stem) < OFFSET_DIGITS or not (stem.isascii() and stem.isdigit()):
        return None
    if kind not in SEGMENT_FILES and kind != SNAPSHOT:
        return None
    return SegmentFileName(int(stem), kind, suffix)
