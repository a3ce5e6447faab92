"""What members of the consumer protocol may be told together (I-39), and which seeds have them."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import cast

from strandline.client.group_requests import Membership
from strandline.sim.clients.cluster import Cluster
from strandline.sim.clients.group_watch import GroupWatch, WatchedMember
from strandline.sim.clients.tenures import NONE, Standing, Tenures, epoch_of
from strandline.sim.options import draw_plan
from strandline.sim.schedule import Schedule
from strandline.types import TopicPartition
from tests.sim.clients_stage import Stage


class NoCoordinator:
    """A cluster in which a member knows no coordinator."""

    def __init__(self) -> None:
        self.router = SimpleNamespace(coordinator=lambda group: None)
        self.counters: Counter[str] = Counter()


T0, T1 = (TopicPartition("t", number) for number in range(2))


def test_in_one_epoch_one_member_owns_a_partition() -> None:
    tenures = Tenures()
    assert tenures.owned(5, "a", [T0, T1]) == []
    assert tenures.owned(5, "b", [T1]) == [(T1, "a")]
    assert tenures.owned(6, "a", [T0]) == []
    assert tenures.owned(6, "b", [T1]) == []


def test_a_tenure_lasts_over_epochs_until_another_member_owns_the_partition() -> None:
    tenures = Tenures()
    tenures.owned(5, "a", [T0])
    tenures.owned(7, "a", [T0])
    assert (tenures.of(T0, 7, "a"), tenures.of(T0, 7, "b"), tenures.newest(T0)) == (5, NONE, 5)
    tenures.owned(8, "b", [T0])
    assert (tenures.of(T0, 7, "a"), tenures.of(T0, 9, "b"), tenures.newest(T0)) == (5, 8, 8)
    tenures.owned(7, "a", [T0])  # told once more, by a coordinator that is none any more
    assert tenures.of(T0, 9, "a") == 5
    tenures.owned(9, "a", [T0])
    assert tenures.of(T0, 9, "a") == 9


def test_a_group_that_was_made_anew_counts_its_epochs_from_the_beginning() -> None:
    """Seed 43000014: all members had left, and a classic one was the first to come."""
    tenures = Tenures()
    assert tenures.base(3, "a", [T0], NONE) == 0
    tenures.owned(3, "a", [T0])
    assert tenures.base(3, "b", [], 3) == 0  # there, and without anything yet
    assert tenures.base(4, "b", [T0], 3) == 0
    anew = tenures.base(1, "b", [T0], 3)
    assert anew is not None
    assert anew > 0
    assert tenures.base(3, "b", [T0], 3) == anew  # never given what another one owns in that epoch
    assert tenures.base(3, "a", [T0], 3) == 0  # a static member is given what it had
    assert tenures.owned(anew + 1, "b", [T0]) == []
    assert tenures.base(2, "a", [], tenures.newest_epoch) == anew
    assert epoch_of(anew + 1) == 1
    assert (tenures.of(T0, anew + 2, "b"), tenures.newest(T0)) == (anew + 1, anew + 1)
    assert tenures.of(T0, 3, "a") == 3


def test_who_has_lost_a_partition_commits_nothing_for_it() -> None:
    watch = GroupWatch(Schedule())
    watch.has_epochs("g")
    watch.owned("g", 5, "a", [T0])
    watch.committed_as("g", T0, Standing(5, 5), 10)
    watch.owned("g", 6, "b", [T0])
    assert watch.findings == []
    assert watch.floor("g", T0, 6) == 10
    watch.committed_as("g", T0, Standing(5, 6), 20)
    (found,) = watch.findings
    assert (found.invariant, found.partition) == ("I-39", "t-0")
    assert "since epoch 5, after another member got it in epoch 6" in found.what
    watch.owned("g", 6, "c", [T0])
    assert "In epoch 6 of group g both b and c own the partition" in watch.findings[-1].what


def test_seeds_have_groups_of_the_consumer_protocol_and_of_both() -> None:
    kinds = {"classic": 0, "consumer": 0, "both": 0}
    for seed in range(100):
        plan = draw_plan(seed)
        spoken = {
            each.options.get("protocol", "classic") for each in plan.clients if each.kind == "group"
        }
        if spoken:
            kinds["both" if len(spoken) == 2 else next(iter(spoken))] += 1
        if "consumer" in spoken:
            assert "group.consumer.session.timeout.ms" in plan.options.settings
    assert min(kinds["classic"], kinds["consumer"]) >= 10
    assert kinds["both"] >= 2


def test_an_answer_that_is_overtaken_shows_a_tenure_between_two_of_another_member() -> None:
    """Seed 104001083: a member's answer arrived after it had been taken out of the group."""
    tenures = Tenures()
    tenures.owned(2, "a", [T0])
    tenures.owned(6, "a", [T0])
    assert tenures.of(T0, 6, "a") == 2
    tenures.owned(3, "b", [T0])
    assert (tenures.of(T0, 6, "a"), tenures.newest(T0)) == (6, 6)
    assert (tenures.of(T0, 5, "a"), tenures.of(T0, 6, "b")) == (2, 3)


