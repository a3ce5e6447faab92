"""A copy follows its log through whatever happens to that, and then takes its place."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.records.batch import iterate_headers
from strandline.records.builder import build_control_batch
from strandline.records.control import ControlType, EndTransactionMarker
from strandline.storage.files import UnreadableFile
from strandline.storage.log import Log
from strandline.storage.log_copy import BATCHES_MAX, LogCopy, SourceUnreadable
from strandline.storage.log_to_load import LogToLoad
from strandline.storage.memory_files import MemoryFiles
from strandline.types import LeaderEpoch, Offset, ProducerEpoch, ProducerId
from tests.storage.conftest import NOW_MS, PARTITION, SMALL, Kit, World

FUTURE = "/other/orders-0.0123456789abcdef0123456789abcdef-future"


def copy_of(source: Log) -> LogCopy:
    return copy_of_in(source, FUTURE)


def copy_of_in(source: Log, directory: str) -> LogCopy:
    log = Log.create(source.files, directory, PARTITION, SMALL, now_ms=NOW_MS, random=Random(7))
    return LogCopy(source, log, log.offsets.checkpoints_written)


def loaded_again(copy: LogCopy) -> LogCopy:
    """As after a crash of the process."""
    found = LogToLoad(
        PARTITION,
        FUTURE,
        recovery_point=copy.log.recovery_point,
        log_start_offset=copy.log.log_start_offset,
        high_watermark=copy.log.high_watermark,
        needs_recovery=True,
        is_future=True,
    )
    copy.log.close()
    log = Log.load(copy.source.files, found, SMALL, now_ms=NOW_MS, random=Random(7))
    return LogCopy(copy.source, log, log.offsets.checkpoints_written)


def catch_up(copy: LogCopy) -> None:
    while not copy.is_complete:
        copy.advance(2_000, NOW_MS)


def state_of(log: Log) -> Any:
    """All that must be the same."""
    producers = {
        producer: (entry.epoch, entry.last_sequence, entry.last_offset, entry.coordinator_epoch)
        for producer, entry in log.producers.active.items()
    }
    return (
        Kit.bytes_from(log, log.log_start_offset),
        (log.log_start_offset, log.high_watermark, log.log_end_offset, log.last_stable_offset),
        log.leader_epochs.entries,
        producers,
        aborted_in(log),
    )


def aborted_in(log: Log) -> list[int]:
    """Where the batches begin that a reader of committed records must leave out."""
    aborted = log.reader.aborted_transactions(log.log_start_offset, log.log_end_offset)
    return [
        header.base_offset
        for _, header in iterate_headers(Kit.bytes_from(log, log.log_start_offset))
        if header.is_transactional
        and any(
            each.producer_id == header.producer_id
            and each.first_offset <= header.base_offset < each.last_offset
            for each in aborted
        )
    ]


class Source:
    """A log with a past and a future that are drawn."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.log = World(MemoryFiles(), "/data", "memory").create()
        self.epoch = 0
        self.sequences: dict[int, int] = {}
        self.open: set[int] = set()

    def step(self) -> None:
        random, log = self.random, self.log
        draw = random.random()
        if draw < 0.5:
            count = random.randint(1, 3)
            producer = random.choice((-1, 1, 2))
            if producer in self.open or producer < 0:
                self._append(producer, count)
            else:
                self._append(producer, count, begins=True)
        elif draw < 0.65 and self.open:
            self._end(random.choice(sorted(self.open)))
        elif draw < 0.75:
            end = max(log.high_watermark, log.log_end_offset - random.randint(1, 6))
            log.truncation.truncate_to(Offset(end), NOW_MS)
            log.offsets.checkpoints_written()
            self._forget()
            self.epoch += 1
        elif draw < 0.82:
            self.epoch += 1
            log.flusher.begin_epoch(LeaderEpoch(self.epoch), log.log_end_offset)
        elif draw < 0.92:
            log.advance_high_watermark_to(
                Offset(random.randint(log.high_watermark, log.log_end_offset))
            )
        elif draw < 0.97:
            to = random.randint(log.log_start_offset, log.high_watermark)
            log.retention.delete_records_to(Offset(to))
            log.retention.drop_below_start(NOW_MS)
        else:
            log.roller.roll(NOW_MS)

    def _append(self, producer: int, count: int, *, begins: bool = False) -> None:
        sequence = self.sequences.get(producer, 0) if producer >= 0 else -1
        values = [b"%d" % self.random.randint(0, 9) * 40] * count
        batch = Kit.batch(
            *values,
            producer_id=producer,
            epoch=0 if producer >= 0 else -1,
            sequence=sequence,
            transactional=producer >= 0,
        )
        self.log.appender.append_as_leader(
            batch, leader_epoch=LeaderEpoch(self.epoch), now_ms=NOW_MS
        )
        if producer >= 0:
            self.sequences[producer] = sequence + count
            if begins:
                self.open.add(producer)

    def _end(self, producer: int) -> None:
        kind = self.random.choice((ControlType.ABORT, ControlType.COMMIT))
        batch = build_control_batch(
            EndTransactionMarker(kind, 0),
            producer_id=ProducerId(producer),
            producer_epoch=ProducerEpoch(0),
            timestamp=NOW_MS,
        )
        self.log.appender.append_as_coordinator(
            bytearray(batch), leader_epoch=LeaderEpoch(self.epoch), now_ms=NOW_MS
        )
        self.open.discard(producer)

    def _forget(self) -> None:
        """Follow what was cut."""
        active = self.log.producers.active
        self.sequences = {p: entry.last_sequence + 1 for p, entry in active.items()}
        self.open = {p for p, entry in active.items() if entry.has_open_transaction}


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_copy_comes_to_be_what_its_log_is(seed: int) -> None:
    random = Random(seed)
    source = Source(random)
    for _ in range(random.randint(0, 30)):
        source.step()
    copy = copy_of(source.log)
    for _ in range(random.randint(0, 60)):
        if random.random() < 0.5:
            source.step()
        elif random.random() < 0.9:
            copy.advance(random.choice((1, 300, 3_000)), NOW_MS)
            copy.log.check()
        else:
            copy = loaded_again(copy)
    catch_up(copy)
    expected = state_of(source.log)
    copy.complete()
    copy.take_place()
    source.log.check()
    assert source.log.directory == FUTURE
    assert state_of(source.log) == expected
    # It goes on as if nothing had been, and a copy of the copy is the same again.
    for _ in range(10):
        source.step()
    again = copy_of_in(source.log, "/data/again-0")
    catch_up(again)
    expected = state_of(source.log)
    again.complete()
    again.take_place()
    assert state_of(source.log) == expected


