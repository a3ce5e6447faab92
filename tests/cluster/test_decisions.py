"""Deleting topics, changing settings, producer ids, registrations, controllers."""

from __future__ import annotations

from random import Random
from typing import Any
from uuid import UUID

import pytest

from strandline.cluster.controller import (
    ConfigAlteration,
    ConfigReplacement,
    ConfigsAltered,
    Decision,
    PartitionsSpec,
    ProducerIdBlock,
    ReassignmentRequest,
    TopicDeleted,
    TopicReference,
    TopicSpec,
    allocate_producer_ids,
    alter_configs,
    alter_partitions,
    alter_reassignments,
    become_controller,
    bootstrap,
    create_partitions,
    delete_topics,
    incremental_alter_configs,
    reconcile,
    register_broker,
    step_down,
)
from strandline.cluster.controller.topic_writes import topic_creation
from strandline.cluster.image import ClusterImage
from strandline.cluster.store import BadVersion, DataSet, NodeExists, SetData
from strandline.cluster.tree import NodeTree
from strandline.cluster.znodes import (
    BrokerNode,
    ConfigResource,
    Endpoint,
    ProducerIdBlockNode,
    ResourceKind,
)
from strandline.config.alter import Alteration
from strandline.errors import ErrorCode, ProtocolError
from strandline.types import BrokerId, ProducerId, TopicPartition
from tests.cluster.story import NOW_MS, Story, session_of

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
TOPIC, BROKER, GROUP = ResourceKind.TOPIC, ResourceKind.BROKER, ResourceKind.GROUP
ORDERS = ConfigResource(TOPIC, "orders")
SET, DELETE, APPEND = 0, 1, 2


def code(result: TopicDeleted | ConfigsAltered) -> ErrorCode | None:
    return result.refusal.code if result.refusal else None


# ── deleting ───────────────────────────────────────────────────────────────────────────────────


def test_a_deleted_topic_leaves_nothing() -> None:
    story = Story()
    empty = [path for path, _ in story.tree.walk()]
    story.create(TopicSpec("orders", 2, 1, configs={"retention.ms": "5"}))
    topic = story.image.topics["orders"]
    [result] = story.follow(delete_topics(story.image, [TopicReference(None, topic.topic_id)]))
    assert result == TopicDeleted("orders", topic.topic_id)
    assert [path for path, _ in story.tree.walk()] == empty
    assert story.delta.topics_deleted == (topic,)
    assert story.delta.configs_changed == (ORDERS,)
    assert story.image.topic_by_id(topic.topic_id) is None


def test_deletions_are_refused_with_kafkas_codes() -> None:
    story = Story()
    story.create(TopicSpec("a", 1, 1), TopicSpec("b", 1, 1), TopicSpec("c", 1, 1))
    id_b, id_c = story.image.topics["b"].topic_id, story.image.topics["c"].topic_id
    references = [
        TopicReference(),
        TopicReference("a", id_b),
        TopicReference("x"),
        TopicReference(None, UUID(int=999)),
        TopicReference("a"),
        TopicReference("a"),
        TopicReference("b"),
        TopicReference(None, id_b),
        TopicReference(None, id_c),
    ]
    results = story.follow(delete_topics(story.image, references))
    assert [code(result) for result in results] == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        None,
    ]
    assert story.image.topics.keys() == {"a", "b"}
    # A client that asks by id and is refused does not learn the name.
    assert results[6].name is None


def test_deletion_can_be_switched_off() -> None:
    with pytest.raises(ProtocolError) as refused:
        delete_topics(Story().image, [TopicReference("a")], is_enabled=False)
    assert refused.value.code is ErrorCode.TOPIC_DELETION_DISABLED


