"""Where two logs part: each row of the table in the specification (1.5), from both sides."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import ErrorCode, ProtocolError
from strandline.replication.policies import Policies, TruncateBy
from strandline.replication.truncation import (
    EpochEnd,
    Target,
    divergence,
    first_truncation,
    truncation_target,
)
from strandline.storage.leader_epochs import LeaderEpochs
from strandline.storage.memory_files import MemoryFiles
from strandline.types import NO_EPOCH, NO_OFFSET, LeaderEpoch, Offset


class Table:
    """The epochs of a log that ends at `end`, in the table that real logs have."""

    def __init__(self, end: int, *entries: tuple[int, int]) -> None:
        files = MemoryFiles()
        files.make_directory("/d")
        self.end = Offset(end)
        self.epochs = LeaderEpochs(files, "/d/epochs")
        for epoch, start in entries:
            self.epochs.assign(LeaderEpoch(epoch), Offset(start))

    @property
    def latest(self) -> LeaderEpoch:
        return self.epochs.latest

    def end_offset_for_epoch(self, epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset]:
        return self.epochs.end_offset_for(epoch, self.end)

    def truncate(self, end: int) -> None:
        """To records and epochs below `end`."""
        self.end = Offset(min(end, self.end))
        self.epochs.truncate_from_end(self.end)


def target(epoch: int, end: int, table: Table, *, high_watermark: int = 0) -> Target:
    return truncation_target(
        LeaderEpoch(epoch),
        Offset(end),
        history=table,
        high_watermark=Offset(high_watermark),
        log_end_offset=table.end,
    )


def test_a_leader_without_epochs_leaves_only_the_high_watermark() -> None:
    assert target(0, NO_OFFSET, Table(9, (0, 0)), high_watermark=4) == Target(Offset(4), True)


def test_an_end_without_an_epoch_is_taken_as_it_is() -> None:
    assert target(NO_EPOCH, 7, Table(9, (0, 0))) == Target(Offset(7), True)
    assert target(NO_EPOCH, 70, Table(9, (0, 0))) == Target(Offset(9), True)


@pytest.mark.parametrize(("leader_end", "expected"), [(3, 3), (6, 5), (50, 5)])
def test_a_common_epoch_ends_where_it_ends_first(leader_end: int, expected: int) -> None:
    table = Table(9, (0, 0), (2, 5))
    assert target(0, leader_end, table) == Target(Offset(expected), True)


def test_r02_an_unknown_epoch_leads_to_the_one_before_and_another_question() -> None:
    table = Table(9, (0, 0), (1, 3), (4, 6))
    assert target(2, 5, table) == Target(Offset(6), False)
    assert target(2, 90, table) == Target(Offset(6), False)


def test_without_any_epoch_the_leaders_end_counts() -> None:
    assert target(3, 4, Table(9)) == Target(Offset(4), True)


def test_an_epoch_older_than_all_own_ones_leaves_nothing_of_them() -> None:
    """The records here are of later epochs than the leader's, so none of them can be the same."""
    assert target(2, 8, Table(10, (3, 5))) == Target(Offset(5), True)


def test_r12_truncating_to_the_end_still_has_an_effect() -> None:
    table = Table(5, (0, 0), (1, 5))
    assert target(0, 5, table) == Target(Offset(5), True)
    table.truncate(5)
    assert table.latest == 0


def test_r06_a_leader_answers_for_epochs_from_before_its_first_entry() -> None:
    """KAFKA-7415: where its own first epoch starts, since those records are gone."""
    leader = Table(9, (5, 4))
    found = divergence(LeaderEpoch(2), Offset(6), log_start_offset=Offset(4), history=leader)
    assert found == EpochEnd(LeaderEpoch(2), Offset(4))


def test_r06_an_epoch_counts_from_the_election_on_even_without_a_record() -> None:
    """Else a follower with a later tail than the leader's last record would not be told."""
    follower_epoch = LeaderEpoch(1)
    leader = Table(3, (0, 0), (2, 3))
    found = divergence(follower_epoch, Offset(3), log_start_offset=Offset(0), history=leader)
    assert found == EpochEnd(LeaderEpoch(0), Offset(3))


