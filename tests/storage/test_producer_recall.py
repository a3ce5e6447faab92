"""C-6: the five newest batches of a producer are known again, whatever was loaded from a snapshot.

A snapshot names a producer's last batch only, as in Kafka. The four before it are found in the log.
"""

from __future__ import annotations

from typing import Any

import pytest

from strandline.config.topic import TopicConfig
from strandline.errors import ErrorCode, ProtocolError
from strandline.records.builder import build_batch
from strandline.records.record import Record
from strandline.storage import producer_recall
from strandline.storage.producer_snapshot import ProducerSnapshots
from strandline.types import LeaderEpoch, Offset, ProducerEpoch, ProducerId
from tests.storage.compaction.conftest import COMPACTED, compact

EPOCH = LeaderEpoch(0)
LARGE = TopicConfig()


def _send(log: Any, kit: Any, sequence: int, *, producer: int = 9, epoch: int = 0) -> Any:
    batch = kit.batch(b"%d" % sequence, producer_id=producer, epoch=epoch, sequence=sequence)
    return log.appender.append_as_leader(batch, leader_epoch=EPOCH, now_ms=kit.now_ms)


def _send_refused(log: Any, kit: Any, sequence: int, **more: int) -> None:
    before = log.log_end_offset
    with pytest.raises(ProtocolError) as refused:
        _send(log, kit, sequence, **more)
    assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.log_end_offset == before


def _assert_known_again(log: Any, kit: Any, offsets: dict[int, int], **more: int) -> None:
    for sequence, offset in offsets.items():
        again = _send(log, kit, sequence, **more)
        assert (again.base_offset, again.is_duplicate) == (offset, True), sequence
    log.check()


def test_c6_five_batches_are_known_again_after_a_clean_restart(world: Any, kit: Any) -> None:
    log = world.create(LARGE)
    offsets = {sequence: _send(log, kit, sequence).base_offset for sequence in range(8)}
    log = world.reopen(log)
    _send_refused(log, kit, 2)
    _assert_known_again(log, kit, {s: offsets[s] for s in range(3, 8)})
    _send_refused(log, kit, 9)
    assert not _send(log, kit, 8).is_duplicate
    _send_refused(log, kit, 3)
    _assert_known_again(log, kit, {4: 4, 8: 8})


def test_c6_any_of_the_five_may_be_the_first_to_come_again(world: Any, kit: Any) -> None:
    log = world.create(LARGE)
    for sequence in range(5):
        _send(log, kit, sequence)
    for sequence in range(5):
        log = world.reopen(log)
        _assert_known_again(log, kit, {sequence: sequence})
    log = world.reopen(log)
    assert not _send(log, kit, 5).is_duplicate
    _assert_known_again(log, kit, {s: s for s in range(1, 6)})
    _send_refused(log, kit, 0)


def test_c6_they_are_found_over_segments_and_between_other_batches(world: Any, kit: Any) -> None:
    log = world.create()  # 1,000 bytes a segment
    offsets = {}
    for sequence in range(6):
        offsets[sequence] = _send(log, kit, sequence).base_offset
        _send(log, kit, sequence, producer=10)
        kit.fill(log, 9)
    assert len(log.segments) > 6
    for restart in (world.reopen, world.kill):
        log = restart(log)
        _send_refused(log, kit, 0)
        _assert_known_again(log, kit, {s: offsets[s] for s in range(1, 6)})
        _assert_known_again(log, kit, {s: offsets[s] + 1 for s in range(1, 6)}, producer=10)


def test_c6_batches_of_another_epoch_are_not_taken_for_those_of_this(world: Any, kit: Any) -> None:
    log = world.create(LARGE)
    for sequence in range(3):
        _send(log, kit, sequence)
    for sequence in range(2):
        _send(log, kit, sequence, epoch=1)
    log = world.reopen(log)
    _assert_known_again(log, kit, {0: 3, 1: 4}, epoch=1)
    _send_refused(log, kit, 3, epoch=1)
    with pytest.raises(ProtocolError) as refused:
        _send(log, kit, 2)
    assert refused.value.code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_c6_batches_before_a_truncation_are_known_and_those_cut_are_not(
    world: Any, kit: Any
) -> None:
    log = world.create()
    offsets = {}
    for sequence in range(7):
        offsets[sequence] = _send(log, kit, sequence).base_offset
        kit.fill(log, 4)
    log = world.reopen(log)
    log.truncation.truncate_to(Offset(offsets[6]), kit.now_ms)
    _assert_known_again(log, kit, {s: offsets[s] for s in range(1, 6)})
    after = _send(log, kit, 6)
    assert (after.base_offset, after.is_duplicate) == (offsets[6], False)


def test_c6_batches_below_the_log_start_are_gone(world: Any, kit: Any) -> None:
    log = world.create(LARGE)
    for sequence in range(5):
        _send(log, kit, sequence)
    log.advance_high_watermark_to(Offset(5))
    log.retention.delete_records_to(Offset(2))
    log = world.reopen(log)
    _send_refused(log, kit, 1)
    _assert_known_again(log, kit, {2: 2, 3: 3, 4: 4})


