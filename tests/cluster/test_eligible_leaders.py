"""Who may lead when the in-sync set is gone: eligible leaders, crashed ones, unclean elections."""

from __future__ import annotations

import pytest

from strandline.cluster.controller import (
    ConfigAlteration,
    incremental_alter_configs,
    reconcile,
)
from strandline.cluster.controller.events import (
    MembersChanged,
    RestartedLeaderElected,
    UncleanElection,
)
from strandline.cluster.controller.reconciliation import LEADERS_PER_MULTI
from strandline.cluster.znodes import ResourceKind
from strandline.config.alter import Alteration, Operation
from strandline.types import BrokerId, LeaderEpoch, TopicPartition
from tests.cluster.story import Policy, Story, leads, three

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
T0 = TopicPartition("t", 0)


def test_members_that_leave_below_the_minimum_stay_eligible() -> None:
    story = three(min_isr=2)
    story.leave(3)
    story.reconcile()
    assert leads(story) == (1, 0, (1, 2), ()), "two suffice: 3 may miss what they commit"
    story.leave(2)
    story.reconcile()
    assert leads(story) == (1, 0, (1,), (2,))
    assert str(MembersChanged(T0, (ONE,), (TWO,))) == (
        "In sync of t-0 are [1], eligible to lead [2]."
    )
    story.join(2)
    story.join(3)
    story.shrink(1, 3)
    assert leads(story) == (1, 0, (1, 3), ())


def test_x09_the_last_replica_standing_does_not_lose_what_the_eligible_one_has() -> None:
    story = three(min_isr=2)
    story.shrink(1, 2)
    story.shrink(1)
    assert leads(story) == (1, 0, (1,), (2,))
    story.restart(1, is_clean=False)
    story.reconcile()
    assert leads(story) == (2, 1, (2,), ())
    assert story.partition().last_known_elr == (ONE,)
    story.shrink(1, 2)
    assert leads(story) == (2, 1, (1, 2), ())
    assert story.partition().last_known_elr == ()


def test_an_eligible_leader_that_is_away_is_waited_for() -> None:
    story = three(min_isr=2)
    story.shrink(1)
    assert leads(story) == (1, 0, (1,), (2, 3))
    recorded = story.epoch(2)
    story.leave(2, 3)
    story.restart(1, is_clean=False)
    story.reconcile()
    assert leads(story) == (-1, 1, (), (2, 3)), "1 may have lost what 2 and 3 have"
    story.join(3)
    story.reconcile()
    assert leads(story) == (-1, 1, (), (2,)), "3 crashed as well, and 2 may still be whole"
    assert story.partition().last_known_elr == (ONE, THREE)
    story.join(2, previous_epoch=recorded)
    story.reconcile()
    assert leads(story) == (2, 2, (2,), ())
    assert story.partition().in_sync_epochs == {TWO: story.epoch(2)}


def test_an_eligible_leader_that_comes_back_whole_leads() -> None:
    story = three(min_isr=2)
    story.shrink(1)
    recorded = story.partition().in_sync_epochs[TWO]
    story.leave(2, 3, 1)
    story.reconcile()
    assert leads(story) == (-1, 1, (1,), (2, 3))
    story.join(2, previous_epoch=recorded)
    story.reconcile()
    assert leads(story) == (2, 2, (2,), (1, 3))


def test_eligible_leaders_do_not_count_where_the_minimum_was_lowered() -> None:
    """The high watermark moves without them from then on."""
    story = three(min_isr=2)
    story.shrink(1)
    story.policy = Policy(min_isr=1)
    story.leave(1)
    story.reconcile()
    assert leads(story) == (-1, 1, (1,), ())
    other = three(min_isr=2)
    other.shrink(1)
    other.policy = Policy(min_isr=1)
    [event] = other.reconcile()
    assert event == MembersChanged(T0, (ONE,), ())


def test_eligibility_ends_with_an_unclean_restart_and_outlives_a_clean_one() -> None:
    """I-33."""
    story = three(min_isr=2)
    story.shrink(1)
    story.restart(2, is_clean=True)
    story.restart(3, is_clean=False)
    story.reconcile()
    assert leads(story) == (1, 0, (1,), (2,))
    assert story.partition().last_known_elr == (THREE,)
    # Once more, from the registration that is recorded now.
    story.restart(2, is_clean=True)
    story.reconcile()
    assert leads(story) == (1, 0, (1,), (2,))


def test_two_restarts_between_two_looks_do_not_count_as_a_clean_one() -> None:
    story = three(min_isr=2)
    story.shrink(1)
    story.restart(2, is_clean=False)
    story.restart(2, is_clean=True)
    story.reconcile()
    assert leads(story) == (1, 0, (1,), (3,))


def test_one_crash_loses_nothing_where_two_replicas_have_every_record() -> None:
    """F-05: of two replicas that died together the first to come back may not be the one."""
    story = three(min_isr=2)
    story.shrink(1, 2)
    epoch = story.epoch(2)
    story.leave(1, 2)
    story.reconcile()
    assert leads(story) == (-1, 1, (1, 2), ())
    story.join(1)
    assert story.reconcile() != []
    assert leads(story) == (-1, 1, (2,), ()), "1 crashed, 2 may be whole"
    assert story.partition().last_known_elr == (ONE,)
    story.join(2, previous_epoch=epoch)
    story.reconcile()
    assert leads(story) == (2, 2, (2,), ())


