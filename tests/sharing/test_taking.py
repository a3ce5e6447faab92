"""Records that were delivered often are given by fewer at once, so that a worker that fails because
of one of them takes few others along (KAFKA-17541)."""

from __future__ import annotations

import pytest

from strandline.protocol.acknowledge_type import AckType
from strandline.sharing.partition import SharePartition
from strandline.sharing.runs import RecordState, StateBatch
from strandline.sharing.values import AckBatch, Acquired, Limits, LogBatch
from strandline.types import Instant

NOW = Instant(0, 0)
DEFAULTS = Limits()
BATCH = LogBatch(0, 99)


def acquired(
    partition: SharePartition,
    *batches: LogBatch,
    limits: Limits = DEFAULTS,
    records_max: int = 500,
    is_strict: bool = False,
) -> list[Acquired]:
    return partition.acquire(
        "worker", batches, limits, NOW, records_max=records_max, is_strict=is_strict
    )


def accept(partition: SharePartition, given: list[Acquired], limits: Limits) -> None:
    batches = [AckBatch(each.first, each.last, [AckType.ACCEPT]) for each in given]
    partition.acknowledge("worker", batches, limits, NOW)
    write = partition.next_write()
    assert write is not None
    partition.written(write.write_id, is_stored=True)


@pytest.mark.parametrize("deliveries_max", [3, 5, 10])
def test_only_the_record_that_workers_fail_because_of_is_given_up(deliveries_max: int) -> None:
    """All that was given with it five times was given up as well."""
    partition, limits = SharePartition(0), Limits(deliveries_max=deliveries_max)
    done: set[int] = set()
    while partition.first_offset <= BATCH.last:
        given = acquired(partition, BATCH, limits=limits)
        offsets = {each for first, last, _ in given for each in range(first, last + 1)}
        assert offsets
        if 42 in offsets:
            partition.release("worker", limits)
        else:
            accept(partition, given, limits)
            done |= offsets
    assert done == set(range(100)) - {42}


def test_a_batch_is_halved_from_half_of_the_deliveries_on_and_ends_with_single_records() -> None:
    partition, limits = SharePartition(0), Limits(deliveries_max=10)
    given = []
    for _ in range(limits.deliveries_max):
        given += acquired(partition, BATCH, limits=limits)
        partition.release("worker", limits)
    lasts = [99] * 5 + [49, 24, 11, 5, 0]
    assert given == [(0, last, number) for number, last in enumerate(lasts, 1)]


def test_two_deliveries_are_whole() -> None:
    partition, limits = SharePartition(0), Limits(deliveries_max=2)
    for number in (1, 2):
        assert acquired(partition, BATCH, limits=limits) == [(0, 99, number)]
        partition.release("worker", limits)
    assert partition.first_offset == 100


def loaded(*states: tuple[int, int, int]) -> SharePartition:
    """Available records, by first and last offset and deliveries."""
    batches = [StateBatch(first, last, RecordState.AVAILABLE, n) for first, last, n in states]
    return SharePartition.loaded(0, batches, log_start=0, log_end=1000)


@pytest.mark.parametrize("batches", [[LogBatch(0, 29)], [LogBatch(n, n + 9) for n in (0, 10, 20)]])
def test_records_that_were_delivered_often_go_without_others(batches: list[LogBatch]) -> None:
    partition = loaded((0, 9, 1), (10, 19, 3), (20, 29, 0))
    assert acquired(partition, *batches) == [(0, 9, 2)]
    half = min(10, (batches[0].last + 1) // 2)
    assert acquired(partition, *batches) == [(10, 9 + half, 4)]
    if half < 10:
        assert acquired(partition, *batches) == [(10 + half, 19, 4)]
    assert acquired(partition, *batches) == [(20, 29, 1)]


def test_a_last_attempt_is_made_after_the_others() -> None:
    partition = loaded((0, 9, 3), (10, 10, 4), (11, 19, 3))
    batch = LogBatch(0, 39)
    given = [acquired(partition, batch) for _ in range(4)]
    assert given == [[(0, 9, 4)], [(10, 10, 5)], [(11, 19, 4)], [(20, 39, 1)]]


def test_a_member_that_asks_for_fewer_gets_fewer() -> None:
    partition = loaded((0, 99, 3))
    assert acquired(partition, BATCH, records_max=7, is_strict=True) == [(0, 6, 4)]
