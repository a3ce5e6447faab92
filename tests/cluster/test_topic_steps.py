"""What the controller does about topics step by step: first leaders, deletions."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from strandline.cluster.controller import (
    Decision,
    ElectionKind,
    Looks,
    ReassignmentRequest,
    alter_reassignments,
    delete_topics,
    elect_leaders,
    list_reassignments,
    looks,
    reconcile,
    touched_by,
)
from strandline.cluster.controller.delete_topics import TopicReference
from strandline.cluster.controller.events import (
    DeletionDropped,
    Event,
    LeaderElected,
    PartitionStarted,
    TopicRemoved,
)
from strandline.cluster.controller.topic_writes import REMOVALS_PER_MULTI, STATES_PER_MULTI
from strandline.cluster.image import ClusterImage
from strandline.cluster.store import Create, NotEmpty
from strandline.cluster.znodes import (
    TopicNode,
    deletion_path,
    partition_path,
    partitions_path,
    topic_path,
)
from strandline.errors import ErrorCode
from strandline.types import NO_TOPIC_ID, BrokerId, LeaderEpoch, TopicPartition
from tests.cluster.story import Policy, Story, three

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
T0 = TopicPartition("t", 0)


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
    assert story.partition(number=2).leader_epoch == -1, "none of its replicas is alive"
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
    assert len(story.image.topics["t"].states) == STATES_PER_MULTI
    while (decision := reconcile(story.image, story.policy)).operations:
        assert len(decision.results) <= STATES_PER_MULTI
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
        [event] = decision.results
        assert isinstance(event, TopicRemoved), "what is being deleted is not repaired"
        story.follow(decision)
        steps += 1
    assert steps == 21
    assert (story.image.topics, story.image.requested_deletions) == ({}, {})
    assert str(TopicRemoved("t", 7)) == "Topic t is being deleted: 7 partitions left."


def test_a_topic_made_after_the_deletion_of_its_name_was_asked_for_stays() -> None:
    """Another program asks for it as the topic goes anyway, and the controller has not heard."""
    story = three()
    removal = delete_topics(story.image, [TopicReference("t")])
    story.do([Create(deletion_path("t"))])
    story.follow(removal)
    story.place("t", [2, 3])
    assert not story.image.is_being_deleted("t")
    assert story.reconcile() == [DeletionDropped("t")]
    assert story.partition().replicas == (TWO, THREE)


def test_a_request_for_a_deletion_goes_with_its_topic() -> None:
    """Another program asks for it, and so does a client."""
    story = three()
    story.do([Create(deletion_path("t"))])
    assert story.image.is_being_deleted("t")
    story.follow(delete_topics(story.image, [TopicReference("t")]))
    assert (story.image.topics, story.image.requested_deletions) == ({}, {})


def test_a_huge_topic_is_marked_beside_a_request_for_a_former_one_of_its_name() -> None:
    story = Story()
    story.do([Create(deletion_path("t"))])
    story.place("t", *([1] for _ in range(REMOVALS_PER_MULTI + 1)))
    assert not story.image.is_being_deleted("t")
    story.follow(delete_topics(story.image, [TopicReference("t")]))
    assert story.image.is_being_deleted("t")


def test_what_comes_up_during_a_long_deletion_goes_first() -> None:
    """Also what no broker that comes or goes tells of: a topic that needs its first leaders."""
    story = Story(2)
    story.place("u", [2, 1])
    story.place("t", *([1] for _ in range(REMOVALS_PER_MULTI + 1)))
    story.reconcile()
    story.follow(delete_topics(story.image, [TopicReference("t")]))
    looking = Looks()

    def step() -> object:
        decision = looking.decide(story.image, story.policy)
        story.follow(decision)
        looking.follow(story.delta)
        return decision.results[0]

    left = [step() for _ in range(3)]
    assert left == [TopicRemoved("t", REMOVALS_PER_MULTI + 1 - 100 * n) for n in (1, 2, 3)]
    story.leave(2)
    looking.follow(story.delta)
    assert step() == LeaderElected(TopicPartition("u", 0), ONE, TWO, LeaderEpoch(1), (ONE,))
    story.do([Create(topic_path("v"), TopicNode("v", NO_TOPIC_ID, {0: (ONE,)}).encode())])
    looking.follow(story.delta)
    assert step() == PartitionStarted(TopicPartition("v", 0), ONE)
    while story.image.is_being_deleted("t"):
        assert isinstance(step(), TopicRemoved)


def test_steps_of_a_long_deletion_look_at_what_has_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    story = three()
    story.place("long", *([1] for _ in range(REMOVALS_PER_MULTI + 1)))
    story.reconcile()
    story.follow(delete_topics(story.image, [TopicReference("long")]))
    looks_at: list[int | None] = []

    def seen(
        image: ClusterImage,
        policy: Policy,
        touched: Collection[TopicPartition] | None,
        **limits: Any,
    ) -> Decision[Event]:
        looks_at.append(None if touched is None else len(touched))
        return reconcile(image, policy, touched, **limits)

    monkeypatch.setattr(looks, "reconcile", seen)
    looking = Looks()
    while (decision := looking.decide(story.image, story.policy)).operations:
        story.follow(decision)
        looking.follow(story.delta)
    assert not story.image.requested_deletions
    steps = REMOVALS_PER_MULTI // 100
    assert looks_at == [None, *[100] * steps, None], "the first step, the others, and the end"


def test_a_deletion_that_is_refused_for_ever_keeps_no_partition_from_its_leader() -> None:
    story = three()
    story.place("a", [1])
    story.do([Create(f"{topic_path('a')}/of-another-program")])
    story.do([Create(deletion_path("a"))])
    story.leave(1)
    story.follow(reconcile(story.image, story.policy))
    assert story.partition().leader == TWO
    with pytest.raises(NotEmpty):
        story.reconcile()


def test_a_partition_whose_replicas_went_before_it_had_a_leader_can_be_moved() -> None:
    """The first leaders of a large topic are elected some at a time."""
    story = Story(3)
    story.place("t", *([2] for _ in range(STATES_PER_MULTI + 1)))
    waiting = TopicPartition("t", STATES_PER_MULTI)
    story.leave(2)
    story.reconcile()
    for kind, refusal in (
        (ElectionKind.PREFERRED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        (ElectionKind.UNCLEAN, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
    ):
        [elected] = elect_leaders(story.image, kind, [waiting], story.policy).results
        assert elected.refusal is not None
        assert elected.refusal.code == refusal
    wish = ReassignmentRequest(waiting, [THREE, ONE])
    [answer] = story.follow(alter_reassignments(story.image, [wish], story.policy))
    assert answer.refusal is None
    assert story.reconcile() == [PartitionStarted(waiting, THREE)]
    partition = story.partition(number=STATES_PER_MULTI)
    assert (partition.replicas, partition.in_sync_replicas) == ((THREE, ONE), (THREE, ONE))
    assert not list_reassignments(story.image)
