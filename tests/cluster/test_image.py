"""The image follows its store: by single steps as by starting over, sharing what did not change.

`Story` compares, after every step, the advanced image with one built from scratch and the delta
with a full comparison.
"""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from strandline.cluster.controller import (
    ConfigAlteration,
    PartitionsSpec,
    TopicReference,
    TopicSpec,
    allocate_producer_ids,
    create_partitions,
    create_topics,
    delete_topics,
    incremental_alter_configs,
)
from strandline.cluster.image import ImageDelta, TopicImage
from strandline.cluster.store import Changes, Create, Delete, SetData
from strandline.cluster.znodes import (
    ConfigNode,
    ConfigResource,
    PartitionStateNode,
    ResourceKind,
    TopicNode,
)
from strandline.config.alter import Alteration
from strandline.types import NO_EPOCH, BrokerId, LeaderEpoch, TopicPartition
from tests.cluster.story import Story

NAMES = st.sampled_from(["a", "b", "c.d"])
STEPS = st.one_of(
    st.tuples(st.just("create"), NAMES, st.integers(1, 4)),
    st.tuples(st.just("grow"), NAMES, st.integers(1, 6)),
    st.tuples(st.just("delete"), NAMES, st.integers(0, 1)),
    st.tuples(st.just("set"), NAMES, st.integers(-1, 3)),
    st.tuples(st.just("set broker"), NAMES, st.integers(-1, 3)),
    st.tuples(st.just("leave"), NAMES, st.integers(2, 3)),
    st.tuples(st.just("join"), NAMES, st.integers(2, 3)),
    st.tuples(st.just("ids"), NAMES, st.integers(1, 3)),
    st.tuples(st.just("ask for deletion"), NAMES, st.integers(0, 1)),
)


def take(story: Story, what: str, name: str, number: int) -> None:
    image, config = story.image, story.config
    match what:
        case "create":
            spec = TopicSpec(name, number, 1 + number % len(image.brokers))
            story.follow(create_topics(image, [spec], config, random=story.random))
        case "grow":
            story.follow(create_partitions(image, [PartitionsSpec(name, number)]))
        case "delete":
            topic = image.topics.get(name)
            reference = TopicReference(None, topic.topic_id) if number and topic else None
            story.follow(delete_topics(image, [reference or TopicReference(name)]))
        case "set" | "set broker":
            kind, resource = (ResourceKind.TOPIC, name) if what == "set" else (4, "")
            key = "flush.ms" if what == "set" else "max.connections"
            change = Alteration(key, 1 if number < 0 else 0, str(number + 1))
            request = ConfigAlteration(kind, resource, [change])
            story.follow(incremental_alter_configs(image, [request], config))
        case "leave" if image.is_alive(BrokerId(number)):
            story.leave(number)
        case "join" if not image.is_alive(BrokerId(number)):
            story.join(number)
            story.reconcile()
        case "ids":
            story.follow(allocate_producer_ids(image, BrokerId(number)))
        case "ask for deletion":
            path = f"/admin/delete_topics/{name}"
            story.do([Delete(path) if path in story.tree else Create(path)])


@given(st.lists(STEPS, max_size=25))
def test_following_equals_starting_over(steps: list[tuple[str, str, int]]) -> None:
    story = Story(3)
    for step in steps:
        take(story, *step)
    for topic in story.image.topics.values():
        assert story.image.topic_by_id(topic.topic_id) is topic
    assert len(story.image.topic_names) == len(story.image.topics)


@given(st.lists(STEPS, max_size=15))
def test_many_transactions_in_one_step_are_one_difference(
    steps: list[tuple[str, str, int]],
) -> None:
    """A whole history as one `Changes`, as a reader that was away gets it."""
    story = Story(3)
    before = story.image
    for step in steps:
        take(story, *step)
    changes = [
        change for each in story.history for change in each.changes if each.zxid > before.zxid
    ]
    after, _ = before.apply(Changes(story.tree.zxid, tuple(changes)))
    assert after == story.image


def test_what_did_not_change_is_shared() -> None:
    story = Story(2)
    story.create(TopicSpec("a", 2, 1), TopicSpec("b", 2, 1))
    before = story.image
    story.follow(create_partitions(before, [PartitionsSpec("a", 3)]))
    after = story.image
    assert after.topics["b"] is before.topics["b"]
    assert after.brokers is before.brokers
    assert after.configs is before.configs
    assert after.topics["a"].partitions.keys() == {0, 1, 2}
    assert before.topics["a"].partitions.keys() == {0, 1}, "the holder of an image keeps it"
    story.do([Create("/unrelated")])
    assert story.image.topics is after.topics
    assert not story.delta
    assert story.image.zxid == after.zxid + 1


