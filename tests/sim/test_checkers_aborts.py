"""The rule about transaction indexes is found out when it is broken (I-04)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from strandline.records.builder import build_batch, build_control_batch
from strandline.records.control import ControlType, EndTransactionMarker
from strandline.records.record import Record
from strandline.sim.checkers.marked_aborts import MarkedAbort, aborts_in
from strandline.storage.log import Log
from strandline.storage.transaction_index import AbortedTransaction
from strandline.types import Offset, ProducerEpoch, ProducerId
from tests.sim.checked_world import Checked, model_of

WRITER = ProducerId(70)
OTHER = ProducerId(71)


@pytest.fixture
def checked() -> Iterator[Checked]:
    """Broker 1 has two transactions, one aborted and one committed, and a segment for each."""
    world = Checked()
    log = world.replica(1).log
    log.producers.verification_enabled = False  # no coordinator knows of them
    begin(world, WRITER)
    begin(world, OTHER)
    begin(world, WRITER, sequence=1)
    end(world, WRITER, ControlType.ABORT)
    log.roller.roll(world.world[1].now.wall_ms)
    end(world, OTHER, ControlType.COMMIT)
    yield world
    world.close()


def begin(world: Checked, producer: ProducerId, sequence: int = 0) -> None:
    log = world.replica(1).log
    records = build_batch(
        [Record(key=b"k", value=b"x", timestamp=world.world[1].now.wall_ms)],
        producer_id=producer,
        producer_epoch=ProducerEpoch(0),
        base_sequence=sequence,
        is_transactional=True,
    )
    log.appender.append_as_leader(
        bytearray(records), leader_epoch=log.leader_epochs.latest, now_ms=world.world[1].now.wall_ms
    )


def end(world: Checked, producer: ProducerId, how: ControlType) -> None:
    log, now_ms = world.replica(1).log, world.world[1].now.wall_ms
    marker = build_control_batch(
        EndTransactionMarker(how, coordinator_epoch=0),
        timestamp=now_ms,
        producer_id=producer,
        producer_epoch=ProducerEpoch(0),
    )
    log.appender.append_as_coordinator(
        bytearray(marker), leader_epoch=log.leader_epochs.latest, now_ms=now_ms
    )


def look(world: Checked) -> None:
    machine = world.world[1]
    world.checkers.rules.storage.check_aborts(machine, model_of(world, 1))


def aborts_of(log: Log) -> list[list[MarkedAbort]]:
    return [aborts for _, aborts in aborts_in(log)]


def test_markers_say_what_was_aborted_and_since_when(checked: Checked) -> None:
    log = checked.replica(1).log
    assert aborts_of(log) == [[MarkedAbort(3, WRITER, 0)], []]
    log.offsets.log_start_offset = Offset(1)
    assert aborts_of(log) == [[MarkedAbort(3, WRITER, 2)], []]
    log.offsets.log_start_offset = Offset(3)
    assert aborts_of(log) == [[MarkedAbort(3, WRITER, None)], []]


def test_an_index_that_tells_the_truth(checked: Checked) -> None:
    look(checked)
    assert checked.found == []
    assert checked.checkers.counters["aborts looked up"] == 1


def test_an_index_that_is_gone(checked: Checked) -> None:
    checked.world[1].disk.files.remove(checked.replica(1).log.segments.first.transaction_index.path)
    look(checked)
    assert "It has None for MarkedAbort(offset=3" in checked.only("I-04").what


def test_an_index_that_ends_inside_an_entry(checked: Checked) -> None:
    index = checked.replica(1).log.segments.first.transaction_index
    checked.world[1].disk.files.open(index.path).truncate(20)
    look(checked)
    assert "ends inside an entry" in checked.only("I-04").what


@pytest.mark.parametrize("wrong", ["another producer", "a later beginning"])
def test_an_entry_that_lies(checked: Checked, wrong: str) -> None:
    index = checked.replica(1).log.segments.first.transaction_index
    producer, first = (OTHER, 0) if wrong == "another producer" else (WRITER, 2)
    index.replace([AbortedTransaction(producer, Offset(first), Offset(3), Offset(1))])
    look(checked)
    assert "for MarkedAbort(offset=3" in checked.only("I-04").what


def test_an_abort_that_was_a_commit(checked: Checked) -> None:
    log = checked.replica(1).log
    committed = AbortedTransaction(OTHER, Offset(1), Offset(4), Offset(5))
    log.segments.index_abort(log.active, committed)
    look(checked)
    assert "of no marker" in checked.only("I-04").what
