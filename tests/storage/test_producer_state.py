"""Producer states: each rule with its code, transactions, rebuilding, and a naive model of all."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.errors import CorruptRecords, ErrorCode, InvariantViolated, ProtocolError
from strandline.records.batch import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader, parse_header
from strandline.records.builder import build_batch, build_control_batch
from strandline.records.control import ControlType, EndTransactionMarker
from strandline.records.record import Record
from strandline.storage.end_marker import EndMarker, read_end_marker
from strandline.storage.memory_files import MemoryFiles
from strandline.storage.open_transactions import CompletedTransaction
from strandline.storage.origin import AppendOrigin
from strandline.storage.producer_entry import CompletedBatch, ProducerEntry
from strandline.storage.producer_state import ProducerStates
from strandline.storage.transaction_verification import NO_GUARD, VERIFICATIONS_MAX, Guard
from strandline.types import LeaderEpoch, Offset, ProducerEpoch, ProducerId
from tests.current import current

CLIENT, COORDINATOR, REPLICATION = AppendOrigin
DAY_MS = 86_400_000
DIRECTORY = "/d/t-0"
SEQUENCE_MAX = 2**31 - 1


def disk() -> MemoryFiles:
    files = MemoryFiles()
    files.make_directory(DIRECTORY)
    files.sync_directory("/")
    files.sync_directory("/d")
    return files


def states_on(files: MemoryFiles | None = None, *, verify: bool = False) -> ProducerStates:
    files = files or disk()
    states = ProducerStates(files, DIRECTORY, expiration_ms=DAY_MS, verification_enabled=verify)
    states.snapshots.scan(files.list_directory(DIRECTORY))
    return states


def batch(
    sequence: int,
    offset: int,
    *,
    count: int = 1,
    producer: int = 1,
    epoch: int = 0,
    transactional: bool = False,
    control: bool = False,
    time: int = 1000,
) -> BatchHeader:
    bits = (TRANSACTIONAL_BIT if transactional else 0) | (CONTROL_BIT if control else 0)
    return BatchHeader(
        Offset(offset),
        100,
        LeaderEpoch(0),
        2,
        0,
        bits,
        count - 1,
        time,
        time,
        ProducerId(producer),
        ProducerEpoch(epoch),
        sequence,
        count,
    )


def append(
    states: ProducerStates,
    header: BatchHeader,
    origin: AppendOrigin = CLIENT,
    guard: Guard = NO_GUARD,
) -> CompletedBatch | None:
    duplicate = states.check(header, origin, guard)
    if duplicate is None:
        states.update(header, header.base_offset, header.max_timestamp)
        states.end_offset = header.next_offset
    return duplicate


def refusal(
    states: ProducerStates,
    header: BatchHeader,
    origin: AppendOrigin = CLIENT,
    guard: Guard = NO_GUARD,
) -> ErrorCode:
    before = {key: describe(entry) for key, entry in states.active.items()}
    with pytest.raises(ProtocolError) as caught:
        states.check(header, origin, guard)
    assert {key: describe(entry) for key, entry in states.active.items()} == before
    assert str(header.producer_id) in caught.value.message
    return caught.value.code


def describe(entry: ProducerEntry) -> tuple[object, ...]:
    return (
        entry.producer_id,
        entry.epoch,
        entry.coordinator_epoch,
        entry.last_timestamp,
        entry.transaction_first_offset,
        tuple(entry.batches),
        entry.next_sequence,
    )


def end_transaction(
    states: ProducerStates, offset: int, *, producer: int = 1, epoch: int = 0, abort: bool = False
) -> CompletedTransaction | None:
    header = batch(-1, offset, producer=producer, epoch=epoch, transactional=True, control=True)
    completed = states.update_marker(header, EndMarker(abort, 0, 1000), Offset(offset))
    if completed is not None:
        states.transactions.complete(completed)
    states.end_offset = Offset(offset + 1)
    return completed


# ── sequences ──────────────────────────────────────────────────────────────────────────────────


def test_batches_in_sequence_are_written() -> None:
    states = states_on()
    assert append(states, batch(0, 0, count=5)) is None
    assert append(states, batch(5, 5, count=2)) is None
    assert append(states, batch(7, 7)) is None


def test_each_of_the_last_five_batches_is_recognised() -> None:
    states = states_on()
    for i in range(6):
        append(states, batch(i * 3, i * 3, count=3, time=1000 + i))
    for i in range(1, 6):
        repeated = append(states, batch(i * 3, 999, count=3, time=5))
        assert repeated == CompletedBatch(
            i * 3, i * 3 + 2, Offset(i * 3), Offset(i * 3 + 2), 1000 + i
        )
    assert refusal(states, batch(0, 18, count=3)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_repeated_batch_must_have_both_sequences() -> None:
    states = states_on()
    append(states, batch(0, 0, count=3))
    assert refusal(states, batch(0, 3, count=2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize("sequence", [0, 1, 4, 6, SEQUENCE_MAX])
def test_a_gap_or_an_overlap_is_out_of_order(sequence: int) -> None:
    states = states_on()
    append(states, batch(0, 0, count=5))
    assert refusal(states, batch(sequence, 5)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_sequences_wrap_to_zero() -> None:
    states = states_on()
    append(states, batch(SEQUENCE_MAX - 1, 0, count=2))
    assert states.active[ProducerId(1)].next_sequence == 0
    append(states, batch(0, 2))
    states = states_on()
    append(states, batch(SEQUENCE_MAX - 1, 0, count=4))
    assert append(states, batch(SEQUENCE_MAX - 1, 9, count=4)) is not None
    assert append(states, batch(2, 4)) is None


def test_an_unknown_producer_may_start_anywhere() -> None:
    assert append(states_on(), batch(17, 0)) is None


def test_a_new_epoch_starts_at_zero_and_forgets_the_old_batches() -> None:
    states = states_on()
    append(states, batch(0, 0, count=5))
    assert refusal(states, batch(5, 5, epoch=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert append(states, batch(0, 5, epoch=1)) is None
    assert len(states.active[ProducerId(1)].batches) == 1
    assert refusal(states, batch(5, 6)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(states, batch(0, 6, count=5)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_coordinators_have_epochs_but_no_sequences() -> None:
    states = states_on()
    assert append(states, batch(-1, 0, epoch=3), COORDINATOR) is None
    assert append(states, batch(-1, 1, epoch=3), COORDINATOR) is None
    assert refusal(states, batch(-1, 2, epoch=2), COORDINATOR) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_batch_that_repeats_is_found_behind_a_coordinators_batch() -> None:
    states = states_on()
    append(states, batch(0, 0, count=2))
    append(states, batch(-1, 2), COORDINATOR)
    duplicate = append(states, batch(0, 3, count=2))
    assert duplicate is not None
    assert duplicate.first_offset == 0


def test_replication_is_never_refused() -> None:
    """KAFKA-6003: a follower mirrors its leader, whatever it knows."""
    states = states_on()
    append(states, batch(0, 0, epoch=5))
    assert append(states, batch(90, 1, epoch=5), REPLICATION) is None
    assert append(states, batch(7, 2, epoch=4), REPLICATION) is None
    assert append(states, batch(0, 3, epoch=6, transactional=True), REPLICATION) is None
    assert append(states, batch(1, 4, epoch=6), REPLICATION) is None
    assert states.active[ProducerId(1)].epoch == 6


# ── transactions ───────────────────────────────────────────────────────────────────────────────


def test_a_transaction_is_unstable_until_its_marker_is_replicated() -> None:
    states = states_on()
    append(states, batch(0, 10, transactional=True))
    append(states, batch(1, 11, transactional=True))
    assert current(states.transactions.first_unstable_offset) == states.first_undecided_offset == 10
    completed = end_transaction(states, 12, abort=True)
    assert completed == CompletedTransaction(ProducerId(1), Offset(10), Offset(12), is_abort=True)
    assert current(states.first_undecided_offset) is None
    assert states.transactions.first_unstable_offset == 10
    states.transactions.acknowledge_to(Offset(12))
    assert states.transactions.first_unstable_offset == 10
    states.transactions.acknowledge_to(Offset(13))
    assert states.transactions.first_unstable_offset is None


def test_the_earliest_unstable_transaction_counts() -> None:
    states = states_on()
    append(states, batch(0, 10, producer=1, transactional=True))
    append(states, batch(0, 11, producer=2, transactional=True))
    completed = end_transaction(states, 12, producer=2)
    assert completed is not None
    assert states.transactions.last_stable_offset_after(completed) == 10
    states.transactions.acknowledge_to(Offset(20))
    assert states.transactions.first_unstable_offset == 10
    completed = end_transaction(states, 13, producer=1)
    assert completed is not None
    assert states.transactions.last_stable_offset_after(completed) == 14
    states.check_invariants()


def test_the_last_stable_offset_is_known_before_the_transaction_is_closed() -> None:
    states = states_on()
    append(states, batch(0, 10, producer=1, transactional=True))
    append(states, batch(0, 11, producer=2, transactional=True))
    header = batch(-1, 12, producer=1, transactional=True, control=True)
    completed = states.update_marker(header, EndMarker(True, 0, 1), Offset(12))
    assert completed is not None
    assert states.transactions.last_stable_offset_after(completed) == 11


def test_nothing_else_is_written_while_a_transaction_is_open() -> None:
    states = states_on()
    append(states, batch(0, 0, transactional=True))
    assert refusal(states, batch(1, 1)) is ErrorCode.INVALID_TXN_STATE
    end_transaction(states, 1)
    assert append(states, batch(1, 2)) is None


def test_a_marker_without_a_transaction_completes_none_and_is_remembered() -> None:
    states = states_on()
    assert end_transaction(states, 0, epoch=2) is None
    assert states.active[ProducerId(1)].epoch == 2
    assert refusal(states, batch(0, 1, epoch=1)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(states, batch(4, 1, epoch=2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert append(states, batch(0, 1, epoch=2)) is None


def test_completing_what_was_never_open_is_a_bug() -> None:
    with pytest.raises(InvariantViolated):
        states_on().transactions.complete(
            CompletedTransaction(ProducerId(1), Offset(0), Offset(1), is_abort=False)
        )


def marker_refusal(
    states: ProducerStates, epoch: int, coordinator_epoch: int, version: int
) -> int | None:
    header = batch(-1, 50, epoch=epoch, transactional=True, control=True)
    try:
        states.check_marker(header, EndMarker(False, coordinator_epoch, 1), COORDINATOR, version)
    except ProtocolError as refused:
        return int(refused.code)
    return None


@pytest.mark.parametrize(
    ("epoch", "coordinator_epoch", "version", "is_open", "expected"),
    [
        (4, 7, 0, True, 47),
        (5, 7, 0, True, None),
        (5, 6, 0, True, 52),
        (6, 8, 1, True, None),
        (5, 7, 2, True, 47),
        (5, 7, 2, False, None),  # a repeated marker, after the transaction ended (KAFKA-19999)
        (4, 7, 2, False, 47),
        (6, 7, 2, True, None),
        (6, 6, 2, True, 52),
    ],
)
def test_markers(
    epoch: int, coordinator_epoch: int, version: int, is_open: bool, expected: int | None
) -> None:
    states = states_on()
    header = batch(-1, 0, epoch=5, transactional=True, control=True)
    states.update_marker(header, EndMarker(False, 7, 1), Offset(0))
    if is_open:
        append(states, batch(0, 1, epoch=5, transactional=True))
    assert marker_refusal(states, epoch, coordinator_epoch, version) == expected
    stale = batch(-1, 9, epoch=0, transactional=True, control=True)
    states.check_marker(stale, EndMarker(False, 0, 1), REPLICATION)


def test_a_marker_of_the_last_epoch_may_end_a_transaction_of_the_last_epoch() -> None:
    states = states_on()
    append(states, batch(0, 0, epoch=32767, transactional=True))
    assert marker_refusal(states, 32767, 0, 2) is None


def test_a_late_transaction_is_one_that_outlived_every_timeout() -> None:
    states = states_on()
    assert not states.has_late_transaction(10**9, 900_000)
    append(states, batch(0, 0, transactional=True, time=1000))
    limit = 1000 + 900_000 + 300_000
    assert not states.has_late_transaction(limit, 900_000)
    assert states.has_late_transaction(limit + 1, 900_000)


def test_markers_are_read_from_real_batches() -> None:
    states = states_on()
    data = build_batch(
        [Record(timestamp=5, value=b"x")],
        base_offset=Offset(3),
        producer_id=ProducerId(9),
        producer_epoch=ProducerEpoch(1),
        base_sequence=0,
        is_transactional=True,
    )
    assert states.replay(parse_header(data), data) is None
    marker = build_control_batch(
        EndTransactionMarker(ControlType.ABORT, 12),
        timestamp=77,
        producer_id=ProducerId(9),
        producer_epoch=ProducerEpoch(1),
        base_offset=Offset(4),
    )
    completed = states.replay(parse_header(marker), marker)
    assert completed == CompletedTransaction(ProducerId(9), Offset(3), Offset(4), is_abort=True)
    entry = states.active[ProducerId(9)]
    assert (entry.coordinator_epoch, entry.last_timestamp) == (12, 77)


def test_a_control_batch_that_ends_nothing_is_corrupt() -> None:
    other = build_control_batch(
        EndTransactionMarker(ControlType.LEADER_CHANGE, 12),
        timestamp=77,
        producer_id=ProducerId(9),
        producer_epoch=ProducerEpoch(1),
    )
    with pytest.raises(CorruptRecords):
        read_end_marker(other)


# ── verification (KIP-890) ─────────────────────────────────────────────────────────────────────


def begin(
    states: ProducerStates, *, epoch: int = 0, sequence: int = 0, bump: bool = False
) -> Guard:
    return states.begin_verification(
        ProducerId(1), ProducerEpoch(epoch), sequence, 1000, supports_epoch_bump=bump
    )


def test_a_transaction_opens_only_with_its_guard() -> None:
    states = states_on(verify=True)
    first = batch(0, 0, transactional=True)
    assert refusal(states, first) is ErrorCode.INVALID_TXN_STATE
    guard = begin(states)
    assert begin(states) == guard
    assert refusal(states, first, CLIENT, Guard(guard + 1)) is ErrorCode.INVALID_TXN_STATE
    assert append(states, first, CLIENT, guard) is None
    assert append(states, batch(1, 1, transactional=True)) is None
    assert begin(states) == NO_GUARD
    assert append(states, batch(0, 9, producer=2)) is None


def test_a_marker_takes_the_guard_away() -> None:
    states = states_on(verify=True)
    guard = begin(states)
    end_transaction(states, 0)
    late = batch(0, 1, transactional=True)
    assert refusal(states, late, CLIENT, guard) is ErrorCode.INVALID_TXN_STATE
    assert begin(states) != guard


def test_the_marker_of_the_previous_transaction_leaves_the_guard_of_the_next() -> None:
    states = states_on(verify=True)
    guard = begin(states, epoch=1, bump=True)
    end_transaction(states, 0, epoch=1)
    assert append(states, batch(0, 1, epoch=1, transactional=True), CLIENT, guard) is None


def test_a_fenced_producer_gets_no_guard_and_learns_why() -> None:
    states = states_on(verify=True)
    append(states, batch(0, 0, epoch=3))
    with pytest.raises(ProtocolError) as caught:
        begin(states, epoch=2)
    assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    stale = batch(0, 1, epoch=2, transactional=True)
    assert refusal(states, stale) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_later_batch_waits_for_the_earlier_one_under_verification() -> None:
    states = states_on(verify=True)
    begin(states, sequence=5)
    guard = begin(states, sequence=3)
    later = batch(5, 0, transactional=True)
    assert refusal(states, later, CLIENT, guard) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert append(states, batch(3, 0, transactional=True), CLIENT, guard) is None


def test_version_two_transactions_of_unknown_producers_start_at_zero() -> None:
    states = states_on(verify=True)
    guard = begin(states, sequence=4, bump=True)
    first = batch(4, 0, transactional=True)
    assert refusal(states, first, CLIENT, guard) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_newer_epoch_resets_the_sequence_under_verification() -> None:
    states = states_on(verify=True)
    begin(states, epoch=0, sequence=0)
    guard = begin(states, epoch=1, sequence=7)
    assert append(states, batch(7, 0, epoch=1, transactional=True), CLIENT, guard) is None


def test_one_producer_under_verification_does_not_slow_down_the_others() -> None:
    states = states_on(verify=True)
    append(states, batch(0, 0, producer=1))
    append(states, batch(0, 1, producer=2))
    begin(states, sequence=1)
    assert not states.is_next(batch(1, 2, producer=1))
    assert states.is_next(batch(1, 2, producer=2))


def test_no_more_guards_are_kept_than_memory_is_meant_for() -> None:
    """A client may name any producers; those that were named last are true ones most likely."""
    states = states_on(verify=True)
    for producer in range(VERIFICATIONS_MAX + 1):
        states.begin_verification(
            ProducerId(producer), ProducerEpoch(0), 0, 1000, supports_epoch_bump=False
        )
    kept = [states.verifications.get(ProducerId(each)) for each in (0, 1, VERIFICATIONS_MAX)]
    assert [each is not None for each in kept] == [False, True, True]


def test_unused_guards_expire() -> None:
    states = states_on(verify=True)
    guard = begin(states)
    states.remove_expired(1000 + DAY_MS - 1)
    assert begin(states) == guard
    states.remove_expired(1000 + DAY_MS)
    assert begin(states) != guard


# ── expiry and rebuilding ──────────────────────────────────────────────────────────────────────


def test_idle_producers_expire_but_not_within_a_transaction() -> None:
    states = states_on()
    append(states, batch(0, 0, producer=1, time=1000))
    append(states, batch(0, 1, producer=2, time=2000))
    append(states, batch(0, 2, producer=3, time=1000, transactional=True))
    assert states.remove_expired(1000 + DAY_MS - 1) == 0
    assert states.remove_expired(1000 + DAY_MS) == 1
    assert set(states.active) == {2, 3}
    assert append(states, batch(44, 3, producer=1)) is None


def test_f59_idleness_counts_from_the_work_and_not_from_the_age_of_the_records() -> None:
    files = disk()
    states = states_on(files)
    now_ms = 10 * DAY_MS
    header = batch(0, 0, producer=1, time=1000)
    states.update(header, header.base_offset, header.max_timestamp, now_ms)
    states.end_offset = header.next_offset
    assert states.remove_expired(now_ms + DAY_MS - 1) == 0
    states.take_snapshot()
    again = states_on(files)
    again.truncate_and_reload(Offset(0), Offset(1), now_ms + DAY_MS - 1)
    assert set(again.active) == {1}
    assert again.remove_expired(now_ms + DAY_MS) == 1
    assert states.remove_expired(now_ms + DAY_MS) == 1


def test_a_snapshot_is_taken_once_per_offset() -> None:
    states = states_on()
    assert states.take_snapshot() is None
    append(states, batch(0, 0))
    assert states.take_snapshot() == "/d/t-0/00000000000000000001.snapshot"
    assert states.take_snapshot() is None
    assert states.take_snapshot(Offset(9), sync=False) == "/d/t-0/00000000000000000009.snapshot"
    assert states.snapshots.offsets == [1, 9]


def test_reload_starts_from_the_newest_snapshot_in_range() -> None:
    files = disk()
    states = states_on(files)
    for i in range(6):
        append(states, batch(i, i))
        states.take_snapshot()
    again = states_on(files)
    reload = again.truncate_and_reload(Offset(2), Offset(5), 1000)
    assert (reload.scan_from, reload.damaged_snapshots) == (5, ())
    assert again.active[ProducerId(1)].next_sequence == 5
    assert states_on(files).snapshots.offsets == [2, 3, 4, 5]


def test_reload_of_an_emptied_log_knows_its_producers() -> None:
    files = disk()
    states = states_on(files)
    append(states, batch(0, 0))
    states.take_snapshot()
    again = states_on(files)
    assert again.truncate_and_reload(Offset(1), Offset(1), 1000).scan_from == 1
    assert again.active[ProducerId(1)].next_sequence == 1


def test_reload_without_a_snapshot_scans_from_the_log_start() -> None:
    states = states_on()
    append(states, batch(0, 5))
    reload = states.truncate_and_reload(Offset(3), Offset(9), 1000)
    assert reload.scan_from == states.end_offset == 3
    assert states.is_empty


def test_reload_to_where_the_state_is_keeps_it() -> None:
    states = states_on()
    append(states, batch(0, 0, transactional=True))
    end_transaction(states, 1)
    assert states.truncate_and_reload(Offset(0), Offset(2), 1000).scan_from == 2
    assert current(states.transactions.first_unstable_offset) == 0
    assert states.truncate_and_reload(Offset(2), Offset(2), 1000).scan_from == 2
    assert states.transactions.first_unstable_offset is None
    assert not states.is_empty


def test_a_damaged_snapshot_is_reported_and_deleted_and_an_older_one_used() -> None:
    files = disk()
    states = states_on(files)
    for i in range(3):
        append(states, batch(i, i))
        states.take_snapshot()
    files.open("/d/t-0/00000000000000000003.snapshot").write_at(12, b"\xff")
    files.open("/d/t-0/00000000000000000002.snapshot").truncate(3)
    reload = states_on(files).truncate_and_reload(Offset(0), Offset(3), 1000)
    assert reload.scan_from == 1
    assert len(reload.damaged_snapshots) == 2
    assert "00000000000000000003.snapshot" in reload.damaged_snapshots[0]
    assert states_on(files).snapshots.offsets == [1]


def test_a_snapshot_above_the_cut_never_comes_back() -> None:
    """It would speak of batches that another leader has since replaced."""
    files = disk()
    states = states_on(files)
    append(states, batch(0, 0))
    states.take_snapshot()
    append(states, batch(1, 1))
    states.take_snapshot()
    states.truncate_and_reload(Offset(0), Offset(1), 1000)
    for seed in range(20):
        assert states_on(files.crash_clone(Random(seed))).snapshots.offsets == [1]
    states.truncate_fully_and_start_at(Offset(50))
    assert (states.end_offset, states.is_empty) == (50, True)
    for seed in range(20):
        assert states_on(files.crash_clone(Random(seed))).snapshots.offsets == []


def test_expired_producers_are_not_loaded() -> None:
    files = disk()
    states = states_on(files)
    append(states, batch(0, 0, producer=1, time=1000))
    append(states, batch(0, 1, producer=2, time=1000, transactional=True))
    states.take_snapshot()
    again = states_on(files)
    again.truncate_and_reload(Offset(0), Offset(2), 1000 + DAY_MS)
    assert set(again.active) == {2}
    assert again.transactions.first_unstable_offset == 1
    again.check_invariants()


def test_deleting_records_keeps_the_producers() -> None:
    states = states_on()
    append(states, batch(0, 0, transactional=True))
    end_transaction(states, 1)
    states.advance_log_start_to(Offset(10))
    assert states.end_offset == 10
    assert states.transactions.first_unstable_offset is None
    assert append(states, batch(1, 10)) is None


# ── a model that remembers every batch ─────────────────────────────────────────────────────────


@dataclass
class Model:
    """The written batches of all producers, and rules told from them alone."""

    written: list[BatchHeader] = field(default_factory=list)
    ended: dict[int, int] = field(default_factory=dict)
    """First offset of an ended transaction -> offset of its marker."""
    open: dict[int, int] = field(default_factory=dict)
    """Producer -> first offset of its open transaction."""

    def of_epoch(self, producer: int, epoch: int) -> list[BatchHeader]:
        return [b for b in self.written if (b.producer_id, b.producer_epoch) == (producer, epoch)]

    def judge(self, new: BatchHeader) -> object:
        mine = [b for b in self.written if b.producer_id == new.producer_id]
        if not mine:
            return None
        epoch = mine[-1].producer_epoch
        data = [b for b in self.of_epoch(new.producer_id, epoch) if not b.is_control]
        if new.producer_epoch == epoch:
            for old in data[-5:]:
                if (old.base_sequence, old.record_count) == (new.base_sequence, new.record_count):
                    return old.base_offset
        if new.producer_epoch < epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        due = 0
        if new.producer_epoch == epoch and data:
            due = (data[-1].base_sequence + data[-1].record_count) % 2**31
        if new.base_sequence != due:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if new.producer_id in self.open and not new.is_transactional:
            return ErrorCode.INVALID_TXN_STATE
        return None

    def unstable(self) -> int | None:
        return min((*self.open.values(), *self.ended), default=None)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_states_equal_a_model_and_a_rebuild(seed: int) -> None:
    random = Random(seed)
    files, model, end = disk(), Model(), 0
    states = states_on(files)
    for _ in range(120):
        producer, count = random.randint(1, 3), random.randint(1, 3)
        mine = [b for b in model.written if b.producer_id == producer]
        last = mine[-1] if mine else None
        epoch = max(0, (last.producer_epoch if last else 0) + random.choice([0, 0, 0, 0, 1, -1]))
        data = [b for b in model.of_epoch(producer, epoch) if not b.is_control]
        sequence = (data[-1].base_sequence + data[-1].record_count) % 2**31 if data else 0
        if last is None:
            sequence = random.choice([0, 7, SEQUENCE_MAX - 1])
        if data and random.random() < 0.3:
            again = random.choice(data[-7:])
            sequence, count = again.base_sequence, again.record_count
        elif random.random() < 0.1:
            sequence = (sequence + random.choice([-1, 1])) % 2**31
        if random.random() < 0.15 and last is not None:
            header = batch(
                -1, end, producer=producer, epoch=last.producer_epoch,
                transactional=True, control=True,
            )  # fmt: skip
            completed = end_transaction(
                states, end, producer=producer, epoch=last.producer_epoch, abort=True
            )
            first = model.open.pop(producer, None)
            assert (completed.first_offset if completed else None) == first
            if first is not None:
                model.ended[first] = end
            model.written.append(header)
            end += 1
        else:
            transactional = random.random() < (0.9 if producer in model.open else 0.3)
            header = batch(
                sequence, end, count=count, producer=producer, epoch=epoch,
                transactional=transactional,
            )  # fmt: skip
            answer: object
            try:
                duplicate = append(states, header)
                answer = None if duplicate is None else duplicate.first_offset
            except ProtocolError as refused:
                answer = refused.code
            assert answer == model.judge(header)
            if answer is None:
                model.written.append(header)
                if transactional:
                    model.open.setdefault(producer, end)
                end += count
        if random.random() < 0.1:
            watermark = random.randint(max(0, end - 10), end)
            states.transactions.acknowledge_to(Offset(watermark))
            model.ended = {f: m for f, m in model.ended.items() if m >= watermark}
        if random.random() < 0.05:
            states.take_snapshot()
        assert states.transactions.first_unstable_offset == model.unstable()
        states.check_invariants()

    # I-05: the state equals one rebuilt from disk, after any crash, and the log.
    rebuilt = states_on(files.crash_clone(random))
    scan_from = rebuilt.truncate_and_reload(Offset(0), Offset(end), 1000).scan_from
    for header in model.written:
        if header.base_offset >= scan_from:
            if header.is_control:
                end_transaction(
                    rebuilt, header.base_offset,
                    producer=header.producer_id, epoch=header.producer_epoch,
                )  # fmt: skip
            else:
                rebuilt.update(header, header.base_offset, header.max_timestamp)
    rebuilt.check_invariants()
    assert rebuilt.first_undecided_offset == states.first_undecided_offset
    assert {p: describe(e)[:5] for p, e in rebuilt.active.items()} == {
        p: describe(e)[:5] for p, e in states.active.items()
    }
    for producer_id, entry in states.active.items():
        remembered = list(rebuilt.active[producer_id].batches)
        assert remembered == list(entry.batches)[-len(remembered) or 5 :]
        assert rebuilt.active[producer_id].next_sequence == entry.next_sequence
