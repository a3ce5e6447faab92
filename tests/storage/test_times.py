"""Look-ups by time in logs of many segments: the right record, and how little is opened for it."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from strandline.records.builder import build_batch
from strandline.records.codec import Codec
from strandline.records.record import Record
from strandline.storage.memory_files import MemoryFiles
from strandline.types import LeaderEpoch, Offset
from tests.storage.conftest import World

EPOCH = LeaderEpoch(0)


@pytest.mark.parametrize("seed", range(12))
def test_times_are_found_among_many_segments(kit: Any, seed: int) -> None:
    """As by looking at every record: times in any order, again and again, with the start inside."""
    random = Random(seed)
    log = World(MemoryFiles(), "/data", "memory").create()
    stamps: list[int] = []
    for _ in range(60):
        records = [
            Record(timestamp=kit.now_ms + random.randrange(25), value=b"x" * random.randrange(90))
            for _ in range(random.randrange(1, 5))
        ]
        batch = bytearray(build_batch(records, codec=random.choice(list(Codec))))
        log.appender.append_as_leader(batch, leader_epoch=EPOCH, now_ms=kit.now_ms)
        stamps += [record.timestamp for record in records]
    log.advance_high_watermark_to(log.log_end_offset)
    assert len(log.segments.all) > 4
    while True:
        start = log.log_start_offset
        there = [(stamp, at) for at, stamp in enumerate(stamps) if at >= start]
        newest = max(there, key=lambda each: (each[0], -each[1]), default=None)
        found = log.reader.max_timestamp_offset()
        assert (None if found is None else found[:2]) == newest
        for wanted in range(kit.now_ms - 1, kit.now_ms + 26):
            first = next((each for each in there if each[0] >= wanted), None)
            found = log.reader.offset_for_timestamp(wanted)
            assert (None if found is None else found[:2]) == first
        if not there:
            return
        log.retention.delete_records_to(Offset(min(len(stamps), start + random.randrange(1, 40))))


def test_to_find_the_newest_record_one_segment_is_read(kit: Any) -> None:
    files = MemoryFiles()
    log = World(files, "/data", "memory").create()
    for index in range(60):
        kit.append(log, b"x" * 400, timestamp=kit.now_ms + index)
    assert len(log.segments.all) > 15
    read: set[str] = set()
    files.on_call = lambda operation, path: read.add(path) if operation == "read" else None
    newest = log.reader.max_timestamp_offset()
    assert newest is not None
    assert newest.offset == 59
    assert {path for path in read if path.endswith(".log")} == {log.active.log.path}
