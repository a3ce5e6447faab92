"""Patterns for topics, and the hash by which groups notice that their topics have changed."""

from __future__ import annotations

import sys
from typing import Any
from uuid import UUID

import pytest

from strandline.errors import ErrorCode
from strandline.groups.consumer.cluster_view import TopicFacts
from strandline.groups.consumer.metadata_hash import TopicHashes, topic_hash
from strandline.groups.consumer.regex import Matching, check_pattern
from strandline.groups.requests import every_topic
from strandline.groups.settings import ConsumerGroupSettings, GroupSettings
from strandline.protocol.regex import NO_LIBRARY
from tests.groups.consumer.world import Client, Cluster, ConsumerWorld, code

pytest.importorskip("re2")
ALL = {("orders", number) for number in range(4)} | {("clicks", 0), ("clicks", 1)}


def pattern_client(world: ConsumerWorld, pattern: str, member_id: str = "m", **said: Any) -> Client:
    return world.client(member_id, topics=None, subscribed_topic_regex=pattern, **said)


class TestPatterns:
    def test_a_pattern_is_resolved_in_a_step_of_its_own(self, world: ConsumerWorld) -> None:
        member = pattern_client(world, "o.*|cl.*")
        member.beat()
        assert member.owned == set()
        assert world.states() == ("Stable", 1, 1)
        world.advance(1)
        member.beat()
        assert member.owned == ALL
        assert world.states() == ("Stable", 2, 2)
        assert world.describe().members[0].subscribed_topic_regex == "o.*|cl.*"

    def test_a_pattern_matches_whole_names(self, world: ConsumerWorld) -> None:
        member = pattern_client(world, "order")
        world.settle(member)
        assert member.owned == set()

    def test_names_and_a_pattern_together(self, world: ConsumerWorld) -> None:
        member = world.client(topics=["clicks"], subscribed_topic_regex="orders")
        world.settle(member)
        assert member.owned == ALL

    def test_a_pattern_that_is_known_already_counts_at_once(self, world: ConsumerWorld) -> None:
        first = pattern_client(world, "orders", "a")
        world.settle(first)
        second = pattern_client(world, "orders", "b")
        second.beat()
        assert world.states()[1] == 3

    def test_new_topics_are_found_at_a_heartbeat_after_ten_seconds(
        self, world: ConsumerWorld, cluster: Cluster
    ) -> None:
        member = pattern_client(world, "or.*")
        world.settle(member)
        cluster.put("origins", 1)
        world.topics_changed("origins", are_new=True)
        world.settle(member)
        assert ("origins", 0) not in member.owned
        world.advance(10_001)
        world.settle(member)
        assert ("origins", 0) in member.owned

    def test_patterns_are_looked_at_now_and_then(
        self, consumer_world_type: type[ConsumerWorld], cluster: Cluster
    ) -> None:
        settings = GroupSettings(consumer=ConsumerGroupSettings(regex_refresh_interval_ms=60_000))
        world = consumer_world_type(settings, cluster=cluster)
        member = pattern_client(world, "or.*")
        world.settle(member)
        cluster.put("origins", 1)
        for _ in range(6):
            world.advance(10_001)
            world.settle(member)
        assert ("origins", 0) in member.owned

    def test_an_unused_pattern_is_forgotten(self, world: ConsumerWorld) -> None:
        member = pattern_client(world, "orders")
        world.settle(member)
        member.beat(subscribed_topic_regex="clicks")
        world.advance(10_001)
        world.settle(member)
        assert member.owned == {("clicks", 0), ("clicks", 1)}
        [served] = world.coordinator._shards
        [group] = served.shard.consumer_groups.values()
        assert set(group.image.regexes) == {"clicks"}
        member.leave()
        assert not group.image.regexes

    def test_a_pattern_is_taken_back(self, world: ConsumerWorld) -> None:
        member = world.client(topics=["clicks"], subscribed_topic_regex="orders")
        world.settle(member)
        member.beat(subscribed_topic_regex="")
        world.settle(member)
        assert member.owned == {("clicks", 0), ("clicks", 1)}

    @pytest.mark.parametrize("pattern", ["or(", "(?=x)", r"(a)\1", "x{1001}", "y" * 5_000])
    def test_patterns_that_cannot_be_used(self, world: ConsumerWorld, pattern: str) -> None:
        answer = pattern_client(world, pattern).beat()
        assert code(answer) is ErrorCode.INVALID_REGULAR_EXPRESSION
        assert "SubscribedTopicRegex" in (answer.error_message or "")
        assert code(world.describe()) is ErrorCode.GROUP_ID_NOT_FOUND

    def test_without_the_library_there_is_a_sentence(
        self, world: ConsumerWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "re2", None)
        answer = pattern_client(world, "orders").beat()
        assert (code(answer), answer.error_message) == (
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            NO_LIBRARY,
        )

    def test_a_new_coordinator_looks_again(self, world: ConsumerWorld, cluster: Cluster) -> None:
        member = pattern_client(world, "or.*")
        world.settle(member)
        cluster.put("origins", 1)
        member.world = later = world.fail_over(2)
        later.advance(10_001)
        later.settle(member)
        assert ("origins", 0) in member.owned

    def test_a_pattern_takes_linear_time(self) -> None:
        check_pattern("(a+)+b")
        matching = Matching(["(a+)+b"], ["a" * 249], every_topic)
        assert matching.go_on() == {"(a+)+b": frozenset()}
        assert matching.is_done


class TestHash:
    """The numbers are those of Kafka 4.3.1's own `Utils.computeTopicHash`, through hash4j."""

    TOPIC = TopicFacts("flights-é", UUID(int=0x0102030405060708_1112131415161718), 2)

    def test_a_topic(self) -> None:
        racks = [["rack-b", "rack-a"], ["rack-a", "rack-b"]]
        assert topic_hash(self.TOPIC, racks) == -6936920300771644618

    def test_a_group_of_one_topic(self, cluster: Cluster) -> None:
        cluster.topics["flights-é"] = self.TOPIC
        cluster.rack_names = ["rack-b", "rack-a"]
        assert TopicHashes(cluster).of_group(["flights-é", "absent"]) == -2267227429844809474
        assert TopicHashes(cluster).of_group(["absent"]) == 0
