"""The leader's rules: high watermark, progress, joining, leaving, the controller's word."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from strandline.errors import ErrorCode, InvariantViolated, ProtocolError
from strandline.replication.in_sync import Committed, Expanding, Shrinking
from strandline.replication.leader import Leader
from strandline.replication.policies import Policies, RecordLag
from strandline.replication.progress import NEVER_MS
from strandline.types import NO_OFFSET, BrokerId, LeaderEpoch, Offset
from tests.current import current

A, B, C, D = (BrokerId(number) for number in (1, 2, 3, 4))
LAG_MS = 30_000
NOW_MS = 0
"""Monotonic clocks may start at 0: that must not look like a recent fetch."""


def make_leader(
    replicas: Sequence[BrokerId] = (A, B, C),
    in_sync: Sequence[BrokerId] | None = None,
    *,
    start: int = 0,
    log_start: int = 0,
    epoch: int = 1,
    min_in_sync: int = 1,
    now_ms: int = NOW_MS,
    has_eligible: bool = False,
    former: Leader | None = None,
    policies: Policies | None = None,
) -> Leader:
    return Leader(
        A,
        leader_epoch=LeaderEpoch(epoch),
        partition_epoch=5,
        start_offset=Offset(start),
        replicas=replicas,
        in_sync=replicas if in_sync is None else in_sync,
        lag_max_ms=LAG_MS,
        min_in_sync=min_in_sync,
        now_ms=now_ms,
        log_start_offset=Offset(log_start),
        has_eligible=has_eligible,
        former=former,
        policies=policies or Policies(),
    )


def fetch(
    leader: Leader,
    follower: BrokerId,
    offset: int,
    *,
    end: int,
    now_ms: int = NOW_MS,
    epoch: int = 7,
    start: int = 0,
) -> bool:
    return leader.fetched(
        follower,
        offset=Offset(offset),
        log_start_offset=Offset(start),
        broker_epoch=epoch,
        log_end_offset=Offset(end),
        now_ms=now_ms,
    )


def advance(
    leader: Leader, watermark: int, end: int, now_ms: int = NOW_MS, *, may_join: bool = True
) -> int:
    return leader.next_high_watermark(
        Offset(watermark), Offset(end), now_ms, may_join=lambda _: may_join
    )


# -- The high watermark ----------------------------------------------------------------------


def test_a_single_replica_commits_what_it_writes() -> None:
    assert advance(make_leader((A,)), 0, 12) == 12


def test_a_new_leader_waits_until_every_member_has_fetched() -> None:
    leader = make_leader(start=10)
    assert leader.progress[B].log_end_offset == NO_OFFSET
    fetch(leader, B, 10, end=10)
    assert advance(leader, 4, 10) == 4
    fetch(leader, C, 8, end=10)
    assert advance(leader, 4, 10) == 8


def test_the_leaders_own_end_counts() -> None:
    leader = make_leader()
    fetch(leader, B, 3, end=3)
    fetch(leader, C, 3, end=3)
    assert advance(leader, 0, 2) == 2


def test_it_never_goes_back() -> None:
    leader = make_leader()
    fetch(leader, B, 3, end=9)
    fetch(leader, C, 5, end=9)
    assert advance(leader, 4, 9) == 4


def test_a_caught_up_outsider_that_may_join_is_waited_for() -> None:
    """KAFKA-4485; while another change is in flight it cannot be proposed yet."""
    leader = make_leader((A, B, C), (A, B))
    fetch(leader, C, 4, end=4)
    fetch(leader, B, 6, end=6)
    assert advance(leader, 0, 6) == 4
    assert advance(leader, 0, 6, LAG_MS) == 4
    assert advance(leader, 0, 6, LAG_MS + 1) == 6


def test_r35_an_outsider_that_may_not_join_is_not_waited_for() -> None:
    leader = make_leader((A, B, C), (A, B))
    fetch(leader, C, 4, end=4)
    fetch(leader, B, 6, end=6)
    assert advance(leader, 0, 6, may_join=False) == 6


def test_an_outsider_from_before_this_epoch_is_not_waited_for() -> None:
    leader = make_leader((A, B, C), (A, B))
    fetch(leader, B, 6, end=6)
    assert leader.progress[C].last_caught_up_ms == NEVER_MS
    assert advance(leader, 0, 6) == 6


def test_below_the_minimum_nothing_is_committed() -> None:
    leader = make_leader((A, B, C), (A,), min_in_sync=2)
    assert not leader.has_min_in_sync
    assert advance(leader, 3, 9) == 3
    leader.min_in_sync = 1
    assert advance(leader, 3, 9) == 9


def test_the_minimum_is_at_most_the_number_of_replicas() -> None:
    leader = make_leader((A,), min_in_sync=2)
    assert leader.has_min_in_sync
    assert leader.effective_min_in_sync == 1
    assert advance(leader, 0, 5) == 5


def test_a_proposed_member_counts_for_the_acknowledgement_but_not_for_the_minimum() -> None:
    leader = make_leader((A, B), (A,), min_in_sync=2)
    fetch(leader, B, 0, end=0)
    assert leader.maybe_expand(B, high_watermark=Offset(0), may_join=True)
    assert not leader.has_min_in_sync
    assert leader.has_maximal_min_in_sync
    assert advance(leader, 0, 1) == 0


def test_time_alone_is_announced() -> None:
    """D-03: the node is told when to look again."""
    leader = make_leader()
    assert leader.next_lag_check_ms(Offset(3), NOW_MS) == LAG_MS + 1
    fetch(leader, B, 3, end=3, now_ms=5)
    fetch(leader, C, 3, end=3, now_ms=9)
    assert leader.next_lag_check_ms(Offset(3), 9) is None
    assert leader.next_lag_check_ms(Offset(4), 9) == 5 + LAG_MS + 1
    assert leader.next_lag_check_ms(Offset(4), 5 + LAG_MS + 1) == 9 + LAG_MS + 1
    assert leader.next_lag_check_ms(Offset(4), 9 + LAG_MS + 1) is None


# -- Progress --------------------------------------------------------------------------------


def test_whether_the_end_has_changed_is_told() -> None:
    leader = make_leader()
    assert fetch(leader, B, 0, end=4)
    assert not fetch(leader, B, 0, end=4)
    assert fetch(leader, B, 4, end=4)


def test_a_follower_that_is_always_one_round_behind_is_caught_up() -> None:
    """Small writes at a high rate: it never sees the end, but had all of a moment ago."""
    leader = make_leader()
    for second in range(1, 100):
        fetch(leader, B, second * 10 - 10, end=second * 10, now_ms=second * 1000)
    assert leader.progress[B].last_caught_up_ms == 98_000


def test_a_follower_that_fetches_without_getting_on_falls_behind() -> None:
    """F-25: its requests arrive, the answers do not."""
    leader = make_leader((A, B))
    for second in range(1, 40):
        fetch(leader, B, 0, end=second, now_ms=second * 1000)
    assert leader.progress[B].last_caught_up_ms == NOW_MS
    assert leader.maybe_shrink(Offset(40), 40_000)


def test_a_fetch_from_before_the_last_restart_changes_nothing() -> None:
    """D-04, KIP-903."""
    leader = make_leader()
    fetch(leader, B, 2, end=9, epoch=8)
    with pytest.raises(ProtocolError) as refusal:
        fetch(leader, B, 9, end=9, epoch=7)
    assert refusal.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert leader.progress[B].log_end_offset == 2
    fetch(leader, B, 3, end=9, epoch=-1)
    assert leader.progress[B].log_end_offset == 3


def test_a_leader_that_stays_knows_where_the_members_of_its_in_sync_set_are() -> None:
    former = make_leader(in_sync=(A, B))
    fetch(former, B, 6, end=8)
    fetch(former, C, 3, end=8)
    leader = make_leader(in_sync=(A, B), epoch=2, start=8, former=former, now_ms=100)
    assert leader.progress[B].log_end_offset == 6
    assert leader.progress[C].log_end_offset == NO_OFFSET
    assert leader.progress[C].last_caught_up_ms == NEVER_MS
    assert not leader.progress[C].has_fetched
    assert advance(leader, 0, 8, 100) == 6


def test_i15_a_replica_that_was_moved_away_and_back_starts_without_progress() -> None:
    """Both moves may be heard of at once, and the replica came back with an empty log under the
    same registration. It is not in sync then: members do not leave without a new leader epoch."""
    former = make_leader((A, B, C), (A, B, C))
    fetch(former, C, 8, end=8)
    leader = make_leader((A, B, C), (A, B), epoch=2, start=8, former=former)
    assert leader.progress[C].log_end_offset == NO_OFFSET
    assert leader.progress[C].log_start_offset == NO_OFFSET


def test_a_leader_that_missed_another_leadership_knows_nothing() -> None:
    former = make_leader()
    fetch(former, B, 8, end=8)
    fetch(former, C, 8, end=8)
    leader = make_leader(epoch=3, start=8, former=former)
    assert leader.progress[B].log_end_offset == NO_OFFSET
    assert advance(leader, 0, 8) == 0


def test_the_low_watermark_is_that_of_the_replicas_that_live() -> None:
    leader = make_leader()
    fetch(leader, B, 9, end=9, start=4)
    fetch(leader, C, 9, end=9, start=2)
    assert leader.low_watermark(Offset(5), lambda _: True) == 2
    assert leader.low_watermark(Offset(5), lambda broker: broker != C) == 4
    assert leader.low_watermark(Offset(3), lambda broker: broker != C) == 3


# -- Joining and leaving ---------------------------------------------------------------------


def test_r04_a_replica_joins_only_with_all_from_before_the_epoch() -> None:
    leader = make_leader((A, B, C), (A, B), start=10)
    fetch(leader, C, 5, end=10)
    assert not leader.maybe_expand(C, high_watermark=Offset(5), may_join=True)
    fetch(leader, C, 10, end=10)
    assert leader.maybe_expand(C, high_watermark=Offset(5), may_join=True)
    assert leader.in_sync == Expanding(frozenset({A, B}), C, broker_epoch=7)


def test_i27_a_replica_joins_only_without_what_clients_were_told_is_deleted() -> None:
    leader = make_leader((A, B, C), (A, B))
    fetch(leader, C, 9, end=9, start=4)
    leader.note_deleted(Offset(5))
    leader.note_deleted(Offset(3))
    assert not leader.maybe_expand(C, high_watermark=Offset(9), may_join=True)
    fetch(leader, C, 9, end=9, start=5)
    assert leader.maybe_expand(C, high_watermark=Offset(9), may_join=True)
    # What was said before this leadership is gone from this log, wherever that starts now.
    later = make_leader((A, B, C), (A, B), epoch=2, start=9, log_start=5)
    fetch(later, C, 9, end=9, start=4)
    assert not later.maybe_expand(C, high_watermark=Offset(9), may_join=True)
    fetch(later, C, 9, end=9, start=5)
    assert later.maybe_expand(C, high_watermark=Offset(9), may_join=True)


def test_a_replica_joins_only_with_all_that_is_committed_and_after_a_fetch() -> None:
    former = make_leader((A, B, C), (A, B))
    fetch(former, C, 9, end=9)
    leader = make_leader((A, B, C), (A, B), epoch=2, start=9, former=former)
    assert not leader.maybe_expand(C, high_watermark=Offset(4), may_join=True), "no fetch yet"
    fetch(leader, C, 9, end=12)
    assert not leader.maybe_expand(C, high_watermark=Offset(10), may_join=True)
    assert leader.maybe_expand(C, high_watermark=Offset(9), may_join=True)


def test_r33_a_replica_that_may_not_join_is_not_proposed() -> None:
    leader = make_leader((A, B), (A,))
    fetch(leader, B, 0, end=0)
    assert not leader.maybe_expand(B, high_watermark=Offset(0), may_join=False)
    assert leader.in_sync == Committed(frozenset({A}))


def test_one_change_at_a_time() -> None:
    leader = make_leader((A, B, C), (A,))
    fetch(leader, B, 0, end=0)
    fetch(leader, C, 0, end=0)
    assert leader.maybe_expand(B, high_watermark=Offset(0), may_join=True)
    assert not leader.maybe_expand(C, high_watermark=Offset(0), may_join=True)
    assert not leader.maybe_shrink(Offset(5), 2 * LAG_MS)


def test_a_member_that_has_everything_does_not_leave() -> None:
    """KAFKA-7152."""
    leader = make_leader()
    fetch(leader, B, 5, end=5)
    fetch(leader, C, 4, end=5)
    assert leader.maybe_shrink(Offset(5), 10 * LAG_MS)
    assert leader.in_sync == Shrinking(frozenset({A, B, C}), frozenset({C}))


def test_a_member_is_waited_for_until_its_removal_is_committed() -> None:
    leader = make_leader()
    fetch(leader, B, 5, end=5)
    fetch(leader, C, 2, end=5)
    assert leader.maybe_shrink(Offset(5), 10 * LAG_MS)
    assert leader.in_sync.proposed == {A, B}
    assert advance(leader, 0, 5, 10 * LAG_MS) == 2
    assert leader.committed({A, B}, 6, has_eligible=False)
    assert advance(leader, 0, 5, 10 * LAG_MS) == 5


# -- Eligible leaders beside the set (D-13) --------------------------------------------------


def test_c1_nothing_is_committed_without_those_who_are_eligible() -> None:
    """They may lead. Why the controller calls them complete does not matter: its settings may be
    others than this broker's, by which one in-sync replica is enough."""
    leader = make_leader((A, C), (A,), min_in_sync=1, has_eligible=True)
    assert not current(leader.has_min_in_sync)
    assert leader.effective_min_in_sync == 2
    assert advance(leader, 0, 5) == 0
    assert leader.committed({A}, 6, has_eligible=False)
    assert leader.has_min_in_sync
    assert advance(leader, 0, 5) == 5


