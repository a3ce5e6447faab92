"""What the controller writes when brokers come and go: elections, in-sync sets, deletions."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest

from strandline.cluster.controller import (
    Decision,
    ElectionKind,
    Event,
    ReassignmentRequest,
    alter_partitions,
    alter_reassignments,
    announce_shutdown,
    become_controller,
    delete_topics,
    elect_leaders,
    looks,
    rebalance,
    reconcile,
    reconciliation,
    report_offline,
    step_down,
    touched_by,
)
from strandline.cluster.controller.delete_topics import TopicReference
from strandline.cluster.controller.events import (
    LeaderElected,
    LeaderLost,
    MembersChanged,
    PartitionMoved,
    PartitionStarted,
    RestartedLeaderElected,
)
from strandline.cluster.controller.reconciliation import LEADERS_PER_MULTI
from strandline.cluster.image import ClusterImage, ImageDelta
from strandline.cluster.store import BadVersion, Create, Delete, SetData
from strandline.cluster.znodes import (
    ConfigResource,
    PartitionStateNode,
    ResourceKind,
    deletion_path,
    partition_path,
    state_path,
)
from strandline.errors import ErrorCode
from strandline.types import BrokerId, LeaderEpoch, TopicPartition
from tests.cluster.story import NOW_MS, Policy, Story, leads, session_of, three

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
T0 = TopicPartition("t", 0)


# ── leaders that go ────────────────────────────────────────────────────────────────────────────


def test_the_first_assigned_replica_in_sync_leads_when_the_leader_dies() -> None:
    story = three()
    story.leave(1)
    [event] = story.reconcile()
    assert event == LeaderElected(T0, TWO, ONE, LeaderEpoch(1), (TWO, THREE))
    assert str(event) == ("Broker 2 leads t-0 in place of 1: leader epoch 1, in sync [2, 3].")
    assert leads(story) == (2, 1, (2, 3), ())
    assert story.partition().in_sync_epochs == {TWO: story.epoch(2), THREE: story.epoch(3)}


def test_a_replica_out_of_sync_is_not_elected() -> None:
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
    assert story.reconcile() == [], "no event came twice"
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
    """KAFKA-7164: the leader is the same, and yet all replicas have to notice."""
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
    """As Kafka wrote it, or as an adopted log has it: the elected leader is unknown."""
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
    """F-41: an operator edits the assignment by hand."""
    story = three()
    node = story.image.topics["t"].node
    story.reassign_by_hand(replace(node, partitions={0: (TWO, THREE)}))
    story.reconcile()
    assert leads(story) == (2, 1, (2, 3), ())


# ── failed disks ───────────────────────────────────────────────────────────────────────────────


def test_f46_leadership_moves_away_from_a_failed_disk_only() -> None:
    story = three()
    story.disks_failed(1, T0)
    [event] = story.reconcile()
    assert event == LeaderElected(T0, TWO, ONE, LeaderEpoch(1), (TWO, THREE))
    assert report_offline(story.image, ONE, frozenset({T0})) == (), "that is known"
    other = three()
    other.disks_failed(1, TopicPartition("t", 7))
    assert other.reconcile() == []
    assert leads(other) == (1, 0, (1, 2, 3), ())


def test_a_replica_on_a_failed_disk_is_not_let_in() -> None:
    story = three()
    story.disks_failed(3, T0)
    story.reconcile()
    assert leads(story) == (1, 0, (1, 2), ())
    answer = story.propose(story.proposal(1, 2, 3))
    assert answer.refusal is not None
    assert answer.refusal.code is ErrorCode.INELIGIBLE_REPLICA


def test_the_last_replica_is_waited_for_until_its_disk_is_mended() -> None:
    story = three(min_isr=1)
    for number in (2, 3):
        story.disks_failed(number, T0)
    story.reconcile()
    story.disks_failed(1, T0)
    story.reconcile()
    assert leads(story) == (-1, 1, (1,), ())
    story.disks_failed(1)
    story.reconcile()
    assert leads(story) == (1, 2, (1,), ())


# ── shutting down ──────────────────────────────────────────────────────────────────────────────


def test_leadership_moves_away_from_a_broker_that_shuts_down() -> None:
    """F-18: although no broker noticed an absent leader."""
    story = three()
    story.announce_shutdown(1)
    [event] = story.reconcile()
    assert event == LeaderElected(T0, TWO, ONE, LeaderEpoch(1), (ONE, TWO, THREE))
    story.shrink(2, 3)  # its leader lets it go
    assert announce_shutdown(story.image, ONE) == (), "that is known"
    story.leave(1)
    assert story.reconcile() == [], "nothing is left to do when it goes"
    assert announce_shutdown(story.image, ONE) == ()


def test_a_broker_that_shuts_down_stays_in_sync_until_its_leader_lets_it_go() -> None:
    """The leader may be dead, and its disk with it: then only who stops has what is committed."""
    story = three()
    story.announce_shutdown(3)
    assert story.reconcile() == []
    assert leads(story) == (1, 0, (1, 2, 3), ())
    story.shrink(1, 2)
    assert leads(story) == (1, 0, (1, 2), ())


def test_a_broker_that_stopped_leads_again_if_its_heir_had_died_unnoticed() -> None:
    """Seed 95000407."""
    story = three()
    story.shrink(1, 2)
    epoch = story.epoch(1)
    story.announce_shutdown(1)
    story.reconcile()
    assert leads(story) == (2, 1, (1, 2), ())
    story.leave(1)
    story.restart(2, is_clean=False)  # with another disk
    story.reconcile()
    assert leads(story) == (-1, 2, (1,), ())
    story.join(1, previous_epoch=epoch)
    story.reconcile()
    assert leads(story) == (1, 3, (1,), ())


def test_the_last_in_sync_replica_leads_until_it_stops() -> None:
    story = three(min_isr=2)
    story.announce_shutdown(2)
    story.announce_shutdown(3)
    story.shrink(1)
    assert leads(story) == (1, 0, (1,), (2, 3))
    story.announce_shutdown(1)
    assert story.reconcile() == []
    assert leads(story) == (1, 0, (1,), (2, 3)), "an eligible leader that goes too is no better"
    # A follower catches up before it stops: then leadership can move after all.
    story.leave(3)
    story.join(3)
    answer = story.propose(story.proposal(1, 3))
    assert answer.refusal is None
    story.reconcile()
    assert leads(story) == (3, 1, (1, 3), ())


def test_a_broker_in_controlled_shutdown_leads_if_there_is_no_other() -> None:
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


def test_r42_a_controller_that_resigned_does_not_act_any_more() -> None:
    """KAFKA-4447: whatever it decides from what it knew, no write of it succeeds."""
    story = three()
    known = story.image
    story.do(step_down(story.image, ONE))
    story.do(become_controller(story.image, TWO, now_ms=NOW_MS), session_of(2))
    story.announce_shutdown(1)
    proposal = story.proposal(1, 2)
    decisions = [
        alter_partitions(known, ONE, story.epoch(1), [proposal], story.policy),
        alter_reassignments(known, [ReassignmentRequest(T0, [TWO, ONE])], story.policy),
        delete_topics(known, [TopicReference("t")]),
    ]
    for decision in decisions:
        with pytest.raises(BadVersion):
            story.do(decision.operations)


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


# ── nodes that cannot be read ──────────────────────────────────────────────────────────────────


class Poisoned(Story):
    """Another program has spoilt nodes: the image has what they said before."""

    state = b""
    """What the state of t-0 was."""

    def check(self, before: ClusterImage) -> None:
        assert self.image.unreadable == ClusterImage.from_view(self.tree.view()).unreadable


STATE = state_path(T0)
SPOILT = b'{"leader": 2'


def poisoned() -> Poisoned:
    """Broker 2 leads t-0, whose state was spoilt, and u-0."""
    story = Poisoned(3)
    story.place("t", [2, 3])
    story.place("u", [2, 3])
    story.state = story.image.topics["t"].states[0].value.encode()
    story.do([SetData(STATE, SPOILT)])
    assert story.image.unreadable.keys() == {STATE}
    return story


def test_a_state_that_cannot_be_read_keeps_no_other_partition_without_a_leader() -> None:
    story = poisoned()
    story.leave(2)
    [event] = story.reconcile()
    assert isinstance(event, LeaderElected)
    assert (event.partition.topic, story.partition().leader) == ("u", TWO)
    [refused] = elect_leaders(story.image, ElectionKind.UNCLEAN, [T0], story.policy).results
    assert refused.refusal is not None
    assert refused.refusal.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert STATE in refused.refusal.message
    story.do([SetData(STATE, story.state)])
    assert touched_by(story.delta) is None
    assert [type(event) for event in story.reconcile()] == [LeaderElected]
    assert story.partition().leader == THREE


def test_a_proposal_for_what_cannot_be_read_is_refused_alone() -> None:
    story = poisoned()
    proposals = [story.proposal(2, topic=topic) for topic in ("t", "u")]
    answers = story.follow(
        alter_partitions(story.image, TWO, story.epoch(2), proposals, story.policy)
    )
    codes = [each.refusal.code if each.refusal else None for each in answers]
    assert codes == [ErrorCode.KAFKA_STORAGE_ERROR, None]


def test_leadership_goes_back_beside_what_cannot_be_read() -> None:
    story = poisoned()
    story.restart(2, is_clean=True)
    story.reconcile()
    assert story.partition("u").leader == THREE
    story.rewrite("u", in_sync_replicas=(TWO, THREE), in_sync_epochs=epochs(story, 2, 3))
    [event] = story.follow(rebalance(story.image, frozenset([TWO])))
    assert isinstance(event, LeaderElected)
    assert event.partition.topic == "u"


def epochs(story: Story, *brokers: int) -> dict[BrokerId, int]:
    return {BrokerId(broker): story.epoch(broker) for broker in brokers}


def test_a_controller_that_never_could_read_a_state_makes_none_in_its_place() -> None:
    story = poisoned()
    story.image = ClusterImage.from_view(story.tree.view())
    assert story.partition().partition_epoch < 0
    story.do([Create(partition_path(TopicPartition("u", 1)))])
    node = story.image.topics["u"].node
    story.reassign_by_hand(replace(node, partitions={**node.partitions, 1: (THREE,)}))
    assert story.reconcile() == [PartitionStarted(TopicPartition("u", 1), THREE)]
    story.do([SetData(STATE, story.state)])
    assert story.partition().leader == TWO


@pytest.mark.parametrize("is_known", [True, False])
def test_a_topic_with_a_state_that_cannot_be_read_can_be_deleted(is_known: bool) -> None:
    story = poisoned()
    if not is_known:
        story.image = ClusterImage.from_view(story.tree.view())
    story.follow(delete_topics(story.image, [TopicReference("t")]))
    assert "t" not in story.image.topics
    assert not story.image.unreadable


@pytest.mark.parametrize("is_known", [True, False])
def test_a_topic_with_settings_that_cannot_be_read_can_be_deleted(is_known: bool) -> None:
    story = Poisoned(3)
    settings = ConfigResource(ResourceKind.TOPIC, "t").path
    for name in ("t", "u"):
        story.place(name, [2, 3])
        story.do([Create(deletion_path(name))])
    if is_known:
        story.do([Create(settings, b'{"version":1,"config":{"retention.ms":"7"}}')])
        story.do([SetData(settings, SPOILT)])
    else:
        story.do([Create(settings, SPOILT)])
    story.reconcile()
    assert not story.image.topics
    assert not story.image.unreadable


def test_an_assignment_that_cannot_be_read_holds_up_no_election() -> None:
    story = poisoned()
    story.do([SetData(STATE, story.state)])
    for name in ("t", "u"):
        wish = ReassignmentRequest(TopicPartition(name, 0), [THREE])
        story.follow(alter_reassignments(story.image, [wish], story.policy))
    node = story.image.topics["t"].node
    story.do([SetData(node.path, b"[]"), Create(deletion_path("t"))])
    assert story.reconcile() != []
    assert (story.partition().removing, story.partition("u").removing) == ((TWO,), ())
    story.do([Delete(deletion_path("t"))])
    story.leave(2)
    story.reconcile()
    assert story.partition().leader == TWO, "its election would end the move"
    story.do([SetData(node.path, node.encode())])
    story.reconcile()
    assert (story.partition().leader, story.partition().replicas) == (THREE, (THREE,))


# ── how much, in which order ───────────────────────────────────────────────────────────────────


def test_partitions_without_a_leader_come_first_and_one_multi_is_bounded() -> None:
    story = Story(3, policy=Policy())
    story.place("a", *([1, 2, 3] for _ in range(150)))
    story.place("z", *([3, 1, 2] for _ in range(10)))
    story.leave(3)
    decision = reconcile(story.image, story.policy)
    assert len(decision.results) == LEADERS_PER_MULTI
    assert [type(event) for event in decision.results[:11]] == [LeaderElected] * 10 + [
        MembersChanged
    ]
    assert decision == reconcile(ClusterImage.from_view(story.tree.view()), story.policy)
    assert len(story.reconcile()) == 160


def moved_at_once(*topics: str) -> Story:
    """The first partition of each topic ends a move; z-0 has lost its leader."""
    story = Story(4)
    for name in topics:
        story.place(name, [1], *([2] for _ in range(40)))
    story.place("z", [4, 1])
    wishes = [ReassignmentRequest(TopicPartition(name, 0), [TWO]) for name in topics]
    story.follow(alter_reassignments(story.image, wishes, story.policy))
    for name in topics:
        story.rewrite(name, in_sync_replicas=(TWO, ONE))
    story.leave(4)
    return story


def test_no_election_shares_a_multi_with_the_end_of_a_move() -> None:
    """The end of a move writes the whole assignment of its topic again, however large that is."""
    story = moved_at_once("a", "b")
    elections = story.follow(reconcile(story.image, story.policy))
    assert [str(event)[:18] for event in elections] == ["Broker 1 leads z-0"]
    moves = story.follow(reconcile(story.image, story.policy))
    assert [each.partition.topic for each in moves if isinstance(each, PartitionMoved)] == [
        "a",
        "b",
    ]
    assert not reconcile(story.image, story.policy).operations


def test_the_assignments_in_one_multi_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"t{number}" for number in range(7)]
    story = moved_at_once(*names)
    assignment = len(story.image.topics["t0"].node.encode())
    monkeypatch.setattr(reconciliation, "BYTES_PER_MULTI", 2 * assignment)
    story.follow(reconcile(story.image, story.policy))
    multis = []
    while (decision := reconcile(story.image, story.policy)).operations:
        assert decision == reconcile(story.image, story.policy, repairs_max=2)
        written = [each.path for each in decision.operations if isinstance(each, SetData)]
        multis.append(sum("/partitions/" not in path for path in written))
        story.follow(decision)
    assert multis == [2, 2, 2, 1]


def test_looks_decide_less_while_the_store_finds_it_too_large() -> None:
    story = moved_at_once(*(f"t{number:02}" for number in range(20)))
    looking = looks.Looks()
    story.follow(looking.decide(story.image, story.policy))
    looking.follow(story.delta)

    def moved() -> int:
        events = looking.decide(story.image, story.policy).results
        return sum(isinstance(event, PartitionMoved) for event in events)

    counts = [moved()]
    while looking.lessen():
        counts.append(moved())
    assert counts == [20, 12, 6, 3, 1]
    while (decision := looking.decide(story.image, story.policy)).operations:
        story.follow(decision)
        looking.follow(story.delta)
    story.leave(1)
    looking.follow(story.delta)
    assert looking.lessen(), "all was done, so that it begins anew"


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


def two_of_many(partitions: int) -> tuple[Story, Story]:
    """The same cluster twice, in which most partitions have lost a member or their leader."""
    stories = Story(3, policy=Policy()), Story(3, policy=Policy())
    for story in stories:
        for topic in range(partitions // 100):
            story.place(f"t{topic:02}", *([[3, 1, 2], [2, 3, 1]] * 50))
        story.place("alone", *([3] for _ in range(300)))  # these wait for their only broker
        story.reconcile()
        story.leave(3)
    return stories


def test_looks_ahead_decide_what_looks_at_all_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    by_looks, at_all = two_of_many(700)
    looked_at_all = 0

    def counted(
        image: ClusterImage,
        policy: Policy,
        touched: Collection[TopicPartition] | None,
        **limits: Any,
    ) -> Decision[Event]:
        nonlocal looked_at_all
        looked_at_all += touched is None
        return reconcile(image, policy, touched, **limits)

    monkeypatch.setattr(looks, "reconcile", counted)
    looking, steps = looks.Looks(), 0
    while True:
        decision = looking.decide(by_looks.image, by_looks.policy)
        assert decision == reconcile(at_all.image, at_all.policy)
        if not decision.operations:
            break
        steps += 1
        for story in (by_looks, at_all):
            story.follow(decision)
        looking.follow(by_looks.delta)
    assert steps == 40, "300 without a leader, and 700 with members that are gone"
    assert looked_at_all <= 6
    assert not looking.decide(by_looks.image, by_looks.policy).operations


def test_looks_ahead_end_when_brokers_come_or_go() -> None:
    story, _ = two_of_many(700)
    looking = looks.Looks()
    for number in range(200):
        decision = looking.decide(story.image, story.policy)
        if not decision.operations:
            break
        story.follow(decision)
        looking.follow(story.delta)
        if number == 2:
            story.leave(2)
            looking.follow(story.delta)
        if number == 6:
            story.join(3)
            looking.follow(story.delta)
    assert number > 20
    assert not reconcile(story.image, story.policy).operations


def test_another_controller_looks_at_all() -> None:
    story, _ = two_of_many(100)
    looking = looks.Looks()
    looking.decide(story.image, story.policy)
    story.reconcile()
    assert not looking.decide(story.image, story.policy).operations
    story.leave(2)
    assert not looking.decide(story.image, story.policy).operations, "it was not told"
    looking.at_all()
    assert looking.decide(story.image, story.policy).operations
