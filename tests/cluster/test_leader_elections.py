"""Elections on request, and leadership that goes back to preferred leaders."""

from __future__ import annotations

from strandline.cluster.controller import (
    Elected,
    ElectionKind,
    elect_leaders,
    imbalanced,
    rebalance,
)
from strandline.cluster.controller.events import LeaderElected, UncleanElection
from strandline.cluster.controller.reconciliation import LEADERS_PER_MULTI
from strandline.cluster.store import Create
from strandline.cluster.znodes import deletion_path
from strandline.errors import ErrorCode
from strandline.types import BrokerId, LeaderEpoch, TopicPartition
from tests.cluster.story import Policy, Story

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
PREFERRED, UNCLEAN = ElectionKind.PREFERRED, ElectionKind.UNCLEAN


def elect(
    story: Story, kind: ElectionKind, *partitions: TopicPartition
) -> dict[TopicPartition, ErrorCode | None]:
    results = story.follow(elect_leaders(story.image, kind, partitions or None, story.policy))
    return {r.partition: r.refusal.code if r.refusal else None for r in results}


def away_and_back(story: Story, number: int, *topics: str) -> None:
    """The broker was away, and is in sync again with what it is assigned."""
    story.leave(number)
    story.reconcile()
    story.join(number)
    for topic in topics:
        for index, partition in story.image.topics[topic].partitions.items():
            if number in partition.replicas:
                members = {*partition.in_sync_replicas, number}
                proposal = story.proposal(*sorted(members), topic=topic, number=index)
                assert story.propose(proposal).refusal is None