def test_c6_segments_that_retention_removed_are_not_looked_for(world: Any, kit: Any) -> None:
    log = world.create(LARGE)
    for sequence in range(4):
        _send(log, kit, sequence)
    log.roller.roll(kit.now_ms)
    _send(log, kit, 4)
    log.advance_high_watermark_to(Offset(5))
    log.retention.delete_records_to(Offset(4))
    assert log.retention.drop_below_start(kit.now_ms)
    log = world.reopen(log)
    assert log.first_segment_offset == 4
    _send_refused(log, kit, 3)
    _assert_known_again(log, kit, {4: 4})
    assert not _send(log, kit, 5).is_duplicate


def test_c6_batches_that_compaction_removed_are_not_known_and_those_left_are(
    world: Any, kit: Any
) -> None:
    log = world.create(COMPACTED)

    def send(sequence: int, key: bytes) -> Any:
        records = [Record(timestamp=kit.now_ms, key=key, value=b"%d" % sequence)]
        batch = bytearray(
            build_batch(
                records,
                base_sequence=sequence,
                producer_id=ProducerId(9),
                producer_epoch=ProducerEpoch(0),
            )
        )
        return log.appender.append_as_leader(batch, leader_epoch=EPOCH, now_ms=kit.now_ms)

    keys = [b"a", b"b", b"a", b"a", b"c"]
    for sequence, key in enumerate(keys):
        send(sequence, key)
        log.advance_high_watermark_to(log.log_end_offset)
    log.roller.roll(kit.now_ms)
    assert compact(world.files, log) == 5
    log = world.reopen(log)
    for sequence in (0, 2):
        with pytest.raises(ProtocolError) as refused:
            send(sequence, keys[sequence])
        assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    for sequence in (1, 3, 4):
        assert send(sequence, keys[sequence])[:4] == (sequence, sequence, kit.now_ms, True)
    assert not send(5, b"d").is_duplicate


def test_c6_sequences_that_wrapped_are_known_again(world: Any, kit: Any) -> None:
    log = world.create(LARGE)
    first = 2**31 - 3
    sequences = [(first + i) & 0x7FFF_FFFF for i in range(5)]
    for sequence in sequences:
        _send(log, kit, sequence)
    log = world.reopen(log)
    _assert_known_again(log, kit, {sequence: at for at, sequence in enumerate(sequences)})
    _send_refused(log, kit, 3)


def test_c6_a_follower_that_becomes_leader_knows_what_it_copied_before_its_restart(
    world: Any, kit: Any
) -> None:
    log = world.create(LARGE)
    for at in range(5):
        batch = kit.batch(b"x", producer_id=9, epoch=0, sequence=at, base_offset=at, leader_epoch=0)
        log.appender.append_as_follower(batch, kit.now_ms)
    log = world.reopen(log)
    log.leader_epochs.assign(LeaderEpoch(1), log.log_end_offset)
    _assert_known_again(log, kit, {at: at for at in range(5)})


def test_c6_nothing_is_read_for_a_producer_that_goes_on(
    world: Any, kit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = world.create(LARGE)
    for sequence in range(5):
        _send(log, kit, sequence)
    log = world.reopen(log)
    walks: list[int] = []
    stretches = producer_recall._stretches_back

    def counted(*arguments: Any) -> Any:
        walks.append(1)
        return stretches(*arguments)

    monkeypatch.setattr(producer_recall, "_stretches_back", counted)
    for sequence in range(5, 8):
        _send(log, kit, sequence)
    _send_refused(log, kit, 100)
    assert not walks
    _assert_known_again(log, kit, {4: 4})
    _send_refused(log, kit, 0)
    _send_refused(log, kit, 1)
    assert len(walks) == 1


def test_c6_the_walk_back_has_an_end(world: Any, kit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_recall, "HEADERS_MAX", 20)
    monkeypatch.setattr(producer_recall, "_STRETCH_MIN", 1000)
    log = world.create(LARGE)
    for sequence in range(4):
        _send(log, kit, sequence)
    kit.fill(log, 100)
    last = _send(log, kit, 4).base_offset
    log = world.reopen(log)
    _send_refused(log, kit, 3)
    _assert_known_again(log, kit, {4: last})


def test_c6_a_snapshot_without_its_batches_answers_as_before(world: Any, kit: Any) -> None:
    """The snapshot is right, but what lies before its last batch is not this producer's."""
    log = world.create(LARGE)
    kit.fill(log, 3)
    _send(log, kit, 7)
    log = world.reopen(log)
    assert ProducerSnapshots(world.files, world.directory).newest is None  # not scanned yet
    _send_refused(log, kit, 6)
    _assert_known_again(log, kit, {7: 3})


def test_c6_damage_in_front_of_the_last_batch_ends_the_walk(world: Any, kit: Any) -> None:
    log = world.create(LARGE)
    for sequence in range(5):
        _send(log, kit, sequence)
    third = log.active.find(2)
    assert third is not None
    log = world.reopen(log)
    log.active.log.write_at(third[0] + 16, b"\x07")  # no known format of a batch
    _send_refused(log, kit, 1)
    _assert_known_again(log, kit, {4: 4})
    assert log.failure is None


def test_a_truncation_to_where_a_snapshot_was_taken_forgets_what_came_behind_it(
    world: Any, kit: Any
) -> None:
    log = world.create(LARGE)
    _send(log, kit, 0)
    log.roller.roll(kit.now_ms)
    at = log.log_end_offset
    _send(log, kit, 1)
    assert log.truncation.truncate_to(at, kit.now_ms)
    (entry,) = log.producers.active.values()
    assert entry.next_sequence == 1
