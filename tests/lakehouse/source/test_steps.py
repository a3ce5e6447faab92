"""One step of a stream, decided without a cluster: positions, ranges, limits, splits, losses."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.lakehouse.reading.catalogue import End, EpochEnd, TopicFacts
from strandline.lakehouse.reading.settings import OffsetRange
from strandline.lakehouse.source.facts import Facts
from strandline.lakehouse.source.losses import DataLost, Losses
from strandline.lakehouse.source.options import SplitLimits
from strandline.lakehouse.source.positions import (
    BadPositions,
    Position,
    Positions,
    ranges_between,
)
from strandline.lakehouse.source.progress import next_positions, shares
from strandline.lakehouse.source.splits import split
from strandline.types import TopicPartition

T, OTHER = UUID(int=1), UUID(int=2)
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def facts(*ends: int, topic_id: UUID | None = T, epoch: int = 5, earliest: int = 0) -> Facts:
    """A topic whose partitions end there."""
    partitions = [TopicPartition("t", number) for number in range(len(ends))]
    return Facts(
        {"t": TopicFacts("t", topic_id, tuple(range(len(ends))))},
        dict.fromkeys(partitions, earliest),
        {each: End(end, epoch) for each, end in zip(partitions, ends, strict=True)},
    )


def at(*offsets: int, epoch: int = 5) -> Positions:
    return Positions.of(
        {"t": T}, {TopicPartition("t", n): (each, epoch) for n, each in enumerate(offsets)}
    )


def step(start: Positions, there: Facts, at_most: int | None = None) -> Positions:
    return next_positions(start, there, Losses(fails=True), at_most=at_most)


def bounds(start: Positions, end: Positions) -> list[tuple[str, int, int, int]]:
    return [
        (each.topic, each.partition, each.start, each.end) for each in ranges_between(start, end)
    ]


def test_documents_are_canonical_and_read_back() -> None:
    positions = Positions(
        {"u": None, "t": T},
        {T1: Position(7, 2), T0: Position(9, -1, 3), TopicPartition("u", 10): Position(1)},
    )
    text = json.dumps(positions.document())
    assert Positions.parse(text) == positions
    assert json.dumps(Positions.parse(json.loads(text)).document()) == text
    assert text == (
        '{"version": 1, "topics": {"t": {"id": "AAAAAAAAAAAAAAAAAAAAAQ", "partitions": '
        '{"0": {"offset": 9, "epoch": -1, "from": 3}, "1": {"offset": 7, "epoch": 2}}}, '
        '"u": {"id": "", "partitions": {"10": {"offset": 1, "epoch": -1}}}}}'
    )


@pytest.mark.parametrize(
    "text", ["{", "[]", "{}", '{"t": {"0": 5}}', '{"version": 1, "topics": {"t": {"id": "?"}}}']
)
def test_other_documents_are_refused(text: str) -> None:
    with pytest.raises(BadPositions, match="not those of this source"):
        Positions.parse(text)
    with pytest.raises(BadPositions, match="reads version 1"):
        Positions.parse('{"version": 2}')


def test_a_step_takes_what_there_is_and_rests_when_there_is_nothing() -> None:
    end = step(at(10, 20), facts(15, 20))
    assert end == at(15, 20)
    assert bounds(at(10, 20), end) == [("t", 0, 10, 15)]
    assert step(end, facts(15, 20)) == end
    assert bounds(end, end) == []


def test_an_unchanged_partition_keeps_its_entry_when_the_leader_changes() -> None:
    """Else every election would make an empty batch."""
    start = at(10, 20)
    later = replace(facts(10, 25, epoch=6), epoch_ends={T0: EpochEnd(5, 10), T1: EpochEnd(5, 20)})
    end = step(start, later)
    assert (end.at[T0], end.at[T1]) == (Position(10, 5), Position(25, 6))


def test_a_new_partition_begins_at_its_first_record_and_says_from_where() -> None:
    start, end = at(10), step(at(10), facts(10, 4))
    assert end.at[T1] == Position(4, 5, 0)
    assert bounds(start, end) == [("t", 1, 0, 4)]
    after = step(end, facts(10, 6))
    assert after.at[T1] == Position(6, 5)
    assert bounds(end, after) == [("t", 1, 4, 6)]
    # A topic that is new to the query may begin anywhere; its first step remembers where.
    found = step(Positions(), facts(9, earliest=7))
    assert bounds(Positions(), found) == [("t", 0, 7, 9)]


LOSSES = {
    "gone": (Facts(), r"Topic 't' is gone: whatever came after offset 10 of partition t-0"),
    "made again": (facts(3, topic_id=OTHER), "Topic 't' was deleted and made again"),
    "fewer": (replace(facts(), topics=facts(1).topics), "no partition t-0 any more"),
    "retention": (facts(30, earliest=12), "begins at offset 12: the records from 10 on"),
    "diverged": (
        replace(facts(30, epoch=6), epoch_ends={T0: EpochEnd(5, 8)}),
        "up to offset 10 in leader epoch 5, but its log has only 8 of that",
    ),
    "shorter": (
        replace(facts(6), epoch_ends={T0: EpochEnd(5, 6)}),
        "up to offset 10 in leader epoch 5, but its log has only 6 of that",
    ),
}
BEHIND = {"gone": [], "made again": [(0, 3)], "fewer": [], "retention": [(12, 30)]}


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_fails_the_query_or_is_told_and_passed(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    there, sentence = LOSSES[name]
    with pytest.raises(DataLost, match=sentence):
        step(at(10), there)
    forgiving = Losses(fails=False)
    end = next_positions(at(10), there, forgiving, at_most=None)
    expected = BEHIND.get(name, [(8, 30)] if name == "diverged" else [])
    assert [(begin, until) for _, _, begin, until in bounds(at(10), end)] == expected
    next_positions(at(10), there, forgiving, at_most=None)
    (told,) = caplog.get_records("call")
    assert told.levelno == logging.WARNING
    assert "failOnDataLoss is false" in told.getMessage()
    # Behind the loss the stream goes on as if nothing had been.
    assert step(end, replace(there, epoch_ends={})) == end


def test_a_new_partition_that_has_lost_records_already_is_a_loss() -> None:
    with pytest.raises(DataLost, match="t-1 is new and begins at offset 2"):
        step(at(10), replace(facts(10, 4), earliest={T0: 0, T1: 2}))


def test_a_high_watermark_that_lags_after_an_election_is_no_loss() -> None:
    later = replace(facts(8, epoch=6), epoch_ends={T0: EpochEnd(5, 10)})
    assert step(at(10), later) == at(10)


def test_a_cluster_without_ids_and_epochs_is_read_as_well() -> None:
    start = Positions.of({"t": None}, {T0: (10, -1)})
    end = step(start, facts(12, topic_id=None, epoch=-1))
    assert bounds(start, end) == [("t", 0, 10, 12)]
    with pytest.raises(DataLost, match="has only 4 of that"):
        step(start, facts(4, topic_id=None, epoch=-1))


@given(st.lists(st.integers(1, 10**12), min_size=1, max_size=50), st.integers(1, 10**12))
def test_limits_are_shared_in_proportion_and_no_partition_starves(
    sizes: list[int], limit: int
) -> None:
    waiting = {TopicPartition("t", number): size for number, size in enumerate(sizes)}
    taken = shares(waiting, limit)
    assert all(1 <= taken[each] <= size for each, size in waiting.items())
    assert sum(taken.values()) <= max(limit + len(sizes), 0)
    if sum(sizes) <= limit:
        assert taken == waiting
    assert shares(waiting, None) == waiting


@given(
    st.lists(st.tuples(st.integers(0, 10**9), st.integers(1, 500)), max_size=8),
    st.none() | st.integers(1, 60),
    st.none() | st.integers(1, 100),
)
def test_splits_cover_every_offset_once_in_order(
    parts: list[tuple[int, int]], at_least: int | None, longest: int | None
) -> None:
    ranges = [
        OffsetRange(topic="t", partition=number, start=start, end=start + length, topic_id=T)
        for number, (start, length) in enumerate(parts)
    ]
    pieces = split(ranges, SplitLimits(at_least, longest))
    offsets = [
        (each.partition, offset) for each in ranges for offset in range(each.start, each.end)
    ]
    cut = [(each.partition, offset) for each in pieces for offset in range(each.start, each.end)]
    assert cut == offsets
    assert all(each.start < each.end and each.topic_id == T for each in pieces)
    assert len(pieces) >= min(at_least or 0, len(offsets))
    assert all(each.end - each.start <= (longest or 500) for each in pieces)
