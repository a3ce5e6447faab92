"""Files that rot, go, shrink, or come back from earlier, while the broker is down (F-50 to F-55).

Whatever is done to the files of a log directory: the start works or says clearly why it does not,
and no reader gets wrong records. Only bytes of a batch's header that no checksum covers cannot be
judged; everything else that differs from what was written must be seen to be damaged.
"""

from __future__ import annotations

from random import Random

import pytest

from strandline.errors import CorruptRecords, ProtocolError, StorageError
from strandline.records.batch import iterate_headers, verify_crc
from strandline.records.record import read_records
from strandline.storage.files import MissingFile
from strandline.storage.log import Log
from strandline.types import Offset, TopicPartition
from tests.sim.shelf import (
    DATA,
    NOW_MS,
    PARTITIONS,
    Opened,
    Past,
    Shelf,
    batches_of,
    judge,
    rebuilt,
)

UNCOVERED = range(17)
"""Offset, length, leader epoch and magic of a batch stand in front of its checksum."""


def _past(seed: int, *, clean: bool) -> Shelf:
    """A disk with the logs of a broker that is down, and what they held."""
    shelf = Shelf(seed)
    for _ in range(70):
        shelf.step()
        shelf.remember()
        if shelf.random.random() < 0.03:
            _end_life(shelf, clean=True)
            shelf.opened = Opened(shelf.disk.files)
    _end_life(shelf, clean=clean)
    return shelf


def _end_life(shelf: Shelf, *, clean: bool) -> None:
    if clean:
        assert shelf.directory.close_clean(broker_epoch=1)
    shelf.disk.killed()


def _times_and_values(batches: dict[int, bytes]) -> list[tuple[int, int, bytes | None]]:
    return [
        (record.offset, record.timestamp, record.value)
        for _, data in sorted(batches.items())
        for record in read_records(data)
    ]


def _read_everything(log: Log, past: Past, *, holes: bool = False) -> int:
    """Read from every offset; how many gave good batches. `holes`: some may be passed over."""
    good = 0
    for offset in range(log.log_start_offset, log.log_end_offset):
        try:
            part = log.reader.read(
                Offset(offset), 1, end_offset=log.log_end_offset, at_least_one_batch=True
            )
            if part is None:
                continue
            data = part.file.read_at(part.position, part.length)
            headers = list(iterate_headers(data))
        except (StorageError, CorruptRecords):
            continue
        for position, header in headers:
            batch = data[position : position + header.size_bytes]
            if not verify_crc(batch, 0, len(batch)):
                continue
            covered = batch[len(UNCOVERED) :]
            known = {written[len(UNCOVERED) :]: base for base, written in past.batches.items()}
            assert covered in known, "a batch that was never written"
            if known[covered] == header.base_offset:
                assert header.base_offset <= offset <= header.last_offset or position or holes
                good += 1
    return good


def _look_up_times(log: Log) -> None:
    """The first record that is at least as new as a time is the one that a scan finds."""
    records = [r for r in _times_and_values(batches_of(log)) if r[0] >= log.log_start_offset]
    for _, timestamp, _ in records[::5]:
        try:
            found = log.reader.offset_for_timestamp(timestamp)
        except (StorageError, CorruptRecords):
            continue
        # Segment by segment, as the log does: times may go down from one to the next.
        expected = next(
            offset
            for segment in log.segments.all
            for offset, at, _ in records
            if at >= timestamp and segment.base_offset <= offset < _end_of(log, segment.base_offset)
        )
        assert found is not None
        assert found.offset == expected


def _end_of(log: Log, base_offset: int) -> int:
    above = log.segments.above(base_offset)
    return above[0].base_offset if above else log.log_end_offset


