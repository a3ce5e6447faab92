"""Leader epochs: each rule by example, and all of them against a log that remembers everything."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import InvariantViolated, StorageError
from strandline.storage.checkpoint_file import DamagedCheckpoint
from strandline.storage.files import DiskFull
from strandline.storage.leader_epochs import LeaderEpochs
from strandline.storage.memory_files import MemoryFiles
from strandline.types import LeaderEpoch, Offset
from tests.current import current
from tests.storage.failing import failing_call

PATH = "/data/t-0/leader-epoch-checkpoint"
UNKNOWN = (-1, -1)


def disk(data: bytes | None = None) -> MemoryFiles:
    files = MemoryFiles()
    files.make_directory("/data/t-0")
    files.sync_directory("/")
    files.sync_directory("/data")
    if data is not None:
        files.write_atomically(PATH, data)
    return files


def epochs_of(*entries: tuple[int, int], files: MemoryFiles | None = None) -> LeaderEpochs:
    epochs = LeaderEpochs(files or disk(), PATH)
    for epoch, start in entries:
        epochs.assign(LeaderEpoch(epoch), Offset(start))
    return epochs


def assign(epochs: LeaderEpochs, epoch: int, start: int) -> bool:
    return epochs.assign(LeaderEpoch(epoch), Offset(start))


def test_an_assignment_is_durable_when_it_returns() -> None:
    files = disk()
    epochs_of((0, 0), (3, 25), files=files)
    assert files.read_bytes(PATH) == b"0\n2\n0 0\n3 25\n"
    assert LeaderEpochs.load(files.crash_clone(), PATH).entries == ((0, 0), (3, 25))


def test_a_failed_write_changes_nothing() -> None:
    files = disk()
    epochs = epochs_of((0, 0), files=files)

    def fail(operation: str, path: str) -> None:
        raise StorageError(f"Cannot {operation} {path}: it is a test.")

    files.on_call = fail
    with pytest.raises(StorageError):
        assign(epochs, 1, 10)
    assert epochs.entries == ((0, 0),)
    assert epochs.latest == 0


@pytest.mark.parametrize("succeeding", range(7))
def test_r19_a_crash_inside_an_assignment_leaves_the_old_or_the_new_table(
    succeeding: int,
) -> None:
    files = disk()
    epochs = epochs_of((0, 0), files=files)
    files.on_call = failing_call(succeeding + 1, sticky=True)
    try:
        assign(epochs, 1, 10)
        allowed: list[tuple[tuple[int, int], ...]] = [((0, 0), (1, 10))]
    except StorageError:
        allowed = [((0, 0),), ((0, 0), (1, 10))]
    for seed in range(30):
        assert LeaderEpochs.load(files.crash_clone(Random(seed)), PATH).entries in allowed


@pytest.mark.parametrize(
    ("added", "expected"),
    [
        ((5, 50), ((1, 10), (3, 30), (5, 50))),  # newer and later: added
        ((3, 30), ((1, 10), (3, 30))),  # the newest again
        ((3, 44), ((1, 10), (3, 30))),  # the newest, further on: nothing new
        ((3, 20), ((1, 10), (3, 20))),  # the newest, earlier: moved
        ((5, 30), ((1, 10), (5, 30))),  # the former leader wrote nothing
        ((5, 5), ((5, 5),)),  # everything known was truncated
        ((2, 40), ((1, 10), (2, 40))),  # an older epoch displaces later ones
        ((1, 10), ((1, 10),)),
    ],
)
def test_assignment(added: tuple[int, int], expected: tuple[tuple[int, int], ...]) -> None:
    epochs = epochs_of((1, 10), (3, 30))
    changed = assign(epochs, *added)
    assert epochs.entries == expected
    assert changed == (expected != ((1, 10), (3, 30)))
    assert epochs.latest == expected[-1][0]
    epochs.check()


@pytest.mark.parametrize(("epoch", "start"), [(-1, 0), (0, -1)])
def test_an_undefined_epoch_or_offset_is_a_bug(epoch: int, start: int) -> None:
    with pytest.raises(InvariantViolated):
        assign(epochs_of(), epoch, start)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (-1, UNKNOWN),
        (0, (0, 10)),  # older than all: ends where the first known one starts (KAFKA-7415)
        (2, (2, 30)),
        (3, (2, 30)),  # never led here: the one before it
        (5, (5, 60)),
        (7, (7, 99)),  # the newest goes on to the end of the log
        (8, UNKNOWN),
    ],
)
def test_end_offset_for(asked: int, expected: tuple[int, int]) -> None:
    epochs = epochs_of((2, 10), (5, 30), (7, 60))
    assert epochs.end_offset_for(LeaderEpoch(asked), Offset(99)) == expected


def test_nothing_is_known_without_entries() -> None:
    epochs = epochs_of()
    assert epochs.latest == -1
    assert epochs.latest_entry is None
    assert epochs.epoch_for_offset(Offset(0)) == -1
    assert epochs.end_offset_for(LeaderEpoch(0), Offset(5)) == UNKNOWN
    assert epochs.end_offset_for(LeaderEpoch(-1), Offset(5)) == UNKNOWN


def test_truncation_from_the_end_is_durable_when_it_returns() -> None:
    files = disk()
    epochs = epochs_of((0, 0), (1, 10), (2, 20), files=files)
    assert epochs.truncate_from_end(Offset(20))
    assert not epochs.truncate_from_end(Offset(20))
    assert epochs.latest == 1
    assert not epochs.has_unwritten_changes
    assert LeaderEpochs.load(files.crash_clone(), PATH).entries == ((0, 0), (1, 10))


def test_i46_a_truncation_that_cannot_be_written_does_not_count() -> None:
    files = disk()
    epochs = epochs_of((0, 0), (1, 10), (2, 20), files=files)

    def fail(operation: str, path: str) -> None:
        raise DiskFull(f"Cannot {operation} {path}: it is a test.")

    files.on_call = fail
    with pytest.raises(DiskFull):
        epochs.truncate_from_end(Offset(20))
    assert epochs.latest == 2
    assert epochs.entries == ((0, 0), (1, 10), (2, 20))
    files.on_call = None
    assert epochs.truncate_from_end(Offset(20))


def test_truncation_from_the_start_waits_for_flush_and_flush_writes_it() -> None:
    files = disk()
    epochs = epochs_of((0, 0), (1, 10), (2, 20), files=files)
    assert epochs.truncate_from_start(Offset(15))
    assert current(epochs.has_unwritten_changes)
    assert LeaderEpochs.load(files, PATH).entries == ((0, 0), (1, 10), (2, 20))
    epochs.flush()
    assert not epochs.has_unwritten_changes
    assert LeaderEpochs.load(files.crash_clone(), PATH).entries == ((1, 15), (2, 20))


def test_truncation_from_the_start_keeps_the_epoch_that_goes_on() -> None:
    epochs = epochs_of((0, 0), (1, 10), (2, 20))
    assert epochs.truncate_from_start(Offset(15))
    assert current(epochs.entries) == ((1, 15), (2, 20))
    assert not epochs.truncate_from_start(Offset(15))
    assert epochs.truncate_from_start(Offset(500))
    assert epochs.entries == ((2, 500),)


def test_an_epoch_without_records_goes_even_if_the_log_keeps_its_length() -> None:
    """KAFKA-10706: an ex-leader that wrote nothing truncates to its own end."""
    epochs = epochs_of((0, 0), (4, 10))
    assert epochs.truncate_from_end(Offset(10))
    assert epochs.latest == 0


@pytest.mark.parametrize(
    "data", [b"0\n1\n0\n", b"0\n1\n0 0 0\n", b"0\n1\n-1 0\n", b"0\n1\n0 -1\n", b"0\n1\nx 0\n"]
)
def test_a_damaged_file_is_refused(data: bytes) -> None:
    with pytest.raises(DamagedCheckpoint):
        LeaderEpochs.load(disk(data), PATH)


def test_a_table_out_of_order_is_read_as_successive_assignments() -> None:
    epochs = LeaderEpochs.load(disk(b"0\n3\n0 0\n5 50\n3 40\n"), PATH)
    assert epochs.entries == ((0, 0), (3, 40))


def test_a_moved_file_is_written_in_its_new_place() -> None:
    files = disk()
    epochs = epochs_of((0, 0), files=files)
    files.rename("/data/t-0", "/data/t-0.x-delete")
    epochs.moved_to("/data/t-0.x-delete/leader-epoch-checkpoint")
    assign(epochs, 1, 5)
    assert files.exists("/data/t-0.x-delete/leader-epoch-checkpoint")


@dataclass
class RememberingLog:
    """A log that knows the epoch of each of its records, and needs no table to answer."""

    start: int = 0
    records: list[int] = field(default_factory=list)
    epoch: int = 0

    @property
    def end(self) -> int:
        return self.start + len(self.records)

    def epoch_at(self, offset: int) -> int:
        return self.records[offset - self.start]

    def end_offset_for(self, epoch: int) -> tuple[int, int]:
        older = [e for e in self.records if e <= epoch]
        found = max(older) if older else epoch
        later = [i for i, e in enumerate(self.records) if e > epoch]
        return found, self.start + later[0] if later else self.end


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("lead"), st.integers(1, 3)),
        st.tuples(st.just("append"), st.integers(1, 5)),
        st.tuples(st.just("cut"), st.integers(0, 100)),
        st.tuples(st.just("delete"), st.integers(0, 100)),
        st.tuples(st.just("crash"), st.integers(0, 1000)),
    ),
    max_size=40,
)


@given(STEPS)
def test_the_table_answers_as_a_log_that_remembers_every_record(
    steps: list[tuple[str, int]],
) -> None:
    files = disk()
    epochs, log = LeaderEpochs(files, PATH), RememberingLog()
    epochs.assign(LeaderEpoch(0), Offset(0))
    for step, number in steps:
        match step:
            case "lead":
                log.epoch += number
                epochs.assign(LeaderEpoch(log.epoch), Offset(log.end))
            case "append":
                epochs.assign(LeaderEpoch(log.epoch), Offset(log.end))
                log.records += [log.epoch] * number
            case "cut":
                target = log.start + number * len(log.records) // 100
                del log.records[target - log.start :]
                epochs.truncate_from_end(Offset(target))
            case "delete":
                moved = number * len(log.records) // 100
                del log.records[:moved]
                log.start += moved
                epochs.truncate_from_start(Offset(log.start))
            case _:
                files = files.crash_clone(Random(number))
                epochs = LeaderEpochs.load(files, PATH)
                epochs.truncate_from_end(Offset(log.end))
                epochs.truncate_from_start(Offset(log.start))
        epochs.check()
        recorded = sorted(set(log.records))
        # The cache is that of the log, plus at most one epoch that has not written yet (I-03).
        assert [e.epoch for e in epochs.entries if e.start_offset < log.end] == recorded
        assert len([e for e in epochs.entries if e.start_offset >= log.end]) <= 1
        for offset in range(log.start, log.end):
            assert epochs.epoch_for_offset(Offset(offset)) == log.epoch_at(offset)
        for epoch in range(epochs.latest + 1):
            expected = log.end_offset_for(epoch)
            found = epochs.end_offset_for(LeaderEpoch(epoch), Offset(log.end))
            assert found[1] == expected[1]
            assert found[0] == expected[0] or found[0] == epochs.latest