def test_c5_who_left_by_an_answer_may_be_eligible_until_the_metadata_tell() -> None:
    leader = make_leader((A, B), min_in_sync=1)
    fetch(leader, B, 2, end=5)
    assert leader.maybe_shrink(Offset(5), 10 * LAG_MS)
    assert leader.committed({A}, 6)
    assert current(leader.has_min_in_sync), (
        "the answer does not say whether the setting is another one"
    )
    assert advance(leader, 2, 5, 10 * LAG_MS) == 2
    assert not leader.committed({A}, 6), "nothing new"
    assert advance(leader, 2, 5, 10 * LAG_MS) == 2
    assert leader.committed({A}, 6, has_eligible=True)
    assert not leader.has_min_in_sync
    assert advance(leader, 2, 5, 10 * LAG_MS) == 2
    assert leader.committed({A}, 7, has_eligible=False)
    assert advance(leader, 2, 5, 10 * LAG_MS) == 5


def test_c5_the_metadata_tell_what_an_answer_left_open_without_ending_a_new_proposal() -> None:
    leader = make_leader(min_in_sync=1)
    for follower in (B, C):
        fetch(leader, follower, 2, end=5)
    assert leader.committed({A, B}, 6)
    fetch(leader, C, 2, end=5)
    assert leader.maybe_expand(C, high_watermark=Offset(2), may_join=True)
    proposal = leader.in_sync
    assert leader.committed({A, B}, 6, has_eligible=False)
    assert leader.in_sync is proposal
    fetch(leader, B, 4, end=5)
    assert advance(leader, 2, 5) == 2, "C is about to join"
    fetch(leader, C, 5, end=5)
    assert advance(leader, 2, 5) == 4