def _open(shelf: Shelf) -> dict[TopicPartition, Log] | None:
    """Start; None if the directory is refused with a sentence that names a file."""
    opened = Opened(shelf.disk.files)
    reason = opened.directory.offline_reason
    if reason is not None:
        assert DATA in reason
        return None
    assert sorted(opened.logs) == sorted(PARTITIONS)
    for log in opened.logs.values():
        log.check()
    return opened.logs


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("kind", [".index", ".timeindex", ".txnindex", ".snapshot"])
@pytest.mark.parametrize("damage", ["rot", "lose_file", "cut_file"])
def test_what_can_be_made_again_is_never_believed_blindly(
    seed: int, kind: str, damage: str, clean: bool
) -> None:
    """F-51: the logs are as if nothing had happened."""
    shelf = _past(seed, clean=clean)
    told = getattr(shelf.disk, damage)(kind)
    logs = _open(shelf)
    assert logs is not None, told
    fresh = rebuilt(shelf.disk.files)
    for at, log in logs.items():
        past = shelf.pasts[at]
        assert log.log_end_offset == past.end, told
        assert log.log_start_offset == fresh.logs[at].log_start_offset or clean
        try:
            assert _read_everything(log, past) >= log.log_end_offset - log.log_start_offset, told
            _look_up_times(log)
        except AssertionError as error:
            error.add_note(str(told))
            raise


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("damage", ["rot", "lose_file", "cut_file"])
def test_damaged_records_are_never_read_as_good_ones(seed: int, damage: str, clean: bool) -> None:
    """F-50, F-55: what is wrong fails its checksum, is cut off, or cannot be read."""
    shelf = _past(seed, clean=clean)
    told = getattr(shelf.disk, damage)(".log")
    logs = _open(shelf)
    if logs is None:
        return
    for at, log in logs.items():
        try:
            _read_everything(log, shelf.pasts[at])
        except AssertionError as error:
            error.add_note(str(told))
            raise


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("damage", ["rot", "lose_file", "cut_file", "restore_older"])
def test_damaged_tables_are_refused_or_clamped(seed: int, damage: str, clean: bool) -> None:
    """F-51, F-54: offsets beyond the log, epochs ahead of it, and tables that do not parse."""
    shelf = _past(seed, clean=clean)
    told = getattr(shelf.disk, damage)("-checkpoint")
    logs = _open(shelf)
    if logs is None:
        assert damage in ("rot", "cut_file"), told
        return
    for at, log in logs.items():
        past = shelf.pasts[at]
        assert log.log_end_offset <= max(past.end, log.log_start_offset), told
        assert 0 <= log.log_start_offset <= log.high_watermark <= log.log_end_offset
        assert log.recovery_point <= log.log_end_offset
        assert all(entry.start_offset <= log.log_end_offset for entry in log.leader_epochs.entries)
        _read_everything(log, past)


@pytest.mark.parametrize("seed", range(10))
def test_a_marker_that_is_gone_costs_only_time(seed: int) -> None:
    shelf = _past(seed, clean=True)
    expected = Opened(shelf.disk.image()).contents()
    assert shelf.disk.forget_clean_marker() is not None
    opened = Opened(shelf.disk.files)
    assert opened.directory.clean_shutdown is None
    assert opened.contents() == expected
    judge(opened, shelf.pasts, shelf.pasts)


@pytest.mark.parametrize("seed", range(10))
def test_a_marker_that_lies_gives_no_wrong_records(seed: int) -> None:
    """A power cut, and a marker that says that nothing happened: reads fail, but do not lie."""
    shelf = Shelf(seed)
    for _ in range(70):
        shelf.step()
        shelf.remember()
    shelf.disk.power_cut("any")
    assert shelf.disk.forge_clean_marker() is not None
    logs = _open(shelf)
    if logs is None:
        return
    for at, log in logs.items():
        _read_everything(log, shelf.pasts[at], holes=True)
        batch = shelf.batch(at)
        try:
            log.appender.append_as_leader(
                batch, leader_epoch=log.leader_epochs.latest, now_ms=NOW_MS
            )
        except (StorageError, ProtocolError):
            continue


def test_a_table_that_is_not_there_is_an_empty_one() -> None:
    shelf = _past(3, clean=True)
    for name in ("recovery-point", "log-start", "replication"):
        try:
            shelf.disk.files.remove(f"{DATA}/{name}-offset-checkpoint")
        except MissingFile:
            continue
    assert _open(shelf) is not None


def test_damage_is_drawn_from_the_seed() -> None:
    told = [[_past(seed, clean=True).disk.rot(".log") for seed in range(3)] for _ in range(2)]
    assert told[0] == told[1]
    assert Random(1).random() == Random(1).random()
