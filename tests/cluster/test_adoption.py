"""Logs that only the disk knows: what is registered, with which settings, and what is stray."""

from __future__ import annotations

from random import Random
from uuid import UUID

import pytest

from strandline.cluster.controller import (
    Adoption,
    FoundPartition,
    TopicReference,
    TopicSpec,
    adopt_partitions,
    allocate_producer_ids,
    catch_up,
    delete_topics,
)
from strandline.cluster.controller.foreign_writes import PRODUCER_IDS_LEFT
from strandline.cluster.image import ClusterImage
from strandline.cluster.kraft_settings import KraftSettings
from strandline.cluster.store import Create, SetData
from strandline.cluster.topic_names import CONSUMER_OFFSETS
from strandline.cluster.znodes import ConfigNode, ConfigResource, ResourceKind, state_path
from strandline.types import NO_TOPIC_ID, BrokerId, LeaderEpoch, TopicId, TopicPartition
from tests.cluster.story import Story

ONE = BrokerId(1)
ID, OTHER = UUID(int=0x1234), UUID(int=0x5678)
FOR_EVER = {"retention.ms": "-1", "retention.bytes": "-1"}


def log(topic: str, number: int = 0, topic_id: TopicId = ID, epoch: int = 4) -> FoundPartition:
    return FoundPartition(TopicPartition(topic, number), topic_id, LeaderEpoch(epoch))


def adopt(story: Story, *found: FoundPartition, kept: KraftSettings | None = None) -> Adoption:
    adoption = adopt_partitions(
        story.image, found, ONE, story.config, random=story.random, kept=kept
    )
    if adoption.operations:
        story.do(adoption.operations)
    return adoption


def overrides(story: Story, topic: str) -> dict[str, str]:
    return dict(story.image.overrides(ConfigResource(ResourceKind.TOPIC, topic)))


def known(topic: str, settings: dict[str, str], topic_id: TopicId = ID) -> KraftSettings:
    return KraftSettings({topic: topic_id}, {ConfigResource(ResourceKind.TOPIC, topic): settings})


def test_a_topic_gets_all_partitions_up_to_its_highest_under_newer_epochs() -> None:
    story = Story()
    adoption = adopt(story, log("a", 2, epoch=9), log("a", 0))
    topic = story.image.topics["a"]
    assert topic.topic_id == ID
    assert {n: p.leader_epoch for n, p in topic.partitions.items()} == {0: 5, 1: 0, 2: 10}
    assert all(p.leader == ONE and p.in_sync_replicas == (ONE,) for p in topic.partitions.values())
    assert adoption.registered == tuple(TopicPartition("a", n) for n in range(3))
    assert adoption.empty == (TopicPartition("a", 1),)
    assert adoption.stray == ()


def test_unknown_settings_keep_records_for_ever_and_are_told() -> None:
    story = Story()
    adoption = adopt(story, log("a"), log(CONSUMER_OFFSETS, 3, OTHER))
    assert overrides(story, "a") == FOR_EVER
    assert overrides(story, CONSUMER_OFFSETS)["cleanup.policy"] == "compact"
    assert "retention.ms" not in overrides(story, CONSUMER_OFFSETS)
    assert len(story.image.topics[CONSUMER_OFFSETS].partitions) == 50
    assert adoption.kept_for_ever == ("a",)
    [found, kept] = adoption.notices()
    assert found.endswith("took them in: __consumer_offsets, a.")
    assert kept == (
        "Topics a: their settings were kept elsewhere, so their records are kept for ever until "
        "retention.ms is set."
    )


@pytest.mark.parametrize(
    ("kept", "expected", "is_known"),
    [
        (known("a", {"cleanup.policy": "compact"}), {"cleanup.policy": "compact"}, True),
        (known("a", {}), {}, True),
        (known("a", {"retention.ms": "5"}, OTHER), FOR_EVER, False),
        (known("b", {"retention.ms": "5"}), FOR_EVER, False),
        (KraftSettings(), FOR_EVER, False),
    ],
)
def test_known_settings_are_those_of_that_very_topic(
    kept: KraftSettings, expected: dict[str, str], is_known: bool
) -> None:
    story = Story()
    adoption = adopt(story, log("a"), kept=kept)
    assert overrides(story, "a") == expected
    assert adoption.kept_for_ever == (() if is_known else ("a",))