def test_an_election_changes_one_partition() -> None:
    story = Story()
    story.create(TopicSpec("a", 3, 1))
    before = story.image.topics["a"]
    state = before.states[1].value
    node = PartitionStateNode(state.leader, LeaderEpoch(5), state.in_sync_replicas, 1)
    story.do([SetData("/brokers/topics/a/partitions/1/state", node.encode(), 0)])
    after = story.image.topics["a"]
    assert story.delta == ImageDelta(partitions_changed=(TopicPartition("a", 1),))
    assert after.partitions[1].leader_epoch == 5
    assert after.partitions[1].partition_epoch == 1
    assert after.partitions[0] is before.partitions[0]
    # The same content again is a newer partition epoch, which a compare-and-set must name.
    story.do([SetData("/brokers/topics/a/partitions/1/state", node.encode())])
    assert story.image.topics["a"].partitions[1].partition_epoch == 2
    assert story.delta.partitions_changed == (TopicPartition("a", 1),)


def test_a_partition_without_state_has_no_leader_yet() -> None:
    story = Story()
    node = TopicNode("a", UUID(int=0xABC), {0: (BrokerId(1),)})
    story.do([Create(node.path, node.encode())])
    partition = story.image.topics["a"].partitions[0]
    assert (partition.has_leader, partition.leader_epoch) == (False, NO_EPOCH)


def test_replicas_on_the_move_are_told() -> None:
    story = Story()
    story.create(TopicSpec("a", 2, 1))
    topic: TopicImage = story.image.topics["a"]
    two = BrokerId(2)
    node = TopicNode("a", topic.topic_id, dict(topic.node.partitions), {0: (two,)}, {1: (two,)})
    story.do([SetData(node.path, node.encode(), topic.version)])
    assert story.image.topics["a"].partitions[0].adding == (two,)
    assert story.image.topics["a"].partitions[1].removing == (two,)
    assert len(story.delta.partitions_changed) == 2
    assert story.delta.topics_created == ()


def test_nodes_of_unknown_kinds_are_no_part_of_it() -> None:
    story = Story()
    before = story.image
    strange = [
        "/brokers/ids/x",
        "/brokers/ids/01",
        "/brokers/ids/" + "1" * 5000,
        "/config/changes/u",
        "/strandline/adopted_logs/x",
    ]
    story.do([Create(path, b"no JSON") for path in strange])
    story.do([Delete(path) for path in strange])
    assert (story.image.brokers, story.image.configs) == (before.brokers, before.configs)


def test_content_that_cannot_be_read_leaves_the_rest_to_be_followed() -> None:
    story = Story()
    before = story.image
    bad, good = ConfigResource(ResourceKind.TOPIC, "a"), ConfigResource(ResourceKind.TOPIC, "b")
    config = ConfigNode({"retention.ms": "7"})
    story.do([Create("/brokers/topics/a", b"{}"), Create(good.path, config.encode())])
    assert story.image.unreadable.keys() == {"/brokers/topics/a"}
    assert (story.image.topics, story.image.overrides(good)) == (before.topics, config.overrides)
    assert story.delta.unreadable_changed == ("/brokers/topics/a",)
    story.do([Delete("/brokers/topics/a"), Create(bad.path, b"oops")])
    assert "not JSON" in story.image.unreadable[bad.path]
    story.do([SetData(bad.path, config.encode())])
    assert story.delta.unreadable_changed == (bad.path,)
    assert (story.image.unreadable, story.image.overrides(bad)) == ({}, config.overrides)


def test_what_a_node_said_before_it_was_spoilt_stays_known() -> None:
    story = Story()
    resource = ConfigResource(ResourceKind.TOPIC, "a")
    story.do([Create(resource.path, ConfigNode({"retention.ms": "7"}).encode())])
    applied = story.tree.multi([SetData(resource.path, b"oops")])
    assert applied.changes is not None
    image, delta = story.image.apply(applied.changes)
    assert image.configs == story.image.configs
    assert (delta.configs_changed, delta.unreadable_changed) == ((), (resource.path,))


def test_lookups_of_what_is_not_there() -> None:
    image = Story().image
    assert image.partition(TopicPartition("a", 0)) is None
    assert image.overrides(ConfigResource(ResourceKind.TOPIC, "a")) == {}
    assert not image.is_alive(BrokerId(9))


def test_partitions_are_chosen_in_order() -> None:
    story = Story()
    for name, count in (("b", 2), ("a", 12)):
        take(story, "create", name, count)
    everything = [("a", number) for number in range(12)] + [("b", 0), ("b", 1)]
    assert [tuple(at) for at, _ in story.image.chosen()] == everything
    assert [tuple(at) for at, _ in story.image.chosen(["b", "c", "b"])] == everything[12:]
    assert [tuple(at) for at, _ in story.image.chosen(None, 1)] == [("a", 1), ("b", 1)]
    assert [tuple(at) for at, _ in story.image.chosen(["a"], 12)] == []
    (found,) = story.image.chosen(["a"], 3)
    assert found == (TopicPartition("a", 3), story.image.partition(TopicPartition("a", 3)))


def test_where_a_broker_is_reached() -> None:
    broker = Story().image.brokers[BrokerId(1)]
    assert broker.endpoint("PLAINTEXT") == broker.endpoints[0]
    assert broker.endpoint("X") is None