def test_preferred_leaders_lead_again_on_request() -> None:
    story = Story(3)
    story.place("t", [1, 2], [2, 1], [1, 3])
    away_and_back(story, 1, "t")
    story.leave(3)
    story.reconcile()
    story.join(3)
    codes = elect(story, PREFERRED, T0, T1, T2, TopicPartition("x", 0), TopicPartition("t", 9), T0)
    assert codes == {
        T0: None,
        T1: ErrorCode.ELECTION_NOT_NEEDED,
        T2: ErrorCode.ELECTION_NOT_NEEDED,
        TopicPartition("x", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        TopicPartition("t", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    partition = story.partition()
    assert (partition.leader, partition.leader_epoch) == (ONE, 2)
    assert partition.in_sync_replicas == (1, 2)


def test_a_preferred_leader_that_is_not_in_sync_or_goes_cannot_lead() -> None:
    story = Story(3)
    story.place("t", [1, 2])
    story.leave(1)
    story.reconcile()
    assert elect(story, PREFERRED, T0) == {T0: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    story.join(1)
    assert elect(story, PREFERRED, T0) == {T0: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    story.shrink(1, 2)
    story.announce_shutdown(1)
    assert elect(story, PREFERRED, T0) == {T0: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    assert elect(story, PREFERRED) == {T0: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}


def test_of_all_partitions_only_those_are_told_that_needed_an_election() -> None:
    story = Story(2)
    story.place("t", [1, 2], [2, 1])
    away_and_back(story, 1, "t")
    decision = elect_leaders(story.image, PREFERRED, None, story.policy)
    event = LeaderElected(T0, ONE, TWO, LeaderEpoch(2), (ONE, TWO))
    assert story.follow(decision) == (Elected(T0, events=(event,)),)
    assert elect(story, PREFERRED) == {}


def test_an_unclean_election_is_only_for_partitions_without_a_leader() -> None:
    story = Story(3)
    story.place("t", [1, 2], [3, 2])
    story.shrink(1)
    story.leave(1)
    # Before the controller has looked: the leader that is written is dead.
    decision = elect_leaders(story.image, UNCLEAN, [T0, T1], story.policy)
    lost, needless = story.follow(decision)
    assert lost.events == (UncleanElection(T0, TWO, LeaderEpoch(1), (ONE,)),)
    assert needless.refusal is not None
    assert needless.refusal.code is ErrorCode.ELECTION_NOT_NEEDED
    partition = story.partition()
    assert (partition.leader, partition.in_sync_replicas) == (TWO, (2,))
    assert partition.is_recovering
    assert story.reconcile() == []


def test_an_unclean_election_prefers_a_complete_replica_and_needs_a_live_one() -> None:
    story = Story(3, policy=Policy(min_isr=2))
    story.place("t", [1, 2, 3])
    story.place("u", [3])
    story.leave(3)
    story.reconcile()
    lone = TopicPartition("u", 0)
    assert elect(story, UNCLEAN) == {lone: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}
    story.leave(1)
    assert elect(story, UNCLEAN, T0) == {T0: None}
    partition = story.partition()
    assert (partition.leader, partition.in_sync_replicas) == (TWO, (2,))
    assert not partition.is_recovering


# ── preferred leaders, now and then ────────────────────────────────────────────────────────────


def unbalanced() -> Story:
    """Broker 1 should lead ten partitions and leads none of them, 2 leads all."""
    story = Story(3)
    story.place("t", *([1, 2, 3] for _ in range(10)), *([2, 3, 1] for _ in range(10)))
    away_and_back(story, 1, "t")
    return story


def test_leadership_goes_back_where_too_much_of_it_is_elsewhere() -> None:
    story = unbalanced()
    assert imbalanced(story.image, percent_max=100) == frozenset()
    assert imbalanced(story.image, percent_max=99) == {ONE}
    assert rebalance(story.image, {TWO, THREE}).operations == ()
    events = story.follow(rebalance(story.image, {ONE}))
    assert len(events) == 10
    assert events[0] == LeaderElected(T0, ONE, TWO, LeaderEpoch(2), (ONE, TWO, THREE))
    assert {p.leader for n, p in story.image.topics["t"].partitions.items() if n < 10} == {ONE}
    assert imbalanced(story.image, percent_max=0) == frozenset()
    assert rebalance(story.image, {ONE, TWO, THREE}).operations == ()


def test_a_little_imbalance_is_tolerated() -> None:
    story = Story(2)
    story.place("t", *([1, 2] for _ in range(10)))
    story.rewrite(number=3, leader=TWO)
    assert imbalanced(story.image, percent_max=10) == frozenset()
    assert imbalanced(story.image, percent_max=9) == {ONE}
    [event] = story.follow(rebalance(story.image, {ONE}))
    assert isinstance(event, LeaderElected)
    assert event.partition.partition == 3


def test_nothing_goes_back_to_who_cannot_lead_or_while_it_is_moved() -> None:
    story = Story(3)
    story.place("t", [1, 2], [1, 2], [1, 2])
    story.place("u", [1, 2])
    away_and_back(story, 1, "t", "u")
    assert story.propose(story.proposal(2, number=0)).refusal is None
    node = story.image.topics["t"].node
    moving = {1: (ONE, TWO, THREE)}
    story.reassign_by_hand(
        type(node)("t", node.topic_id, {**node.partitions, **moving}, adding_replicas={1: (THREE,)})
    )
    story.do([Create(deletion_path("u"))])
    assert imbalanced(story.image, percent_max=0) == {ONE}
    events = story.follow(rebalance(story.image, {ONE}))
    assert [event.partition for event in events if isinstance(event, LeaderElected)] == [T2]


def test_a_rebalance_goes_on_in_bounded_parts_until_all_is_back() -> None:
    story = Story(2)
    story.place("t", *([1, 2] for _ in range(LEADERS_PER_MULTI + 2)))
    story.announce_shutdown(1)
    story.reconcile()
    story.leave(1)
    story.join(1)
    for number in range(LEADERS_PER_MULTI + 2):
        story.rewrite(
            number=number,
            in_sync_replicas=(ONE, TWO),
            in_sync_epochs={ONE: story.epoch(1), TWO: story.epoch(2)},
        )
    to_lead = imbalanced(story.image, percent_max=10)
    assert len(story.follow(rebalance(story.image, to_lead))) == LEADERS_PER_MULTI
    assert imbalanced(story.image, percent_max=10) == frozenset(), "the rest alone is no reason"
    assert len(story.follow(rebalance(story.image, to_lead))) == 2
    assert rebalance(story.image, to_lead).operations == ()
