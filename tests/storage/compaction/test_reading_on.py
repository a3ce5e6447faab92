"""Readers that go on where they were, against a reader that knows nothing and asks the index.

What a reader remembers of a log (`storage.bookmarks`) must never show: not after appends, rolls,
truncations, deletions, compaction, a move to another directory or damage.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from strandline.errors import ProtocolError, StorageError
from strandline.records.batch import iterate_headers
from strandline.storage.bookmarks import BATCHES_AHEAD, BOOKMARKS_MAX, Bookmarks
from strandline.storage.log import Log
from strandline.storage.log_reader import LogSlice
from strandline.storage.memory_files import MemoryFiles
from strandline.types import Offset
from tests.storage.compaction.conftest import COMPACTED, compact, put
from tests.storage.conftest import NOW_MS, Kit, World

READS = (1, 150, 400, 1000, 5000, 200_000)


def open_log() -> tuple[World, Log]:
    world = World(MemoryFiles(), "/data", "memory")
    return world, world.create(COMPACTED)


def read(log: Log, offset: int, max_bytes: int, end: int, *, at_least_one: bool) -> Any:
    try:
        return log.reader.read(
            Offset(offset), max_bytes, end_offset=Offset(end), at_least_one_batch=at_least_one
        )
    except (ProtocolError, StorageError) as error:
        return type(error)


def read_anew(log: Log, *arguments: int, at_least_one: bool) -> Any:
    """What a reader gets that has read nothing of the log before."""
    marks = log.reader._bookmarks
    log.reader._bookmarks = Bookmarks()
    try:
        return read(log, *arguments, at_least_one=at_least_one)
    finally:
        log.reader._bookmarks = marks


class Side:
    """A log, and some readers that go on, each in steps of its own."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.world, self.log = open_log()
        self.now_ms = NOW_MS
        self.steps = [self.random.choice(READS) for _ in range(3)]
        self.offsets = [0 for _ in self.steps]
        self.compared = 0

    def read_on(self) -> None:
        log, random = self.log, self.random
        # The newest batches are found in memory: here they are to be read like older ones.
        log.active.tail.restart(log.log_end_offset)
        reader = random.randrange(len(self.steps))
        for _ in range(random.randrange(1, 12)):
            offset, max_bytes = self.offsets[reader], self.steps[reader]
            end = log.log_end_offset
            if random.random() < 0.2:
                end = Offset(random.randint(0, end))
            at_least_one = random.random() < 0.9
            found = read(log, offset, max_bytes, end, at_least_one=at_least_one)
            anew = read_anew(log, offset, max_bytes, end, at_least_one=at_least_one)
            assert found == anew, (offset, max_bytes, end, at_least_one)
            self.compared += 1
            if not isinstance(found, LogSlice):
                self.offsets[reader] = log.log_start_offset
                return
            *_, (_, last) = iterate_headers(found.file.read_at(found.position, found.length))
            self.offsets[reader] = last.next_offset

    def change(self) -> None:
        log, random = self.log, self.random
        self.now_ms += random.randrange(200)
        kind = random.random()
        if kind < 0.1:
            log.truncation.truncate_to(Offset(random.randint(0, log.log_end_offset)), self.now_ms)
        elif kind < 0.25:
            log.advance_high_watermark_to(log.log_end_offset)
            compact(self.world.files, log, now_ms=self.now_ms)
        elif kind < 0.35:
            log.retention.delete_records_to(Offset(random.randint(0, log.high_watermark)))
            log.retention.drop_below_start(self.now_ms)
        else:
            for _ in range(random.randrange(1, 15)):
                keys = [b"key-%d" % random.randrange(12) for _ in range(random.randint(1, 3))]
                value = b"." * random.choice((0, 10, 250))
                put(log, *((key, value) for key in keys), now_ms=self.now_ms)
            if random.random() < 0.1:
                log.roller.roll(self.now_ms)


@pytest.mark.parametrize("seed", range(25))
def test_what_is_remembered_never_shows(seed: int) -> None:
    side = Side(seed)
    for _ in range(40):
        side.change()
        side.read_on()
    assert side.compared > 40


def follow(log: Log, max_bytes: int, offset: int = 0) -> int:
    """Read to the end of the log; where it is then."""
    while isinstance(
        found := read(log, offset, max_bytes, log.log_end_offset, at_least_one=True), LogSlice
    ):
        offset = found.upper_offset
    return offset


def test_a_reader_that_goes_on_looks_into_no_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither does it read each header by itself: so many batches take a few reads of the file."""
    _, log = open_log()
    for number in range(200):
        put(log, (b"k%d" % number, b"v"))
    log.active.tail.restart(log.log_end_offset)
    segments = len(log.segments)
    lookups: list[int] = []
    reads: list[int] = []
    find, read_at = type(log.active).find, type(log.active.log).read_at

    def count(into: list[int], call: Callable[..., Any], *got: Any) -> Any:
        into.append(got[1])
        return call(*got)

    monkeypatch.setattr(type(log.active), "find", lambda *got: count(lookups, find, *got))
    monkeypatch.setattr(type(log.active.log), "read_at", lambda *got: count(reads, read_at, *got))
    assert follow(log, 100) == 200
    assert segments > 5
    assert len(lookups) <= segments, "once for each segment, where no reader has been yet"
    assert len(reads) < 200


def test_damage_ahead_concerns_the_read_that_meets_it() -> None:
    _, log = open_log()
    for number in range(9):
        put(log, (b"k%d" % number, b"v"))
    log.active.tail.restart(log.log_end_offset)
    ends = [0]
    for position, header in iterate_headers(log.active.log.read_at(0, log.active.size)):
        ends.append(position + header.size_bytes)
    log.active.log.write_at(ends[6] + 16, b"\xff")  # the format's version
    for number in range(7):
        found = read(log, number, 100, log.log_end_offset, at_least_one=True)
        assert found == read_anew(log, number, 100, log.log_end_offset, at_least_one=True)
        if number < 5:
            assert (found.position, found.position + found.length) == (
                ends[number],
                ends[number + 1],
            )
    assert issubclass(found, StorageError)


def test_what_is_remembered_is_bounded() -> None:
    _, log = open_log()
    for number in range(2 * BOOKMARKS_MAX):
        put(log, (b"k%d" % number, b"v"))
    log.active.tail.restart(log.log_end_offset)
    follow(log, 1)
    marks = log.reader._bookmarks._marks
    assert len(marks) <= BOOKMARKS_MAX
    assert all(mark.run is None or len(mark.run.lasts) <= BATCHES_AHEAD for mark in marks.values())


def test_a_log_that_moves_is_read_on() -> None:
    _, log = open_log()
    for number in range(20):
        put(log, (b"k%d" % number, b"v"))
    log.active.tail.restart(log.log_end_offset)
    first = read(log, 0, 100, log.log_end_offset, at_least_one=True)
    second = read(log, first.upper_offset, 100, log.log_end_offset, at_least_one=True)
    log.rename_directory("/data/orders-0.moved")
    found = read(log, second.upper_offset, 100, log.log_end_offset, at_least_one=True)
    assert found == read_anew(log, second.upper_offset, 100, log.log_end_offset, at_least_one=True)
    assert Kit.records(log)[-1][0] == 19
