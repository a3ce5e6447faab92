"""The entries of a segment's indexes, in order or not, and on demand against its batches.

The layouts are storage's. Entries are read one by one rather than searched, since a damaged index
is exactly what one wants to see here.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from strandline.cli.dump_items import Item, Problem, Reading
from strandline.cli.output import time_text
from strandline.records.batch import BatchHeader
from strandline.storage.batch_scan import DamagedSegment, headers_between
from strandline.storage.files import File
from strandline.storage.offset_index import LAYOUT as OFFSET_LAYOUT
from strandline.storage.segment_names import LOG
from strandline.storage.time_index import LAYOUT as TIME_LAYOUT
from strandline.storage.transaction_index import AbortedTransaction, TransactionIndex

_ENTRIES_PER_READ = 8192


def dump_offset_index(reading: Reading) -> Iterator[Item | Problem]:
    """Offsets and the positions to start looking for them."""
    base = reading.base_offset
    entries: list[tuple[int, int]] = []
    yield from _pairs(reading.open(), OFFSET_LAYOUT, entries)
    before = (-1, 0)
    for at, (relative, position) in enumerate(entries):
        yield Item("entry", {"offset": base + relative, "position": position})
        if relative <= before[0] or position <= before[1]:
            yield Problem(f"Entry {at} (offset {base + relative}) is out of order.")
        before = (relative, position)
    if reading.verify:
        wanted = {position: base + relative for relative, position in entries}
        yield from _check_positions(reading, wanted)


def dump_time_index(reading: Reading) -> Iterator[Item | Problem]:
    """Timestamps and the offsets behind which later ones lie."""
    base = reading.base_offset
    entries: list[tuple[int, int]] = []
    yield from _pairs(reading.open(), TIME_LAYOUT, entries)
    before = (-1, -1)
    for at, (timestamp, relative) in enumerate(entries):
        yield Item("entry", {"time": time_text(timestamp), "offset": base + relative})
        if timestamp <= before[0] or relative < before[1]:
            yield Problem(f"Entry {at} (offset {base + relative}) is out of order.")
        before = (timestamp, relative)
    if reading.verify:
        wanted = {base + relative: timestamp for timestamp, relative in entries}
        yield from _check_times(reading, wanted)


def dump_transaction_index(reading: Reading) -> Iterator[Item | Problem]:
    """Aborted transactions."""
    found: list[AbortedTransaction] = []
    newest = -1
    for entry in TransactionIndex(reading.files, reading.path).entries():
        found.append(entry)
        yield Item(
            "aborted",
            {
                "producer": entry.producer_id,
                "first_offset": entry.first_offset,
                "last_offset": entry.last_offset,
                "last_stable_offset": entry.last_stable_offset,
            },
        )
        if entry.last_offset <= newest or entry.first_offset > entry.last_offset:
            yield Problem(f"The entry with the marker at {entry.last_offset} is out of order.")
        newest = entry.last_offset
    if reading.verify:
        yield from _check_markers(reading, {each.last_offset: each for each in found})


def _pairs(file: File, layout: Struct, entries: list[tuple[int, int]]) -> Iterator[Item | Problem]:
    """Fill `entries`; zeros at the end are the room of an index that is still being written."""
    size = file.size
    whole = size - size % layout.size
    for position in range(0, whole, _ENTRIES_PER_READ * layout.size):
        length = min(_ENTRIES_PER_READ * layout.size, whole - position)
        entries += layout.iter_unpack(file.read_at(position, length))
    used = len(entries)
    while used and entries[used - 1] == (0, 0):
        used -= 1
    if used < len(entries):
        yield Item("reserved", {"entries": len(entries) - used})
        del entries[used:]
    if whole != size:
        yield Problem(f"The file ends inside an entry: it has {size} bytes.")


def _batches(reading: Reading) -> Iterator[tuple[int, BatchHeader] | Problem]:
    """The batches of the segment's log as far as they can be followed."""
    log = reading.open_sibling(LOG)
    if log is None:
        yield Problem("The .log file of this segment is not there to compare with.")
        return
    try:
        yield from headers_between(log, 0, log.size)
    except DamagedSegment as damage:
        yield Problem(f"The comparison ends early: {damage}")


def _check_positions(reading: Reading, wanted: dict[int, int]) -> Iterator[Problem]:
    for found in _batches(reading):
        if isinstance(found, Problem):
            yield found
            continue
        position, header = found
        offset = wanted.pop(position, None)
        if offset is not None and offset != header.last_offset:
            yield Problem(
                f"The entry for position {position} names offset {offset}, but the batch there "
                f"ends with {header.last_offset}."
            )
    for position, offset in wanted.items():
        yield Problem(f"No batch begins at position {position}, which offset {offset} points to.")


def _check_times(reading: Reading, wanted: dict[int, int]) -> Iterator[Problem]:
    largest = -1
    for found in _batches(reading):
        if isinstance(found, Problem):
            yield found
            continue
        _, header = found
        largest = max(largest, header.max_timestamp)
        timestamp = wanted.pop(header.last_offset, None)
        if timestamp is not None and timestamp != largest:
            yield Problem(
                f"The entry for offset {header.last_offset} says {time_text(timestamp)}, but the "
                f"largest timestamp up to there is {time_text(largest)}."
            )
    for offset in wanted:
        yield Problem(f"No batch ends with offset {offset}, which an entry names.")


def _check_markers(reading: Reading, wanted: dict[int, AbortedTransaction]) -> Iterator[Problem]:
    for found in _batches(reading):
        if isinstance(found, Problem):
            yield found
            continue
        _, header = found
        entry = wanted.get(header.last_offset)
        if entry and header.is_control and header.producer_id == entry.producer_id:
            del wanted[header.last_offset]
    for offset, entry in wanted.items():
        yield Problem(
            f"There is no marker of producer {entry.producer_id} at offset {offset}, which an "
            f"entry names."
        )