def test_an_answer_that_only_adds_makes_no_replica_eligible() -> None:
    leader = make_leader((A, B, C), (A, B))
    for follower in (B, C):
        fetch(leader, follower, 5, end=5)
    assert leader.maybe_expand(C, high_watermark=Offset(0), may_join=True)
    assert leader.committed({A, B, C}, 6)
    assert advance(leader, 0, 5) == 5


def test_an_answer_about_a_later_version_leaves_open_what_was_before() -> None:
    """The controller may have taken one replica out and another one back in."""
    leader = make_leader((A, B, C), (A, B))
    for follower in (B, C):
        fetch(leader, follower, 5, end=5)
    assert leader.maybe_expand(C, high_watermark=Offset(0), may_join=True)
    assert leader.committed({A, B, C}, 8)
    assert advance(leader, 0, 5) == 0
    assert leader.committed({A, B, C}, 8, has_eligible=False)
    assert advance(leader, 0, 5) == 5


# -- The controller's word -------------------------------------------------------------------


def expanding() -> Leader:
    leader = make_leader((A, B, C), (A, B))
    fetch(leader, C, 0, end=0)
    assert leader.maybe_expand(C, high_watermark=Offset(0), may_join=True)
    return leader


def test_r32_the_same_version_again_does_not_end_a_change_in_flight() -> None:
    leader = expanding()
    assert not leader.committed({A, B}, 5)
    assert isinstance(leader.in_sync, Expanding)