def test_a_log_without_an_id_is_not_known_to_be_the_topic_of_that_name() -> None:
    story = Story()
    adopt(story, log("a", 0, NO_TOPIC_ID), kept=known("a", {"retention.ms": "5"}))
    assert overrides(story, "a") == FOR_EVER
    assert story.image.topics["a"].topic_id.version == 4


def test_settings_that_are_not_allowed_are_left_out_and_told() -> None:
    story = Story()
    settings = {
        "flush.ms": "9",
        "no.such": "1",
        "segment.bytes": "x",
        "min.compaction.lag.ms": "10",
        "max.compaction.lag.ms": "5",
    }
    adoption = adopt(story, log("a"), kept=known("a", settings))
    assert overrides(story, "a") == {"flush.ms": "9", "max.compaction.lag.ms": "5"}
    assert len(adoption.left_out) == 3
    assert all(line.startswith("Topic a: the setting ") for line in adoption.left_out)
    assert adoption.notices()[1:] == list(adoption.left_out)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"retention.ms": "soon"}, {"retention.ms": "-1"}),
        (
            {"retention.bytes": "?", "retention.ms": "7"},
            {"retention.bytes": "-1", "retention.ms": "7"},
        ),
        ({"cleanup.policy": "burn"}, {"cleanup.policy": ""}),
    ],
)
def test_a_retention_that_is_not_understood_never_becomes_shorter(
    settings: dict[str, str], expected: dict[str, str]
) -> None:
    story = Story()
    adopt(story, log("a"), kept=known("a", settings))
    assert overrides(story, "a") == expected


def test_the_offsets_topic_stays_compacted_whatever_was_set() -> None:
    story = Story()
    settings = {"cleanup.policy": "delete", "segment.bytes": "2000000"}
    adopt(story, log(CONSUMER_OFFSETS), kept=known(CONSUMER_OFFSETS, settings))
    assert overrides(story, CONSUMER_OFFSETS) == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "2000000",
    }


def test_settings_of_this_broker_and_of_all_come_along_unless_set_here() -> None:
    story = Story()
    default, this, other = (ConfigResource(ResourceKind.BROKER, name) for name in ("", "1", "2"))
    story.do([Create(this.path, ConfigNode({"max.connections": "5"}).encode())])
    kept = KraftSettings(
        {},
        {
            default: {"message.max.bytes": "3000000", "node.id": "7"},
            this: {"max.connections": "6"},
            other: {"max.connections": "7"},
        },
    )
    adoption = adopt(story, kept=kept)
    assert story.image.overrides(default) == {"message.max.bytes": "3000000"}
    assert story.image.overrides(this) == {"max.connections": "5"}
    assert story.image.overrides(other) == {}
    [line] = adoption.left_out
    assert line.startswith("All brokers: the setting node.id is not taken over.")


def test_a_broker_adopts_once_even_if_it_found_nothing() -> None:
    """Later, an unknown log is what is left of a deleted topic."""
    story = Story()
    assert adopt(story).operations
    assert story.image.adopted_by == {ONE}
    again = adopt(story, log("a"))
    assert (again.operations, again.stray, again.notices()) == ((), (log("a"),), [])
    assert story.image.topics == {}


def test_a_deleted_topic_is_not_raised_from_the_dead() -> None:
    story = Story()
    adopt(story, log("a"))
    story.follow(delete_topics(story.image, [TopicReference("a")]))
    assert story.image.configs == {}
    assert adopt(story, log("a")).stray == (log("a"),)


@pytest.mark.parametrize(
    "found",
    [
        [log("a", 0), log("a", 1, OTHER)],
        [log("__cluster_metadata")],
        [log("a" * 250)],
        [log("known", 0, OTHER)],
        [log("known", 1, NO_TOPIC_ID)],
        [log("a", 2_000_000_000)],
    ],
)
def test_what_contradicts_the_metadata_or_itself_is_stray(found: list[FoundPartition]) -> None:
    story = Story()
    story.create(TopicSpec("known", 1, 1))
    before = story.image.topics
    adoption = adopt(story, *found)
    assert adoption.stray == tuple(found)
    assert story.image.topics == before


