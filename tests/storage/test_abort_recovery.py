"""A transaction index that is damaged below the recovery point, where nothing is recovered."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Final
from uuid import UUID

import pytest

from strandline.config.topic import TopicConfig
from strandline.records.builder import build_batch, build_control_batch
from strandline.records.control import ControlType, EndTransactionMarker
from strandline.records.record import Record
from strandline.storage.log import Log
from strandline.storage.log_to_load import LogToLoad
from strandline.storage.memory_files import MemoryFiles, ProcessEnded
from strandline.storage.memory_inodes import Contents
from strandline.storage.transaction_index import AbortedTransaction
from strandline.types import (
    NO_OFFSET,
    LeaderEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
    TopicPartition,
)

NOW_MS: Final = 1000
AT: Final = TopicPartition("t", 0)
PATH: Final = "/d/t-0"
SEGMENTS: Final = 4
ABORTS: Final = 5
"""In each segment, but that the last one of a segment ends in the next."""
READING: Final = ("read", "list", "examine")
Aborts = Sequence[AbortedTransaction]


def append(log: Log, producer: int, sequence: int) -> None:
    """One record of a transaction."""
    batch = build_batch(
        [Record(NO_OFFSET, NOW_MS, b"k", b"v")],
        base_offset=log.log_end_offset,
        leader_epoch=LeaderEpoch(1),
        producer_id=ProducerId(producer),
        producer_epoch=ProducerEpoch(0),
        base_sequence=sequence,
        is_transactional=True,
    )
    log.appender.append_as_follower(batch, NOW_MS)


def abort(log: Log, producer: int) -> None:
    marker = build_control_batch(
        EndTransactionMarker(ControlType.ABORT, 0),
        timestamp=NOW_MS,
        base_offset=log.log_end_offset,
        leader_epoch=LeaderEpoch(1),
        producer_id=ProducerId(producer),
        producer_epoch=ProducerEpoch(0),
    )
    log.appender.append_as_follower(marker, NOW_MS)


def written() -> tuple[MemoryFiles, Aborts, Offset]:
    """A log that was closed cleanly, what was aborted in it, and its end."""
    files = MemoryFiles()
    files.make_directory("/d")
    files.sync_directory("/")
    log = Log.create(files, PATH, AT, TopicConfig(), now_ms=NOW_MS, random=Random(1))
    log.assign_topic_id(UUID(int=5))
    for segment in range(SEGMENTS):
        for number in range(ABORTS):
            append(log, 7, segment * ABORTS + number)
            if number == ABORTS - 1 and segment < SEGMENTS - 1:
                log.roller.roll(NOW_MS)
            abort(log, 7)
    end = log.log_end_offset
    log.advance_high_watermark_to(end)
    aborted = log.reader.aborted_transactions(Offset(0), end)
    assert len(aborted) == SEGMENTS * ABORTS
    log.close_clean()
    return files.next_process(), aborted, end


def load(files: MemoryFiles, recovery_point: Offset, *, clean: bool) -> Log:
    found = LogToLoad(
        topic_partition=AT,
        directory=PATH,
        recovery_point=recovery_point,
        log_start_offset=Offset(0),
        high_watermark=recovery_point,
        needs_recovery=not clean,
    )
    return Log.load(files, found, TopicConfig(), now_ms=NOW_MS, random=Random(1))


def bases(files: MemoryFiles) -> list[int]:
    return [int(name[:20]) for name in files.list_directory(PATH) if name.endswith(".log")]


def damage(files: MemoryFiles, segment: int) -> None:
    """The disk has another transaction index for a segment than was written."""
    index = files.open(f"{PATH}/{bases(files)[segment]:020d}.txnindex")
    index.append(b"\0")
    index.sync()


def rot(files: MemoryFiles, segment: int) -> None:
    """A bit flips in the middle of a segment."""
    path = f"{PATH}/{bases(files)[segment]:020d}.log"
    contents = files.find(path)
    assert isinstance(contents, Contents)
    contents.data[len(contents.data) // 2] ^= 1


def deaths(files: MemoryFiles, start: Callable[[MemoryFiles], object]) -> Iterator[MemoryFiles]:
    """What a start leaves that ends at its first change, at its second one, and so on."""
    number = 0
    while True:
        number += 1
        left, dying = number, files.kill_clone()

        def die(operation: str, path: str) -> None:
            nonlocal left
            left -= operation not in READING
            if left == 0:
                raise ProcessEnded(0.5, path)

        dying.on_call = die
        try:
            start(dying)
        except ProcessEnded:
            yield dying.next_process()
        else:
            assert number > 1
            return


@pytest.mark.parametrize("segment", range(SEGMENTS))
@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("has_power", [True, False])
def test_the_index_is_made_anew_and_no_other_is_touched(
    segment: int, *, is_clean: bool, has_power: bool
) -> None:
    """The start that mends it may end anywhere: the next one, after a crash, finds all aborts."""
    files, aborted, end = written()
    damage(files, segment)
    for left in deaths(files, lambda dying: load(dying, end, clean=is_clean)):
        if not has_power:
            left.lose_power()
        log = load(left, end, clean=False)
        assert log.reader.aborted_transactions(Offset(0), end) == aborted
        assert not log.recovery_report.cuts
    touched: list[str] = []
    files.on_call = lambda operation, path: touched.append(f"{operation} {path}")
    mended = load(files, end, clean=is_clean)
    assert any("It is made anew." in note for note in mended.recovery_report.notes)
    others = [f"{base:020d}.txnindex" for base in bases(files)]
    last = SEGMENTS - 1
    for number, name in enumerate(others):
        is_free = number == segment or (number == last and not is_clean)
        changes = [t for t in touched if name in t and not t.startswith(READING)]
        assert is_free or not changes
    files.on_call = None
    after = files.crash_clone()
    log = load(after, mended.recovery_point, clean=False)
    assert log.reader.aborted_transactions(Offset(0), end) == aborted


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("has_power", [True, False])
def test_the_log_ends_where_it_cannot_be_read_for_the_index(
    *, is_clean: bool, has_power: bool
) -> None:
    files, aborted, end = written()
    damage(files, 1)
    rot(files, 1)
    for left in deaths(files, lambda dying: load(dying, end, clean=is_clean)):
        if not has_power:
            left.lose_power()
        log = load(left, end, clean=False)
        kept = [each for each in aborted if each.last_offset < log.log_end_offset]
        assert 0 < len(kept) < 2 * ABORTS
        assert log.reader.aborted_transactions(Offset(0), log.log_end_offset) == kept
    cut = load(files, end, clean=is_clean)
    assert cut.recovery_report.cuts
    assert cut.recovery_point <= bases(files)[1]


def test_what_is_recovered_is_synced_before_it_is_trusted() -> None:
    """Also after a clean stop: a short index that came back would pass for a whole one."""
    files, aborted, end = written()
    segment = files.open(f"{PATH}/{bases(files)[-1]:020d}.log")
    segment.truncate(segment.size - 1)
    log = load(files, end, clean=True)
    assert log.log_end_offset == end - 1
    assert log.recovery_point == bases(files)[-1]
    assert log.flusher.flush_plan() is not None
    after = load(files.crash_clone(), log.recovery_point, clean=False)
    kept = [each for each in aborted if each.last_offset < end - 1]
    assert after.reader.aborted_transactions(Offset(0), end) == kept