def test_a_plan_from_before_the_change_of_places_moves_nothing() -> None:
    source = World(MemoryFiles(), "/data", "memory").create()
    Kit.fill(source, 3)
    plan = source.flusher.flush_plan()
    assert plan is not None
    copy = copy_of(source)
    catch_up(copy)
    table = source.leader_epochs.prepare()
    table.write(source.files)
    copy.complete()
    copy.take_place()
    assert not source.flusher.mark_flushed(plan, NOW_MS)
    assert not copy.log.flusher.mark_flushed(plan, NOW_MS)
    assert source.recovery_point == 0
    assert not source.leader_epochs.adopt(table)


def test_a_copy_counts_as_durable_when_all_is_that_it_caught_up_with() -> None:
    source = World(MemoryFiles(), "/data", "memory").create()
    Kit.fill(source, 3)
    copy = copy_of(source)
    catch_up(copy)
    assert not copy.is_as_durable  # although nothing is known to be durable of its source
    Kit.fill(source, 1)
    plan = copy.log.flusher.flush_plan()
    assert plan is not None
    assert plan.carry_out(source.files)
    assert copy.log.flusher.mark_flushed(plan, NOW_MS)
    catch_up(copy)
    assert copy.is_as_durable


def test_many_small_batches_come_in_parts() -> None:
    source = World(MemoryFiles(), "/data", "memory").create()
    Kit.fill(source, BATCHES_MAX + 1, size=1)
    source.update_config(SMALL)
    copy = copy_of(source)
    slices = 0
    while not copy.is_complete:
        before = copy.log.log_end_offset
        copy.advance(1 << 20, NOW_MS)
        assert 0 < copy.log.log_end_offset - before <= BATCHES_MAX
        slices += 1
    assert slices > 1


def test_it_is_told_whose_disk_cannot_be_read() -> None:
    files = MemoryFiles()
    source = World(files, "/data", "memory").create()
    Kit.fill(source, 30)
    copy = copy_of(source)

    def fail(operation: str, path: str) -> None:
        if operation == "read" and path.startswith("/data"):
            raise UnreadableFile(f"Cannot read {path}.")

    files.on_call = fail
    with pytest.raises(SourceUnreadable) as raised:
        catch_up(copy)
    assert isinstance(raised.value.cause, UnreadableFile)
    files.on_call = None
    catch_up(copy)
    assert copy.log.log_end_offset == 30