def test_r32_a_late_answer_does_not_undo_newer_metadata() -> None:
    leader = expanding()
    assert leader.committed({A, B, C}, 6)
    assert leader.committed({A, C}, 7)
    assert not leader.committed({A, B, C}, 6)
    assert leader.in_sync == Committed(frozenset({A, C}))
    assert leader.partition_epoch == 7


def test_a_later_version_ends_the_change_whatever_it_says() -> None:
    leader = expanding()
    assert leader.committed({A}, 6)
    assert leader.in_sync == Committed(frozenset({A}))


def test_only_a_definite_refusal_restores_the_committed_set() -> None:
    leader = expanding()
    assert not leader.refused(definite=False)
    assert leader.in_sync.maximal == {A, B, C}
    assert leader.refused(definite=True)
    assert leader.in_sync == Committed(frozenset({A, B}))
    assert leader.refused(definite=True), "nothing is in flight"


def test_i16_a_proposal_keeps_the_registration_that_qualified() -> None:
    """KIP-903: what the follower fetches after a restart was not what made it qualify."""
    leader = make_leader((A, B, C), (A, B), start=10)
    fetch(leader, C, 10, end=10, epoch=7)
    assert leader.maybe_expand(C, high_watermark=Offset(10), may_join=True)
    fetch(leader, C, 0, end=10, epoch=8)
    assert leader.in_sync == Expanding(frozenset({A, B}), C, broker_epoch=7)
    assert leader.progress[C].log_end_offset == 0