def test_a_topic_deleted_and_made_again_in_one_step_is_both() -> None:
    story = Story()
    story.create(TopicSpec("orders", 2, 1))
    former = story.image.topics["orders"]
    removal = delete_topics(story.image, [TopicReference("orders")]).operations
    other = Story()
    other.random = Random(99)
    other.create(TopicSpec("orders", 1, 1))
    node = other.image.topics["orders"].node
    states = {n: s.value for n, s in other.image.topics["orders"].states.items()}
    story.do([*removal, *topic_creation(node, states)])
    assert story.delta.topics_deleted == (former,)
    assert story.delta.topics_created == (story.image.topics["orders"],)
    assert story.delta.partitions_changed == (TopicPartition("orders", 0),)
    # The same topic, id and all, deleted and made again: the holder of its log must notice.
    removal = delete_topics(story.image, [TopicReference("orders")]).operations
    story.do([*removal, *topic_creation(node, states)])
    assert len(story.delta.topics_deleted) == len(story.delta.topics_created) == 1


# ── settings ───────────────────────────────────────────────────────────────────────────────────


def alter(story: Story, *requests: ConfigAlteration) -> list[ErrorCode | None]:
    decision = incremental_alter_configs(story.image, requests, story.config)
    return [code(result) for result in story.follow(decision)]


def alteration(kind: int, name: str, *changes: Alteration) -> ConfigAlteration:
    return ConfigAlteration(kind, name, changes)


def test_settings_are_set_added_to_and_removed_with_their_node() -> None:
    story = Story()
    story.create(TopicSpec("orders", 1, 1))
    change = alteration(
        TOPIC,
        "orders",
        Alteration("retention.ms", SET, "5"),
        Alteration("cleanup.policy", APPEND, "compact"),
    )
    assert alter(story, change) == [None]
    assert story.image.overrides(ORDERS) == {
        "retention.ms": "5",
        "cleanup.policy": "delete,compact",
    }
    assert story.delta.configs_changed == (ORDERS,)
    zxid = story.tree.zxid
    assert alter(story, alteration(TOPIC, "orders", Alteration("retention.ms", SET, "5"))) == [None]
    assert story.tree.zxid == zxid, "nothing changes, so nothing is written"
    gone = [Alteration(name, DELETE, None) for name in ("retention.ms", "cleanup.policy")]
    assert alter(story, alteration(TOPIC, "orders", *gone)) == [None]
    assert ORDERS.path not in story.tree


def test_replacing_drops_what_is_not_named() -> None:
    story = Story()
    story.create(TopicSpec("orders", 1, 1, configs={"retention.ms": "5", "flush.ms": "6"}))
    request = ConfigReplacement(TOPIC, "orders", [("segment.ms", "7")])
    dry = alter_configs(story.image, [request], story.config, validate_only=True)
    assert (dry.operations, code(dry.results[0])) == ((), None)
    story.follow(alter_configs(story.image, [request], story.config))
    assert story.image.overrides(ORDERS) == {"segment.ms": "7"}


def test_a_brokers_settings_are_written_even_if_they_stay_the_same() -> None:
    story = Story()
    for _ in range(2):
        zxid = story.tree.zxid
        for name in ("", "1"):
            change = alteration(BROKER, name, Alteration("max.connections", SET, "5"))
            assert alter(story, change) == [None]
        assert story.tree.zxid == zxid + 2


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (alteration(TOPIC, ""), ErrorCode.INVALID_REQUEST),
        (alteration(TOPIC, "a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (alteration(TOPIC, "x"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (alteration(BROKER, "2"), ErrorCode.INVALID_REQUEST),
        (alteration(BROKER, "one"), ErrorCode.INVALID_REQUEST),
        (alteration(8, "1"), ErrorCode.INVALID_REQUEST),
        (alteration(0, ""), ErrorCode.INVALID_REQUEST),
        (
            alteration(TOPIC, "orders", Alteration("retention.ms", SET, "x")),
            ErrorCode.INVALID_CONFIG,
        ),
        (
            alteration(TOPIC, "orders", Alteration("retention.ms", SET, None)),
            ErrorCode.INVALID_REQUEST,
        ),
        (alteration(TOPIC, "orders", Alteration("x", 9, "1")), ErrorCode.INVALID_REQUEST),
        (alteration(BROKER, "1", Alteration("node.id", SET, "2")), ErrorCode.INVALID_REQUEST),
    ],
)
def test_settings_are_refused_with_kafkas_codes(
    request_: ConfigAlteration, expected: ErrorCode
) -> None:
    story = Story()
    story.create(TopicSpec("orders", 1, 1), TopicSpec("other", 1, 1))
    good = alteration(TOPIC, "other", Alteration("retention.ms", SET, "5"))
    assert alter(story, request_, good) == [expected, None]
    assert story.image.overrides(ConfigResource(TOPIC, "other")) == {"retention.ms": "5"}


