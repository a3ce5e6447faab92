"""Creating topics and adding partitions: every refusal, the defaults, and what is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pytest

from strandline.cluster.controller import (
    Decision,
    PartitionsAdded,
    PartitionsSpec,
    TopicCreated,
    TopicSpec,
    as_brokers_make_it,
    create_partitions,
    create_topics,
    internal_topic_spec,
    unregister_broker,
)
from strandline.cluster.image import PartitionImage
from strandline.cluster.store import BadVersion, Check, SetData
from strandline.cluster.topic_names import (
    CONSUMER_OFFSETS,
    INTERNAL_TOPICS,
    TRANSACTION_STATE,
    name_problem,
)
from strandline.cluster.znodes import ConfigResource, ControllerEpochNode, ResourceKind
from strandline.errors import ErrorCode, InvariantViolated
from strandline.types import BrokerId, LeaderEpoch
from tests.cluster.story import Story, settings

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)


def decide(story: Story, *specs: TopicSpec, validate_only: bool = False) -> Decision[TopicCreated]:
    return create_topics(
        story.image, specs, story.config, validate_only=validate_only, random=story.random
    )


def code(result: TopicCreated | PartitionsAdded) -> ErrorCode | None:
    return result.refusal.code if result.refusal else None


def test_a_created_topic_is_led_and_in_sync_at_once() -> None:
    story = Story(3)
    [result] = story.follow(decide(story, TopicSpec("orders", 4, 2, configs={"retention.ms": "5"})))
    assert (result.partition_count, result.replication_factor) == (4, 2)
    assert result.overrides == {"retention.ms": "5"}
    topic = story.image.topics["orders"]
    assert topic.topic_id == result.topic_id
    assert topic.topic_id.version == 4
    for partition in topic.partitions.values():
        assert partition == PartitionImage(
            partition.replicas,
            partition.replicas,
            partition.replicas[0],
            LeaderEpoch(0),
            partition_epoch=0,
            in_sync_epochs={broker: story.epoch(broker) for broker in partition.replicas},
        )
    overrides = story.image.overrides(ConfigResource(ResourceKind.TOPIC, "orders"))
    assert overrides == {"retention.ms": "5"}
    assert story.delta.topics_created == (topic,)


def test_numbers_left_open_are_the_brokers_defaults() -> None:
    story = Story(3, "num.partitions=5", "default.replication.factor=2")
    [result] = decide(story, TopicSpec("orders")).results
    assert (result.partition_count, result.replication_factor) == (5, 2)


def test_a_topic_without_overrides_has_no_node_for_them() -> None:
    story = Story()
    story.create(TopicSpec("orders", 1, 1))
    assert story.image.configs == {}


def test_validating_writes_nothing_and_says_the_same() -> None:
    story = Story()
    decision = decide(story, TopicSpec("a", 2, 1), TopicSpec("b", 0, 1), validate_only=True)
    assert decision.operations == ()
    assert [code(result) for result in decision.results] == [None, ErrorCode.INVALID_PARTITIONS]
    assert decision.results[0].partition_count == 2


MANUAL = ((0, (ONE, TWO)), (1, (TWO, THREE)))


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (TopicSpec("", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TopicSpec(".", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TopicSpec("..", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TopicSpec("a" * 250, 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TopicSpec("a/b", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TopicSpec("ä", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TopicSpec("a\n", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TopicSpec("there_is", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TopicSpec("there.is", 1, 1), ErrorCode.TOPIC_ALREADY_EXISTS),
        (TopicSpec("__cluster_metadata", 1, 1), ErrorCode.INVALID_REQUEST),
        (TopicSpec("new", 0, 1), ErrorCode.INVALID_PARTITIONS),
        (TopicSpec("new", -2, 1), ErrorCode.INVALID_PARTITIONS),
        (TopicSpec("new", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (TopicSpec("new", 1, -2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (TopicSpec("new", 1, 4), ErrorCode.INVALID_REPLICATION_FACTOR),
        (TopicSpec("new", 10_001, 1), ErrorCode.POLICY_VIOLATION),
        (TopicSpec("new", 1, 1, configs={"retention.ms": "x"}), ErrorCode.INVALID_CONFIG),
        (TopicSpec("new", 1, 1, configs={"no.such": "1"}), ErrorCode.INVALID_CONFIG),
        (TopicSpec("new", 1, 1, configs={"retention.ms": None}), ErrorCode.INVALID_CONFIG),
        (TopicSpec("new", 2, -1, MANUAL), ErrorCode.INVALID_REQUEST),
        (TopicSpec("new", -1, 2, MANUAL), ErrorCode.INVALID_REQUEST),
        (
            TopicSpec("new", assignments=((0, (ONE,)), (0, (TWO,)))),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        (
            TopicSpec("new", assignments=((0, (ONE,)), (2, (TWO,)))),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        (TopicSpec("new", assignments=((1, (ONE,)),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (
            TopicSpec("new", assignments=((0, (ONE,)), (1, (ONE, TWO)))),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        (TopicSpec("new", assignments=((0, ()),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (TopicSpec("new", assignments=((0, (ONE, ONE)),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (
            TopicSpec("new", assignments=((0, (BrokerId(9),)),)),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
    ],
)
def test_a_refusal_has_kafkas_code_and_stops_no_other_topic(
    spec: TopicSpec, expected: ErrorCode
) -> None:
    story = Story(3)
    story.create(TopicSpec("there.is", 1, 1))
    assert code(decide(story, spec).results[0]) is expected
    # Too many partitions are too many for the whole request.
    both = decide(story, TopicSpec("good", 1, 1), spec).results
    too_many = expected is ErrorCode.POLICY_VIOLATION
    assert code(both[0]) is (ErrorCode.POLICY_VIOLATION if too_many else None)
    assert code(both[1]) is expected
    assert both[1].refusal is not None
    assert both[1].refusal.message.endswith(".")


def test_a_topic_named_twice_is_refused_once() -> None:
    story = Story()
    decision = decide(story, TopicSpec("a", 1, 1), TopicSpec("b", 1, 1), TopicSpec("a", 2, 1))
    assert [(each.name, code(each)) for each in decision.results] == [
        ("a", ErrorCode.INVALID_REQUEST),
        ("b", None),
    ]


def test_colliding_names_collide_within_one_request_too() -> None:
    story = Story()
    first, second = decide(story, TopicSpec("a.b", 1, 1), TopicSpec("a_b", 1, 1)).results
    assert (code(first), code(second)) == (None, ErrorCode.INVALID_TOPIC_EXCEPTION)


def test_a_refused_topic_takes_no_name_away() -> None:
    story = Story()
    refused, made = decide(story, TopicSpec("a.b", 0, 1), TopicSpec("a_b", 1, 1)).results
    assert (code(refused), code(made)) == (ErrorCode.INVALID_PARTITIONS, None)


def test_exactly_the_most_partitions_are_allowed_and_defaults_count() -> None:
    story = Story(1, "num.partitions=4000")
    many = [TopicSpec("a", replication_factor=1), TopicSpec("b", 6000, 1)]
    assert [code(each) for each in decide(story, *many).results] == [None, None]
    one_more = [*many, TopicSpec("c", assignments=((0, (ONE,)),))]
    assert {code(each) for each in decide(story, *one_more).results} == {ErrorCode.POLICY_VIOLATION}


def test_a_manual_assignment_is_taken_as_it_is() -> None:
    story = Story(3)
    spec = TopicSpec("new", assignments=((1, (THREE, ONE)), (0, (TWO, THREE))))
    [result] = story.follow(decide(story, spec))
    assert (result.partition_count, result.replication_factor) == (2, 2)
    partitions = story.image.topics["new"].partitions
    assert partitions[0].replicas == (TWO, THREE)
    assert (partitions[1].replicas, partitions[1].leader) == ((THREE, ONE), THREE)


@pytest.mark.parametrize("length", [1, 249])
def test_names_may_have_every_legal_character(length: int) -> None:
    assert name_problem(("aZ09._-" * 40)[:length]) is None
    assert name_problem("...") is None


def test_a_controller_out_of_office_cannot_write() -> None:
    story = Story()
    stale = decide(story, TopicSpec("a", 1, 1))
    assert isinstance(stale.operations[0], Check)
    story.tree.multi([SetData(ControllerEpochNode.path, b"9")])
    with pytest.raises(BadVersion):
        story.tree.multi(stale.operations)
    nobody = replace(story.image, controller_epoch=None)
    with pytest.raises(InvariantViolated):
        create_topics(nobody, [TopicSpec("a", 1, 1)], story.config, random=story.random)


def test_offsets_topics_are_as_large_as_configured_and_compacted() -> None:
    spec = internal_topic_spec(CONSUMER_OFFSETS, settings(), broker_count=2)
    assert spec == TopicSpec(
        CONSUMER_OFFSETS,
        50,
        2,
        configs={
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": "104857600",
        },
    )
    few = settings("offsets.topic.num.partitions=3", "offsets.topic.replication.factor=3")
    insisted = internal_topic_spec(CONSUMER_OFFSETS, few, broker_count=1)
    assert insisted is not None
    assert (insisted.partition_count, insisted.replication_factor) == (3, 3)
    assert internal_topic_spec("orders", settings(), broker_count=1) is None
    sizes = {
        spec.replication_factor
        for count in (3, 4, 9)
        if (spec := internal_topic_spec(CONSUMER_OFFSETS, settings(), broker_count=count))
    }
    assert sizes == {3}


def test_what_a_client_says_of_an_offsets_topic_counts() -> None:
    own = partial(as_brokers_make_it, broker=settings(), broker_count=3)
    assert own(TopicSpec("orders")) == TopicSpec("orders")
    few = own(TopicSpec(CONSUMER_OFFSETS, 1, 2, configs={"segment.bytes": "9999"}))
    assert (few.partition_count, few.replication_factor) == (1, 2)
    assert few.configs["segment.bytes"] == "9999"
    assert few.configs["cleanup.policy"] == "compact"
    placed = own(TopicSpec(TRANSACTION_STATE, assignments=[(0, (ONE,))]))
    assert (placed.partition_count, placed.replication_factor) == (-1, -1)
    assert placed.configs["min.insync.replicas"] == "1", "or nothing could be written"
    assert own(TopicSpec(TRANSACTION_STATE)).configs["min.insync.replicas"] == "2"


def add(story: Story, *specs: PartitionsSpec, validate_only: bool = False) -> list[PartitionsAdded]:
    decision = create_partitions(story.image, specs, validate_only=validate_only)
    if validate_only:
        assert decision.operations == ()
    return list(story.follow(decision))


def test_added_partitions_leave_the_others_alone() -> None:
    story = Story(3)
    story.create(TopicSpec("orders", 2, 2))
    before = dict(story.image.topics["orders"].partitions)
    assert add(story, PartitionsSpec("orders", 5), validate_only=True)[0].partition_count == 5
    assert len(story.image.topics["orders"].partitions) == 2
    [result] = add(story, PartitionsSpec("orders", 5))
    assert (result.partition_count, result.refusal) == (5, None)
    after = story.image.topics["orders"].partitions
    assert {number: after[number] for number in before} == before
    for number in (2, 3, 4):
        assert len(after[number].replicas) == 2
        assert after[number].in_sync_replicas == after[number].replicas
        assert after[number].leader_epoch == 0
    assert [each.partition for each in story.delta.partitions_changed] == [2, 3, 4]
    assert (story.delta.topics_created, story.delta.topics_deleted) == ((), ())


def test_added_partitions_can_be_placed_by_hand() -> None:
    story = Story(3)
    story.create(TopicSpec("orders", 1, 2))
    add(story, PartitionsSpec("orders", 3, [(TWO, ONE), (THREE, TWO)]))
    partitions = story.image.topics["orders"].partitions
    assert (partitions[1].replicas, partitions[2].replicas) == ((TWO, ONE), (THREE, TWO))


@pytest.mark.parametrize(
    ("count", "assignments", "expected"),
    [
        (2, None, ErrorCode.INVALID_PARTITIONS),
        (1, None, ErrorCode.INVALID_PARTITIONS),
        (-1, None, ErrorCode.INVALID_PARTITIONS),
        (10_003, None, ErrorCode.POLICY_VIOLATION),
        (4, [(ONE, TWO)], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, [(ONE, TWO), (TWO, ONE)], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, [(ONE,)], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, [(ONE, ONE)], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, [()], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, [(ONE, BrokerId(9))], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_added_partitions_are_refused_with_kafkas_code(
    count: int, assignments: Sequence[Sequence[BrokerId]] | None, expected: ErrorCode
) -> None:
    story = Story(3)
    story.create(TopicSpec("orders", 2, 2), TopicSpec("other", 1, 1))
    zxid = story.tree.zxid
    spec = PartitionsSpec("orders", count, assignments)
    assert code(add(story, spec)[0]) is expected
    assert story.tree.zxid == zxid
    assert [code(each) for each in add(story, spec, PartitionsSpec("other", 2))] == [expected, None]


@pytest.mark.parametrize("name", sorted(INTERNAL_TOPICS))
def test_topics_of_coordinators_get_no_more_partitions(name: str) -> None:
    """Most of what they hold would be looked for in another partition."""
    story = Story(3)
    story.create(TopicSpec(name, 2, 2), TopicSpec("other", 1, 1))
    results = add(story, PartitionsSpec(name, 5), PartitionsSpec("other", 2))
    assert [code(each) for each in results] == [ErrorCode.INVALID_PARTITIONS, None]
    assert results[0].refusal is not None
    assert "The number of partitions" in results[0].refusal.message
    assert len(story.image.topics[name].partitions) == 2


def test_unknown_and_repeated_topics_get_no_partitions() -> None:
    story = Story()
    story.create(TopicSpec("orders", 1, 1))
    repeated = [PartitionsSpec("orders", 2), PartitionsSpec("orders", 3), PartitionsSpec("x", 2)]
    assert [code(each) for each in add(story, *repeated)] == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


def test_c12_a_broker_that_is_down_counts_for_placement_until_it_is_unregistered() -> None:
    """In CreateTopics, CreatePartitions and manual assignments: its replica is not in sync, and
    the partition is led by one that runs."""
    story = Story(3)
    story.create(TopicSpec("orders", 1, 3))
    story.leave(2)
    assert [code(each) for each in add(story, PartitionsSpec("orders", 2))] == [None]
    manual = PartitionsSpec("orders", 3, [(TWO, ONE, THREE)])
    assert [code(each) for each in add(story, manual)] == [None]
    by_hand = TopicSpec("by-hand", assignments=[(0, (TWO, THREE))])
    created = story.follow(decide(story, TopicSpec("fresh", 6, 3), by_hand))
    assert [code(each) for each in created] == [None, None]
    for name, number in [("orders", 1), ("orders", 2), ("by-hand", 0), ("fresh", 5)]:
        partition = story.image.topics[name].partitions[number]
        assert TWO in partition.replicas
        assert TWO not in partition.in_sync_replicas
        assert partition.leader in (ONE, THREE)
    assert [code(each) for each in decide(story, TopicSpec("huge", 1, 4)).results] == [
        ErrorCode.INVALID_REPLICATION_FACTOR
    ]
    assert story.follow(unregister_broker(story.image, TWO)) == (None,)
    again = decide(story, TopicSpec("late", 1, 3), TopicSpec("far", assignments=[(0, (TWO,))]))
    assert [code(each) for each in again.results] == [
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    ]
    story.join(2)
    assert story.follow(decide(story, TopicSpec("late", 1, 3)))[0].refusal is None


def test_c12_a_partition_that_could_have_no_leader_is_refused() -> None:
    story = Story(2)
    story.create(TopicSpec("orders", 1, 1))
    story.leave(2)
    by_hand = decide(story, TopicSpec("by-hand", assignments=[(0, (TWO,))]))
    more = create_partitions(story.image, [PartitionsSpec("orders", 2, [(TWO,)])])
    for decision in (by_hand, more):
        (result,) = decision.results
        assert code(result) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert decision.operations == ()


def test_only_a_broker_that_is_down_can_be_unregistered() -> None:
    story = Story(2)
    for broker, expected in [
        (TWO, ErrorCode.INVALID_REQUEST),
        (BrokerId(9), ErrorCode.BROKER_ID_NOT_REGISTERED),
    ]:
        (refusal,) = story.follow(unregister_broker(story.image, broker))
        assert refusal is not None
        assert refusal.code is expected


def test_partitions_added_meanwhile_refuse_the_multi() -> None:
    story = Story()
    story.create(TopicSpec("orders", 1, 1))
    stale = create_partitions(story.image, [PartitionsSpec("orders", 2)])
    add(story, PartitionsSpec("orders", 3))
    with pytest.raises(BadVersion):
        story.tree.multi(stale.operations)