def test_r32_a_refusal_of_an_older_proposal_does_not_undo_the_current_one() -> None:
    leader = make_leader((A, B, C, D), (A, B))
    for follower in (C, D):
        fetch(leader, follower, 0, end=0)
    leader.maybe_expand(C, high_watermark=Offset(0), may_join=True)
    old = leader.in_sync
    leader.committed({A, B}, 6)
    leader.maybe_expand(D, high_watermark=Offset(0), may_join=True)
    assert not leader.refused(definite=True, proposal=old)
    assert leader.in_sync == Expanding(frozenset({A, B}), D, broker_epoch=7)
    assert leader.refused(definite=True, proposal=leader.in_sync)


def test_a_reassignment_keeps_what_is_known() -> None:
    leader = make_leader()
    fetch(leader, B, 4, end=4)
    fetch(leader, C, 2, end=4)
    leader.reassigned((A, B, C, D))
    assert leader.progress[B].log_end_offset == 4
    assert leader.progress[D].log_end_offset == NO_OFFSET
    assert advance(leader, 0, 4) == 2, "D is not in sync and has not fetched"
    leader.committed({A, B}, 6, has_eligible=False)
    leader.reassigned((A, B, D))
    assert set(leader.progress) == {B, D}
    assert advance(leader, 2, 4) == 4


# -- Policies and checks ---------------------------------------------------------------------


def test_lag_in_records() -> None:
    leader = make_leader(policies=Policies(lag=RecordLag(4)))
    fetch(leader, B, 1, end=5)
    fetch(leader, C, 0, end=5)
    assert leader.maybe_shrink(Offset(5), 1)
    assert leader.in_sync == Shrinking(frozenset({A, B, C}), frozenset({C}))
    assert leader.next_lag_check_ms(Offset(5), 1) == LAG_MS + 1


@pytest.mark.parametrize(
    ("watermark", "end", "members"),
    [
        pytest.param(0, 0, (B, C), id="the leader is missing"),
        pytest.param(0, 0, (A, D), id="a stranger"),
        pytest.param(3, 2, (A, B), id="watermark beyond the end"),
        pytest.param(-1, 2, (A, B), id="negative"),
    ],
)
def test_check_finds(watermark: int, end: int, members: Sequence[BrokerId]) -> None:
    with pytest.raises(InvariantViolated):
        make_leader(in_sync=members).check(Offset(watermark), Offset(end))


def test_check_finds_a_follower_that_is_ahead() -> None:
    leader = make_leader()
    leader.check(Offset(0), Offset(5))
    fetch(leader, B, 6, end=6)
    with pytest.raises(InvariantViolated, match="ahead"):
        leader.check(Offset(0), Offset(5))
    with pytest.raises(InvariantViolated, match="out of order"):
        make_leader(start=6).check(Offset(0), Offset(5))