@pytest.mark.parametrize("min_isr", [1, 2])
def test_when_all_crashed_the_replica_longest_in_sync_leads(min_isr: int) -> None:
    """F-06: beyond what the setting promises, but available again."""
    story = three(min_isr)
    story.leave(1, 2, 3)
    story.reconcile()
    assert leads(story) == (-1, 1, (1, 2, 3), ())
    story.join(2)
    story.reconcile()
    assert leads(story) == (-1, 1, (1, 3), ())
    story.join(1)
    story.reconcile()
    assert leads(story) == (-1, 1, (3,), ()), "the last leader is there, but 3 may be whole"
    story.join(3)
    [event] = story.reconcile()
    assert event == RestartedLeaderElected(T0, THREE, LeaderEpoch(2))
    assert str(event) == ("Broker 3 leads t-0 after a restart that was not clean: leader epoch 2.")
    assert leads(story) == (3, 2, (3,), ())


def test_i23_with_a_minimum_of_one_a_complete_leader_that_is_away_is_waited_for() -> None:
    """I-28 would permit the loss; KIP-966 does not need it."""
    story = three()
    story.shrink(1, 3)
    recorded = story.epoch(3)
    story.leave(1, 3)
    story.reconcile()
    story.join(1)
    story.reconcile()
    assert leads(story) == (-1, 1, (3,), ())
    story.join(3, previous_epoch=recorded)
    story.reconcile()
    assert leads(story) == (3, 2, (3,), ())


# ── unclean elections ──────────────────────────────────────────────────────────────────────────


def test_an_unclean_election_is_held_only_where_it_is_allowed_and_is_reported() -> None:
    story = three(is_unclean=True)
    story.shrink(1)
    story.leave(1)
    [event] = story.reconcile()
    assert event == UncleanElection(T0, TWO, LeaderEpoch(1), (ONE,))
    assert event.is_alarming
    assert "committed records that only [1] had are lost" in str(event)
    assert leads(story) == (2, 1, (2,), ())
    assert story.partition().is_recovering
    # The leader has recovered when it says so, after which others may join (KIP-704).
    story.shrink(2, 3)
    assert not story.partition().is_recovering


def test_an_unclean_election_clears_the_eligible_leaders() -> None:
    story = Story(4, policy=Policy(min_isr=2, is_unclean=True))
    story.place("t", [1, 2, 3, 4])
    story.shrink(1, 2)
    story.shrink(1)
    story.leave(1, 2)
    story.reconcile()
    assert leads(story) == (3, 1, (3,), ())
    assert story.partition().last_known_elr == ()


def test_an_unclean_election_waits_while_no_replica_is_alive() -> None:
    story = three(is_unclean=True)
    story.leave(1, 2, 3)
    story.reconcile()
    assert leads(story) == (-1, 1, (1, 2, 3), ())


def test_when_all_crashed_the_last_leader_leads_before_the_first_assigned() -> None:
    """It was complete longest: what was committed last is certainly only there."""
    story = three(min_isr=2)
    story.leave(1)
    story.reconcile()
    story.join(1)
    story.reconcile()
    assert leads(story)[0] == 2
    story.leave(2, 3)
    story.reconcile()
    story.join(3)
    story.reconcile()
    story.join(2)
    story.reconcile()
    assert leads(story)[0] == 2


def test_c2_a_replica_on_an_older_disk_is_not_complete() -> None:
    """Its marker is that of an earlier clean shutdown: it lacks what was written since."""
    story = three(min_isr=2)
    first = story.epoch(3)
    story.restart(3, is_clean=True)
    story.reconcile()
    story.shrink(1, 2, 3)
    second = story.epoch(3)
    story.leave(1)
    story.reconcile()
    story.leave(2)
    story.reconcile()
    story.leave(3)
    story.reconcile()
    assert leads(story)[2:] == ((3,), (2,))
    assert story.partition().in_sync_epochs[THREE] == second
    story.join(3, previous_epoch=first, lives=((first, first),))
    story.reconcile()
    assert leads(story) == (-1, 3, (), (2,))
    assert story.partition().last_known_elr == (THREE,)
    story.join(2, previous_epoch=story.partition().in_sync_epochs[TWO])
    story.reconcile()
    assert leads(story)[0] == 2


def test_a_replica_is_complete_whichever_of_its_lives_was_recorded() -> None:
    story = three(min_isr=2)
    first = story.epoch(3)
    story.leave(1, 2)
    story.reconcile()
    story.leave(3)
    story.join(3, previous_epoch=first, lives=((first, first + 1), (first + 5, first + 9)))
    story.reconcile()
    assert leads(story)[0] == 3


# ── another minimum ────────────────────────────────────────────────────────────────────────────

MIN_IN_SYNC = "min.insync.replicas"


