"""What the controller writes when brokers come and go: elections, in-sync sets, deletions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from strandline.cluster.controller import (
    announce_shutdown,
    become_controller,
    delete_topics,
    reconcile,
    step_down,
    touched_by,
)
from strandline.cluster.controller.delete_topics import TopicReference
from strandline.cluster.controller.events import (
    DeletionDropped,
    LeaderElected,
    LeaderLost,
    MembersChanged,
    PartitionStarted,
    RestartedLeaderElected,
    TopicRemoved,
    UncleanElection,
)
from strandline.cluster.image import ClusterImage, ImageDelta
from strandline.cluster.store import BadVersion, Create, Delete, SetData
from strandline.cluster.znodes import (
    PartitionStateNode,
    TopicNode,
    deletion_path,
    partition_path,
    partitions_path,
    state_path,
    topic_path,
)
from strandline.types import NO_TOPIC_ID, BrokerId, LeaderEpoch, TopicPartition
from tests.cluster.story import NOW_MS, Policy, Story, session_of

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
T0 = TopicPartition("t", 0)


def three(min_isr: int = 1, *, is_unclean: bool = False) -> Story:
    """Broker 1 leads t-0, all three are in sync."""
    story = Story(3, policy=Policy(min_isr, is_unclean))
    story.place("t", [1, 2, 3])
    assert story.reconcile() == [], "a new topic is as it should be"
    return story


def leads(story: Story) -> tuple[int, int, tuple[int, ...], tuple[int, ...]]:
    """Leader, leader epoch, in sync, eligible."""
    partition = story.partition()
    return (
        partition.leader,
        partition.leader_epoch,
        partition.in_sync_replicas,
        partition.elr,
    )


# ── leaders that go ────────────────────────────────────────────────────────────────────────────


def test_the_first_assigned_replica_in_sync_leads_when_the_leader_dies() -> None:
    story = three()
    story.leave(1)
    [event] = story.reconcile()
    assert event == LeaderElected(T0, TWO, ONE, LeaderEpoch(1), (TWO, THREE))
    assert str(event) == ("Broker 2 leads t-0 in place of 1: leader epoch 1, in sync [2, 3].")
    assert leads(story) == (2, 1, (2, 3), ())
    assert story.partition().in_sync_epochs == {TWO: story.epoch(2), THREE: story.epoch(3)}


def test_who_was_not_in_sync_does_not_lead() -> None:
    story = three()
    story.shrink(1, 3)
    story.leave(1)
    story.reconcile()
    assert leads(story) == (3, 1, (3,), ())


def test_the_last_in_sync_replica_stays_in_the_set_and_is_waited_for() -> None:
    story = three()
    story.shrink(1)
    story.leave(1)
    [event] = story.reconcile()
    assert event == LeaderLost(T0, ONE, (ONE,))
    assert event.is_alarming
    assert str(event) == "t-0 has no leader after broker 1: it waits for [1]."
    assert leads(story) == (-1, 1, (1,), ())
    story.restart(2, is_clean=True)
    assert story.reconcile() == [], "nobody was told twice"
    story.join(1, previous_epoch=story.partition().in_sync_epochs[ONE])
    [event] = story.reconcile()
    assert event == LeaderElected(T0, ONE, BrokerId(-1), LeaderEpoch(2), (ONE,))
    assert story.partition().in_sync_epochs == {ONE: story.epoch(1)}


def test_r08_a_leader_that_restarted_between_two_looks_is_replaced() -> None:
    """KAFKA-7235, KIP-380: it is there whenever one looks, but under another broker epoch."""
    story = three()
    story.restart(1, is_clean=True)
    assert not story.partition().leads_under(story.epoch(1)), "it must not lead as it was"
    story.reconcile()
    assert leads(story) == (2, 1, (2, 3), ())


def test_a_follower_that_restarted_between_two_looks_leaves_and_the_leader_keeps_its_epoch() -> (
    None
):
    story = three()
    story.restart(2, is_clean=True)
    [event] = story.reconcile()
    assert event == MembersChanged(T0, (ONE, THREE), ())
    assert leads(story) == (1, 0, (1, 3), ())
    assert story.partition().partition_epoch == 1


def test_r05_a_leader_without_an_alternative_leads_again_under_a_new_epoch() -> None:
    """KAFKA-7164: the leader is the same, and yet everybody has to notice."""
    story = Story(policy=Policy())
    story.place("t", [1])
    story.restart(1, is_clean=True)
    [event] = story.reconcile()
    assert isinstance(event, LeaderElected)
    assert str(event) == "Broker 1 leads t-0 anew: leader epoch 1, in sync [1]."
    story.restart(1, is_clean=False)
    [event] = story.reconcile()
    assert event == RestartedLeaderElected(T0, ONE, LeaderEpoch(2))
    assert leads(story) == (1, 2, (1,), ())
    assert story.partition().leads_under(story.epoch(1))
    assert not story.partition().is_recovering


def test_a_state_without_broker_epochs_gets_them_with_a_new_leader_epoch() -> None:
    """As Kafka wrote it, or as an adopted log has it: nobody knows who was elected."""
    story = three()
    story.rewrite(in_sync_epochs={})
    story.reconcile()
    assert leads(story) == (1, 1, (1, 2, 3), ())
    assert story.partition().in_sync_epochs == {BrokerId(n): story.epoch(n) for n in (1, 2, 3)}


def test_a_full_restart_without_losses_keeps_the_in_sync_set() -> None:
    """F-35: all sessions expired together, and the processes registered again."""
    story = three(min_isr=2)
    story.restart(1, 2, 3, is_clean=True)
    story.reconcile()
    assert leads(story) == (1, 1, (1, 2, 3), ())


def test_who_came_back_whole_is_preferred_to_who_crashed() -> None:
    story = three()
    story.restart(1, is_clean=False)
    story.restart(2, is_clean=True)
    story.restart(3, is_clean=False)
    story.reconcile()
    assert leads(story) == (2, 1, (2,), ())


def test_who_is_not_assigned_neither_leads_nor_is_in_sync() -> None:
    """F-41: somebody edits the assignment by hand."""
    story = three()
    node = story.image.topics["t"].node
    story.reassign_by_hand(replace(node, partitions={0: (TWO, THREE)}))
    story.reconcile()
    assert leads(story) == (2, 1, (2, 3), ())


# ── shutting down ──────────────────────────────────────────────────────────────────────────────


def test_leadership_moves_away_from_a_broker_that_shuts_down() -> None:
    """F-18: without anybody noticing an absent leader."""
    story = three()
    story.announce_shutdown(1)
    [event] = story.reconcile()
    assert event == LeaderElected(T0, TWO, ONE, LeaderEpoch(1), (TWO, THREE))
    assert announce_shutdown(story.image, ONE) == (), "that is known"
    story.leave(1)
    assert story.reconcile() == [], "nothing is left to do when it goes"
    assert announce_shutdown(story.image, ONE) == ()


def test_a_follower_that_shuts_down_leaves_the_in_sync_set() -> None:
    story = three()
    story.announce_shutdown(3)
    story.reconcile()
    assert leads(story) == (1, 0, (1, 2), ())


def test_the_last_in_sync_replica_leads_until_it_stops() -> None:
    story = three(min_isr=2)
    story.announce_shutdown(2)
    story.announce_shutdown(3)
    story.reconcile()
    assert leads(story) == (1, 0, (1,), (2, 3))
    story.announce_shutdown(1)
    assert story.reconcile() == []
    assert leads(story) == (1, 0, (1,), (2, 3)), "an eligible leader that goes too is no better"
    # Somebody catches up before it stops: then leadership can move after all.
    story.leave(3)
    story.join(3)
    answer = story.propose(story.proposal(1, 3))
    assert answer.refusal is None
    story.reconcile()
    assert leads(story) == (3, 1, (3,), (1,))


def test_somebody_who_shuts_down_leads_if_there_is_nobody_else() -> None:
    story = three(is_unclean=True)
    story.shrink(1, 2)
    story.announce_shutdown(2)
    story.leave(1)
    story.reconcile()
    assert leads(story) == (2, 1, (2,), ()), "better than an unclean election of 3"


def test_a_late_announcement_does_not_mark_the_next_registration() -> None:
    story = three()
    late = announce_shutdown(story.image, ONE)
    story.announce_shutdown(1)
    with pytest.raises(BadVersion):
        story.do(late)


# ── eligible leaders (KIP-966) ─────────────────────────────────────────────────────────────────


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
    assert leads(story) == (1, 2, (1,), (2,)), (
        "1 and 3 crashed: with min.insync.replicas=2, waiting for 2 promises nothing any more"
    )
    assert story.partition().last_known_elr == (THREE,)
    story.join(2, previous_epoch=recorded)
    story.reconcile()
    assert leads(story) == (1, 2, (1,), (2,))
    assert story.partition().in_sync_epochs == {ONE: story.epoch(1), TWO: story.epoch(2)}


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


def test_r33_eligibility_ends_with_an_unclean_restart_and_outlives_a_clean_one() -> None:
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


def test_when_all_crashed_the_first_assigned_leads() -> None:
    """F-06: beyond what the setting promises, but available again."""
    story = three(min_isr=2)
    story.leave(1, 2, 3)
    story.reconcile()
    assert leads(story) == (-1, 1, (1, 2, 3), ())
    story.join(2)
    story.reconcile()
    assert leads(story) == (-1, 1, (1, 3), ())
    story.join(1)
    [event] = story.reconcile()
    assert event == RestartedLeaderElected(T0, ONE, LeaderEpoch(2))
    assert str(event) == ("Broker 1 leads t-0 after a restart that was not clean: leader epoch 2.")
    assert leads(story) == (1, 2, (1,), (3,))


def test_with_a_minimum_of_one_the_first_to_come_back_leads() -> None:
    story = three()
    story.leave(1, 2, 3)
    story.reconcile()
    story.join(3)
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


def test_an_unclean_election_clears_who_was_eligible() -> None:
    story = Story(4, policy=Policy(min_isr=2, is_unclean=True))
    story.place("t", [1, 2, 3, 4])
    story.shrink(1, 2)
    story.shrink(1)
    story.leave(1, 2)
    story.reconcile()
    assert leads(story) == (3, 1, (3,), ())
    assert story.partition().last_known_elr == ()


def test_where_nobody_is_alive_an_unclean_election_waits_too() -> None:
    story = three(is_unclean=True)
    story.leave(1, 2, 3)
    story.reconcile()
    assert leads(story) == (-1, 1, (1, 2, 3), ())


# ── fencing ────────────────────────────────────────────────────────────────────────────────────


def test_r07_a_controller_that_was_replaced_cannot_write() -> None:
    """KAFKA-6082, F-14: it paused with its decision made, and another one came."""
    story = three()
    story.leave(2)
    late = reconcile(story.image, story.policy)
    assert late.operations
    story.do(step_down(story.image, ONE))
    story.do(become_controller(story.image, THREE, now_ms=NOW_MS), session_of(3))
    with pytest.raises(BadVersion):
        story.do(late.operations)
    story.reconcile()
    assert story.image.topics["t"].states[0].value.controller_epoch == 2


def test_r43_a_decision_from_an_old_image_is_refused_and_made_again() -> None:
    """KAFKA-2729: no cached version stays wrong for ever."""
    story = three()
    story.leave(2)
    late = reconcile(story.image, story.policy)
    story.shrink(1, 3)
    with pytest.raises(BadVersion):
        story.do(late.operations)
    assert story.reconcile() == []


def test_r09_a_decision_about_a_topic_does_not_reach_its_successor() -> None:
    """KAFKA-9539: the name is the same, the versions begin anew, the epoch fences nothing."""
    story = three()
    story.leave(3)
    story.reconcile()
    story.leave(2)
    late = reconcile(story.image, story.policy)
    story.follow(delete_topics(story.image, [TopicReference("t")]))
    story.join(2)
    story.place("t", [2, 1])
    with pytest.raises(BadVersion):
        story.do(late.operations)


def test_unknown_keys_of_a_state_survive() -> None:
    story = three()
    story.rewrite(extra={"of_somebody_else": [1]})
    story.leave(1)
    story.reconcile()
    assert story.image.topics["t"].states[0].value.extra == {"of_somebody_else": [1]}


# ── first elections, deletions ─────────────────────────────────────────────────────────────────


def test_a_topic_of_which_there_is_only_the_assignment_gets_its_leaders() -> None:
    story = Story(2)
    node = TopicNode("t", NO_TOPIC_ID, {0: (TWO, ONE), 1: (ONE,), 2: (THREE,), 3: (THREE, TWO)})
    story.do([Create(topic_path("t"), node.encode())])
    assert touched_by(story.delta)
    events = story.reconcile()
    assert events == [
        PartitionStarted(T0, TWO),
        PartitionStarted(TopicPartition("t", 1), ONE),
        PartitionStarted(TopicPartition("t", 3), TWO),
    ]
    assert str(events[0]) == "Broker 2 is the first leader of t-0."
    assert story.partition().in_sync_replicas == (2, 1)
    assert story.partition(number=2).leader_epoch == -1, "nobody of its replicas is alive"
    story.join(3)
    assert story.reconcile() == [PartitionStarted(TopicPartition("t", 2), THREE)]


def test_inner_nodes_that_are_there_are_not_made_again() -> None:
    """A Kafka controller that stopped half way through the creation of a topic."""
    story = Story()
    node = TopicNode("t", NO_TOPIC_ID, {0: (ONE,), 1: (ONE,)})
    story.do(
        [
            Create(topic_path("t"), node.encode()),
            Create(partitions_path("t")),
            Create(partition_path(T0)),
        ]
    )
    assert len(story.reconcile()) == 2
    story.follow(delete_topics(story.image, [TopicReference("t")]))
    assert topic_path("t") not in story.tree


def test_deletions_that_were_asked_for_by_a_node() -> None:
    story = three()
    story.place("other", [1])
    for name in ("t", "unknown"):
        story.do([Create(deletion_path(name))])
    assert story.delta.deletions_changed == ("unknown",)
    events = story.reconcile()
    assert events == [TopicRemoved("t"), DeletionDropped("unknown")]
    assert [str(event) for event in events] == [
        "Topic t is deleted.",
        "The request to delete topic unknown is dropped.",
    ]
    assert story.image.topics.keys() == {"other"}
    assert story.tree.children("/admin/delete_topics") == []


def test_a_deletion_that_is_not_allowed_is_dropped() -> None:
    story = three()
    story.policy = Policy(is_deletion_enabled=False)
    story.do([Create(deletion_path("t"))])
    assert story.reconcile() == [DeletionDropped("t")]
    assert "t" in story.image.topics


def test_a_huge_topic_is_made_and_deleted_in_steps() -> None:
    story = Story(2)
    story.place("t", *([1, 2] for _ in range(2100)))
    assert len(story.image.topics["t"].states) == 1000
    while (decision := reconcile(story.image, story.policy)).operations:
        assert len(decision.operations) <= 1000
        story.tree.multi(decision.operations)
        story.image = ClusterImage.from_view(story.tree.view())
    partitions = story.image.topics["t"].partitions
    assert {partition.leader for partition in partitions.values()} == {ONE}
    [answer] = story.follow(delete_topics(story.image, [TopicReference("t")]))
    assert answer.refusal is None
    assert delete_topics(story.image, [TopicReference("t")]).operations == (), "it is marked"
    story.leave(2)
    steps = 0
    while (decision := reconcile(story.image, story.policy)).operations:
        assert len(decision.operations) <= 1000
        [event] = decision.results
        assert isinstance(event, TopicRemoved), "what is being deleted is not repaired"
        story.follow(decision)
        steps += 1
    assert steps == 6
    assert (len(story.image.topics), story.image.requested_deletions) == (0, frozenset())
    assert str(TopicRemoved("t", 7)) == "Topic t is being deleted: 7 partitions left."


# ── how much, in which order ───────────────────────────────────────────────────────────────────


def test_partitions_without_a_leader_come_first_and_one_multi_is_bounded() -> None:
    story = Story(3, policy=Policy())
    story.place("a", *([1, 2, 3] for _ in range(450)))
    story.place("z", *([3, 1, 2] for _ in range(10)))
    story.leave(3)
    decision = reconcile(story.image, story.policy)
    assert len(decision.results) == 400
    assert [type(event) for event in decision.results[:11]] == [LeaderElected] * 10 + [
        MembersChanged
    ]
    assert decision == reconcile(ClusterImage.from_view(story.tree.view()), story.policy)
    assert len(story.reconcile()) == 460


def test_a_look_can_be_limited_to_what_changed() -> None:
    story = three()
    story.place("u", [2, 1])
    assert touched_by(ImageDelta()) == ()
    story.shrink(1, 2)
    assert touched_by(story.delta) == (T0,)
    story.leave(2)
    assert touched_by(story.delta) is None
    limited = reconcile(story.image, story.policy, [T0, TopicPartition("unknown", 0)])
    assert [event.partition for event in limited.results if isinstance(event, MembersChanged)] == [
        T0
    ]
    assert reconcile(story.image, story.policy, []).operations == ()


def test_a_state_of_a_partition_that_is_not_assigned_is_left_alone() -> None:
    story = three()
    state = PartitionStateNode(THREE, LeaderEpoch(0), (THREE,), 1)
    stray = TopicPartition("t", 7)
    story.do([Create(partition_path(stray)), Create(state_path(stray), state.encode())])
    story.leave(3)
    story.reconcile()
    assert story.image.topics["t"].states[7].value == state
    story.do([SetData(state_path(stray), state.encode()), Delete(state_path(stray))])
    assert story.reconcile() == []