def test_one_id_is_one_topic() -> None:
    story = Story()
    adoption = adopt(story, log("a"), log("b"))
    assert story.image.topics.keys() == {"a"}
    assert adoption.stray == (log("b"),)


def test_an_id_of_a_known_topic_is_not_taken() -> None:
    story = Story()
    story.create(TopicSpec("known", 1, 1))
    found = log("a", 0, story.image.topics["known"].topic_id)
    assert adopt(story, found).stray == (found,)


def test_known_logs_and_logs_of_another_brokers_replicas() -> None:
    story = Story(2)
    story.create(TopicSpec("known", assignments=((0, (ONE,)), (1, (BrokerId(2),)))))
    topic_id = story.image.topics["known"].topic_id
    mine, theirs = log("known", 0, topic_id), log("known", 1, topic_id)
    nameless = log("known", 0, NO_TOPIC_ID)
    assert adopt(story, mine, theirs, nameless).stray == (theirs,)


def test_adopting_is_repeatable_with_the_same_randomness() -> None:
    story = Story()
    first, second = (
        adopt_partitions(
            story.image, [log("a", 0, NO_TOPIC_ID)], ONE, story.config, random=Random(3)
        )
        for _ in range(2)
    )
    assert first == second


def next_id(story: Story) -> int:
    story.do(allocate_producer_ids(story.image, ONE).operations)
    stored = story.image.producer_id_block
    assert stored is not None
    assert stored.value is not None
    return stored.value.first


def catch_up_with(
    story: Story, *found: FoundPartition, used: int = -1, kafkas: int | None = None
) -> None:
    if operations := catch_up(story.image, found, ONE, used + 1, kafkas):
        story.do(operations)


def test_epochs_go_on_behind_those_that_another_program_wrote() -> None:
    story = Story()
    mine = log("a", epoch=4)
    adopt(story, mine)
    catch_up_with(story, mine)
    assert story.image.topics["a"].partitions[0].leader_epoch == 5
    catch_up_with(story, log("a", epoch=5))
    assert story.image.topics["a"].partitions[0].leader_epoch == 5
    catch_up_with(story, log("a", epoch=9), log("unknown", topic_id=OTHER, epoch=20))
    assert story.image.topics["a"].partitions[0].leader_epoch == 10


def test_a_partition_whose_state_cannot_be_read_catches_up_later() -> None:
    story = Story()
    mine = log("a", epoch=4)
    adopt(story, mine)
    story.tree.multi([SetData(state_path(mine.partition), b"oops")])
    image = ClusterImage.from_view(story.tree.view())
    assert not catch_up(image, [mine], ONE, 0)


@pytest.mark.parametrize(
    ("in_logs", "kafkas", "first"),
    [
        (-1, None, 0),
        (-1, 0, PRODUCER_IDS_LEFT),
        (7, None, 8 + PRODUCER_IDS_LEFT),
        (7, 1, 8 + PRODUCER_IDS_LEFT),
        (-1, 2000, 2000 + PRODUCER_IDS_LEFT),
        (2500, 2000, 2501 + PRODUCER_IDS_LEFT),
    ],
)
def test_producer_ids_go_on_behind_all_that_are_known(
    in_logs: int, kafkas: int | None, first: int
) -> None:
    story = Story()
    catch_up_with(story, log("a"), used=in_logs, kafkas=kafkas)
    assert next_id(story) == first
    catch_up_with(story, log("a"), used=in_logs, kafkas=kafkas)
    assert next_id(story) == first + 1000, "nothing is to be caught up with any more"


def test_a_counter_of_the_first_release_is_put_behind_kafkas_with_room_for_more() -> None:
    story = Story()
    assert [next_id(story), next_id(story), next_id(story)] == [0, 1000, 2000]
    catch_up_with(story, log("a"))
    assert next_id(story) == 3000, "without Kafka's metadata log nothing is known of its ids"
    catch_up_with(story, log("a"), kafkas=2000)
    assert next_id(story) == 4000 + PRODUCER_IDS_LEFT