@pytest.mark.parametrize(
    ("last_epoch", "offset", "found"),
    [
        (NO_EPOCH, 6, None),
        (0, 3, None),
        (0, 4, None),
        (0, 5, EpochEnd(LeaderEpoch(0), Offset(4))),
        (1, 3, EpochEnd(LeaderEpoch(0), Offset(4))),
        (2, 7, None),
        (2, 9, None),
        (2, 10, EpochEnd(LeaderEpoch(2), Offset(9))),
    ],
)
def test_the_leader_compares(last_epoch: int, offset: int, found: EpochEnd | None) -> None:
    leader = Table(9, (0, 0), (2, 4))
    answer = divergence(
        LeaderEpoch(last_epoch), Offset(offset), log_start_offset=Offset(0), history=leader
    )
    assert answer == found


@pytest.mark.parametrize(("last_epoch", "offset"), [(7, 9), (0, 1)])
def test_the_leader_refuses_what_it_cannot_compare(last_epoch: int, offset: int) -> None:
    with pytest.raises(ProtocolError) as refusal:
        divergence(
            LeaderEpoch(last_epoch),
            Offset(offset),
            log_start_offset=Offset(2),
            history=Table(9, (0, 0), (2, 4)),
        )
    assert refusal.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_new_follower_cuts_nothing_before_it_has_asked() -> None:
    def first(latest: int, policies: Policies | None = None) -> Target | None:
        return first_truncation(
            LeaderEpoch(latest),
            high_watermark=Offset(3),
            log_end_offset=Offset(5),
            policies=policies or Policies(),
        )

    assert first(0) is None
    assert first(NO_EPOCH) == Target(Offset(3), True)
    assert first(0, Policies(truncate_by=TruncateBy.HIGH_WATERMARK)) == Target(Offset(3), True)


def test_nothing_above_the_high_watermark_is_nothing_to_cut() -> None:
    found = first_truncation(NO_EPOCH, high_watermark=Offset(5), log_end_offset=Offset(5))
    assert found is None


Lineage = list[tuple[int, int]]
"""Epochs and how many records each of them wrote."""


def _records(lineage: Lineage) -> list[int]:
    return [epoch for epoch, count in lineage for _ in range(count)]


def _table(records: list[int]) -> Table:
    starts = {epoch: records.index(epoch) for epoch in sorted(set(records))}
    return Table(len(records), *starts.items())


counts = st.integers(0, 4)


@given(
    common=st.lists(counts, max_size=3),
    own=st.lists(counts, max_size=3),
    leaders=st.lists(counts, max_size=3),
    own_first=st.booleans(),
)
def test_r01_r02_reconciling_ends_with_the_common_prefix(
    common: list[int], own: list[int], leaders: list[int], own_first: bool
) -> None:
    """Any two histories with a common past: after at most a round per epoch they agree (I-20)."""
    shared = list(enumerate(common))
    base = len(common)
    # The two futures have different epochs, interleaved: odd and even numbers.
    mine = [(base + 2 * i + (0 if own_first else 1), n) for i, n in enumerate(own)]
    its = [(base + 2 * i + (1 if own_first else 0), n) for i, n in enumerate(leaders)]
    follower, leader = _records(shared + mine), _records(shared + its)
    leading = _table(leader)
    leading.epochs.assign(LeaderEpoch(base + 20), leading.end)
    table = _table(follower)
    for _ in range(len(table.epochs.entries) + 1):
        before = (table.latest, table.end)
        found = divergence(table.latest, table.end, log_start_offset=Offset(0), history=leading)
        if found is None:
            break
        goal = truncation_target(
            *found, history=table, high_watermark=Offset(0), log_end_offset=table.end
        )
        table.truncate(goal.offset)
        assert (table.latest, table.end) < before
    else:
        pytest.fail("no end")
    agreed = len(_records(shared))
    assert follower[: table.end] == leader[: table.end]
    assert table.end == min(agreed, len(follower)) or table.end == len(follower)
