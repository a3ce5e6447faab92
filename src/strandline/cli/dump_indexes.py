"""The entries of a segment's indexes, in order or not, and on demand against its batches.

What an entry promises is in `storage.verify.indexes`. Entries are read one by one rather than
searched, since a damaged index is exactly what one wants to see here.
"""

from __future__ import annotations

from collections.abc import Iterator

from strandline.cli.dump_items import Item, Problem, Reading
from strandline.cli.output import time_text
from strandline.records.batch import BatchHeader
from strandline.storage import offset_index, time_index
from strandline.storage.batch_scan import DamagedSegment, headers_between
from strandline.storage.segment_names import LOG
from strandline.storage.transaction_index import AbortedTransaction, TransactionIndex
from strandline.storage.verify.indexes import (
    IndexEntries,
    IndexFault,
    OffsetIndexCheck,
    TimeIndexCheck,
    checked_aborts,
    read_entries,
)


def dump_offset_index(reading: Reading) -> Iterator[Item | Problem]:
    """Offsets and the positions to start looking for them."""
    base = reading.base_offset
    found = read_entries(reading.files, reading.path, offset_index.LAYOUT)
    check = OffsetIndexCheck(base)
    yield from _rest(found)
    for relative, position in found.pairs:
        yield Item("entry", {"offset": base + relative, "position": position})
        yield from _problem(check.enter(relative, position))
    if reading.verify:
        for batch in _batches(reading):
            if isinstance(batch, Problem):
                yield batch
                continue
            position, header = batch
            yield from _problem(check.see(position, header.last_offset))
        for fault in check.unanswered():
            yield Problem(fault.sentence)


def dump_time_index(reading: Reading) -> Iterator[Item | Problem]:
    """Timestamps and the offsets behind which later ones lie."""
    base = reading.base_offset
    found = read_entries(reading.files, reading.path, time_index.LAYOUT)
    check = TimeIndexCheck(base)
    yield from _rest(found)
    for timestamp, relative in found.pairs:
        yield Item("entry", {"time": time_text(timestamp), "offset": base + relative})
        yield from _problem(check.enter(timestamp, relative))
    if reading.verify:
        for batch in _batches(reading):
            if isinstance(batch, Problem):
                yield batch
                continue
            _, header = batch
            yield from _problem(check.see(header.last_offset, header.max_timestamp))
        for fault in check.unanswered():
            yield Problem(fault.sentence)


def dump_transaction_index(reading: Reading) -> Iterator[Item | Problem]:
    """Aborted transactions."""
    found: list[AbortedTransaction] = []
    index = TransactionIndex(reading.files, reading.path)
    for entry, fault in checked_aborts(index, reading.base_offset):
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
        yield from _problem(fault)
    if reading.verify:
        yield from _check_markers(reading, {each.last_offset: each for each in found})


def _rest(found: IndexEntries) -> Iterator[Item | Problem]:
    if found.unwritten:
        yield Item("reserved", {"entries": found.unwritten})
    if found.torn:
        yield Problem(found.torn)


def _problem(fault: IndexFault | None) -> Iterator[Problem]:
    if fault is not None:
        yield Problem(fault.sentence)


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