def test_a_group_may_have_any_name() -> None:
    story = Story()
    setting = Alteration("share.auto.offset.reset", SET, "earliest")
    assert alter(story, alteration(GROUP, "..", setting), alteration(GROUP, "", setting)) == [
        None,
        ErrorCode.INVALID_REQUEST,
    ]
    assert story.image.overrides(ConfigResource(GROUP, ".."))


def test_a_resource_named_twice_is_refused() -> None:
    story = Story()
    story.create(TopicSpec("orders", 1, 1))
    twice = [alteration(TOPIC, "orders", Alteration("flush.ms", SET, t)) for t in "12"]
    assert alter(story, *twice) == [ErrorCode.INVALID_REQUEST]
    assert story.image.overrides(ORDERS) == {}


def test_settings_do_not_come_after_the_deletion_of_their_topic() -> None:
    story = Story()
    story.create(TopicSpec("orders", 1, 1))
    change = alteration(TOPIC, "orders", Alteration("flush.ms", SET, "1"))
    late = incremental_alter_configs(story.image, [change], story.config)
    story.follow(delete_topics(story.image, [TopicReference("orders")]))
    with pytest.raises(BadVersion):
        story.tree.multi(late.operations)


def test_first_settings_of_a_topic_that_is_being_deleted_do_not_outlive_it() -> None:
    """Any broker writes settings, and the controller may decide before it hears of them."""
    story = Story()
    story.create(TopicSpec("orders", 1, 1))
    wanted = [ConfigAlteration(TOPIC, "orders", [Alteration("retention.ms", SET, "1000")])]
    decided = delete_topics(story.image, [TopicReference("orders")])
    story.follow(incremental_alter_configs(story.image, wanted, story.config))
    with pytest.raises(NodeExists):
        story.follow(decided)
    story.follow(delete_topics(story.image, [TopicReference("orders")]))
    assert (story.image.topics, story.image.configs) == ({}, {})
    assert story.delta.configs_changed == (ORDERS,)


def test_no_settings_are_told_of_a_topic_that_had_none_and_is_deleted() -> None:
    story = Story()
    story.create(TopicSpec("orders", 1, 1))
    story.follow(delete_topics(story.image, [TopicReference("orders")]))
    assert story.delta.configs_changed == ()


@pytest.mark.parametrize(
    "what", ["members", "move", "partitions", "settings", "deletion", "states"]
)
def test_a_decision_about_a_topic_is_not_for_the_next_of_its_name(what: str) -> None:
    """The nodes of the new topic have the former one's versions. It must not get its id."""
    story = Story(3)
    story.place("orders", [1, 2])
    at = TopicPartition("orders", 0)
    first = story.image.topics["orders"].topic_id
    decisions: dict[str, Decision[Any]] = {
        "members": alter_partitions(
            story.image, ONE, story.epoch(1), [story.proposal(1, topic="orders")], story.policy
        ),
        "move": alter_reassignments(
            story.image, [ReassignmentRequest(at, [TWO, BrokerId(3)])], story.policy
        ),
        "partitions": create_partitions(story.image, [PartitionsSpec("orders", 2)]),
        "settings": incremental_alter_configs(
            story.image,
            [alteration(TOPIC, "orders", Alteration("flush.ms", SET, "1"))],
            story.config,
        ),
        "deletion": delete_topics(story.image, [TopicReference(topic_id=first)]),
    }
    story.leave(2)
    decisions["states"] = reconcile(story.image, story.policy)
    story.join(2)
    late = decisions[what]
    assert late.operations
    assert not [each for each in late.results if getattr(each, "refusal", None)]
    story.follow(delete_topics(story.image, [TopicReference("orders")]))
    story.place("orders", [2, 3])
    before = story.image.topics["orders"]
    assert before.topic_id != first
    with pytest.raises(BadVersion):
        story.do(late.operations)
    assert story.image.topics["orders"] == before