def set_minimum(story: Story, minimum: int | None, resource: str = "t") -> None:
    """Of the topic, or of the cluster (an empty name); None takes the setting away."""
    kind = ResourceKind.TOPIC if resource else ResourceKind.BROKER
    change = (
        Alteration(MIN_IN_SYNC, Operation.DELETE, None)
        if minimum is None
        else Alteration(MIN_IN_SYNC, Operation.SET, str(minimum))
    )
    request = ConfigAlteration(kind, resource, [change])
    [result] = story.follow(incremental_alter_configs(story.image, [request], story.config))
    assert result.refusal is None
    story.policy = Policy(minimum or 1)
    story.reconcile()


def without_two(minimum: int = 3) -> Story:
    """1 leads and is in sync alone; 2 is eligible, and 3, which crashed, was complete once."""
    story = three(min_isr=minimum)
    story.shrink(1, 2)
    story.shrink(1)
    story.restart(3, is_clean=False)
    story.reconcile()
    assert leads(story) == (1, 0, (1,), (2,))
    assert story.partition().last_known_elr == (THREE,)
    return story


def test_i23_who_was_complete_under_another_minimum_does_not_lead_under_this_one() -> None:
    """Two suffice now, and commit records without the third. It must not be elected for them."""
    story = three(min_isr=3)
    story.shrink(1, 2)
    assert leads(story) == (1, 0, (1, 2), (3,))
    story.restart(3, is_clean=False)
    story.reconcile()
    assert story.partition().last_known_elr == (THREE,)
    set_minimum(story, 2)
    assert leads(story) == (1, 0, (1, 2), ())
    assert story.partition().last_known_elr == ()
    story.leave(1, 2)
    story.reconcile()
    story.join(1)
    story.reconcile()
    assert leads(story)[0] == -1, "3 is there, and 2 may have what 1 has lost"


def test_eligibility_ends_with_the_minimum_that_it_came_from() -> None:
    for resource in ("t", ""):
        story = without_two()
        set_minimum(story, 1, resource)
        assert leads(story) == (1, 0, (1,), ())
        assert story.partition().last_known_elr == ()
        assert story.partition().in_sync_epochs == {ONE: story.epoch(1)}


def test_eligibility_outlasts_a_minimum_below_which_the_set_still_is() -> None:
    """The high watermark rests as before, so a replica that was complete still is."""
    for minimum in (2, 4):
        story = without_two()
        before = story.partition()
        set_minimum(story, minimum)
        assert story.partition() == before


def test_a_setting_alone_is_written_however_many_partitions_it_concerns() -> None:
    """One multi for all partitions with eligible leaders was too large for the metadata store."""
    story = three(min_isr=2)
    story.place("u", *([1, 2, 3] for _ in range(LEADERS_PER_MULTI + 50)))
    story.reconcile()
    story.policy = Policy(2)
    for number in story.image.topics["u"].partitions:
        story.rewrite("u", number, in_sync_replicas=(ONE,), elr=(TWO, THREE), leader=ONE)
    alteration = Alteration(MIN_IN_SYNC, Operation.SET, "1")
    request = ConfigAlteration(ResourceKind.BROKER, "", [alteration])
    decision = incremental_alter_configs(story.image, [request], story.config)
    assert len(decision.operations) == 2, "a check and the setting"
    checks = 2
    story.follow(decision)
    story.policy = Policy(1)
    step = reconcile(story.image, story.policy)
    assert len(step.operations) == LEADERS_PER_MULTI + checks
    story.reconcile()
    assert not any(each.elr for each in story.image.topics["u"].partitions.values())


def test_a_minimum_that_is_taken_away_ends_eligibility_too() -> None:
    story = three(min_isr=2)
    set_minimum(story, 2)
    story.shrink(1)
    assert leads(story) == (1, 0, (1,), (2, 3))
    set_minimum(story, None)
    assert leads(story) == (1, 0, (1,), ())


def test_a_minimum_of_others_ends_no_eligibility() -> None:
    story = three(min_isr=2)
    set_minimum(story, 2)
    story.place("u", [1, 2, 3])
    story.shrink(1)
    for minimum, resource in ((3, "u"), (3, ""), (2, "t")):
        set_minimum(story, minimum, resource)
        story.policy = Policy(2)
        assert leads(story) == (1, 0, (1,), (2, 3)), resource


def test_a_partition_with_an_empty_in_sync_set_keeps_its_eligible_leaders() -> None:
    """Nothing was committed since, and without them no replica could ever lead."""
    story = three(min_isr=2)
    story.shrink(1)
    story.leave(2, 3)
    story.restart(1, is_clean=False)
    story.reconcile()
    assert leads(story) == (-1, 1, (), (2, 3))
    set_minimum(story, 3)
    assert leads(story) == (-1, 1, (), (2, 3))


def test_last_known_leaders_do_not_count_while_enough_are_in_sync() -> None:
    story = three(min_isr=2)
    story.rewrite(last_known_elr=(THREE,), in_sync_replicas=(ONE, TWO))
    story.leave(1, 2)
    story.reconcile()
    story.join(1)
    story.reconcile()
    assert leads(story)[0] == -1, "only 1 of those in sync has crashed: 2 may be whole"