def test_an_answer_from_while_a_group_was_made_anew_may_be_of_either() -> None:
    """Seed 106300064: two members asked to join at once, and the answer that overtook the other one
    showed that the group was another; its epochs had come as far as those of the one before."""
    tenures = Tenures()
    tenures.owned(3, "a", [T0])
    anew = tenures.base(2, "b", [T0], 3)
    assert anew is not None
    assert anew > 0
    tenures.owned(anew + 2, "b", [T0])
    assert tenures.base(3, "a", [], 3) is None
    assert tenures.base(2, "a", [], 3) is None  # or of one that was made after both
    assert tenures.base(3, "a", [], tenures.newest_epoch) == anew


def test_a_member_that_joins_before_it_hears_that_it_is_none_may_be_in_another_group() -> None:
    """Seed 118011085: it joined the group that was made anew under its old id and generation."""
    watch = GroupWatch(Schedule())
    watch.has_epochs("g")
    member = WatchedMember(Stage(), watch, "g", cast("Cluster", NoCoordinator()))
    who = Membership("g", None, "a", 2)
    member.joining(who)
    member.synced(who, "", [T0])
    tenures = watch.tenures("g")
    assert tenures is not None
    anew = tenures.base(2, "b", [T0], 2) or 0
    watch.owned("g", anew + 2, "b", [T0])
    member.joining(who)
    member.refused("UNKNOWN_MEMBER_ID")
    member.synced(who, "", [])
    member.synced(Membership("g", None, "a", 3), "", [T0])
    assert member.standing(Membership("g", None, "a", 3), T0) == Standing(anew + 3, anew + 3)
    assert watch.findings == []


def test_a_member_of_which_it_is_not_known_in_which_group_it_is_is_not_judged() -> None:
    watch = GroupWatch(Schedule())
    watch.has_epochs("g")
    cluster = cast("Cluster", NoCoordinator())
    first, other, late = (WatchedMember(Stage(), watch, "g", cluster) for _ in range(3))
    outside = Membership("g", None)
    first.joining(outside)
    first.reconciled(Membership("g", None, "first", generation=3), (), [T0])
    for member in (other, late):
        member.joining(outside)
    other.reconciled(Membership("g", None, "other", generation=2), (), [T0])
    in_either = Membership("g", None, "late", generation=3)
    late.reconciled(in_either, (), [])
    late.reconciled(in_either, (), [T0])
    assert late.standing(in_either, T0) == Standing(NONE, NONE)
    assert watch.findings == []
    late.joining(outside)
    known = Membership("g", None, "later", generation=4)
    late.reconciled(known, (), [T0])
    standing = late.standing(known, T0)
    assert standing.tenure == standing.newest > 4