# ── producer ids ───────────────────────────────────────────────────────────────────────────────


def test_blocks_of_producer_ids_follow_each_other_and_are_given_once() -> None:
    story = Story(2)
    first = allocate_producer_ids(story.image, ONE)
    late = allocate_producer_ids(story.image, TWO)
    assert story.follow(first) == (ProducerIdBlock(ProducerId(0), 1000),)
    with pytest.raises(BadVersion):
        story.tree.multi(late.operations)
    [block] = story.follow(allocate_producer_ids(story.image, TWO))
    assert block == ProducerIdBlock(ProducerId(1000), 1000)
    assert story.image.producer_id_block is not None
    assert story.image.producer_id_block.value == ProducerIdBlockNode(TWO, 1000, 1999)


def test_producer_ids_end_before_they_overflow() -> None:
    story = Story()
    nearly = ProducerIdBlockNode(ONE, 0, 2**63 - 1001)
    story.do([SetData(ProducerIdBlockNode.path, nearly.encode())])
    [last] = story.follow(allocate_producer_ids(story.image, ONE))
    assert last.first + last.size == 2**63
    with pytest.raises(ProtocolError):
        allocate_producer_ids(story.image, ONE)


# ── bootstrap, registrations, controllers ─────────────────────────────────────────────────────────


def test_a_cluster_keeps_its_name_and_what_is_there() -> None:
    tree = NodeTree()
    tree.multi(bootstrap((), random=Random(1), cluster_id="given"))
    assert ClusterImage.from_view(tree.view()).cluster_id == "given"
    assert bootstrap(tree, random=Random(1), cluster_id="another") == ()
    tree.multi(bootstrap(tree, random=Random(1)))
    fresh = NodeTree()
    fresh.multi(bootstrap((), random=Random(1)))
    name = ClusterImage.from_view(fresh.view()).cluster_id
    assert name is not None
    assert len(name) == 22


def test_registering_again_gives_a_larger_epoch_and_replaces_only_our_own() -> None:
    story = Story()
    node = BrokerNode(ONE, (Endpoint("PLAINTEXT", "h", 1),))
    first = story.image.brokers[ONE]
    with pytest.raises(NodeExists):
        story.tree.multi(register_broker(story.image, node), session_of(9))
    with pytest.raises(NodeExists):
        story.tree.multi(
            register_broker(story.image, node, previous_session=session_of(8)), session_of(9)
        )
    again = register_broker(story.image, node, previous_session=session_of(1))
    last = story.do(again, session_of(9))[-1]
    assert isinstance(last, DataSet)
    assert story.image.brokers[ONE].epoch == last.stat.created_zxid > first.epoch
    assert story.image.brokers[ONE].session == session_of(9)
    assert story.delta.brokers_changed == (ONE,)


def test_one_controller_at_a_time_and_each_counts_up() -> None:
    story = Story(2)
    assert story.image.controller == ONE
    assert story.image.controller_epoch is not None
    assert story.image.controller_epoch.value == 1
    with pytest.raises(NodeExists):
        story.tree.multi(become_controller(story.image, TWO, now_ms=NOW_MS), session_of(2))
    assert step_down(story.image, TWO) == ()
    story.do(step_down(story.image, ONE))
    resigned = story.image
    assert resigned.controller is None
    assert story.delta.controller_changed
    story.do(become_controller(story.image, TWO, now_ms=NOW_MS), session_of(2))
    assert (story.image.controller, story.image.controller_epoch.value) == (TWO, 2)
    story.leave(2)
    left = story.image
    assert left.controller is None
    assert not left.is_alive(TWO)


def test_the_first_controller_of_a_store_without_an_epoch() -> None:
    tree = NodeTree()
    tree.multi(become_controller(ClusterImage(), ONE, now_ms=NOW_MS), session_of(1))
    epoch = ClusterImage.from_view(tree.view()).controller_epoch
    assert epoch is not None
    assert (epoch.value, epoch.version) == (1, 0)
