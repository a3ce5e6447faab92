"""OffsetCommit, OffsetFetch and OffsetDelete."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

import pytest

from strandline.errors import ErrorCode, InvariantViolated
from strandline.groups.offset_records import OffsetRecord
from strandline.groups.requests import Token
from strandline.groups.settings import GroupSettings
from strandline.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from strandline.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseTopics,
)
from strandline.protocol.messages.offsets_topic import OffsetCommitValue
from strandline.types import NO_TOPIC_ID, TopicPartition
from tests.groups.world import World

ORDERS_0, ORDERS_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


class TestCommit:
    def test_anyone_may_commit_to_a_group_without_members(self, world: World) -> None:
        assert world.commit_error((0, 5), (1, 6)) == ErrorCode.NONE
        assert world.offsets() == {ORDERS_0: 5, ORDERS_1: 6}
        assert world.state() == "Empty"
        assert world.commit_error((0, 7), generation=-1, member_id="someone") == ErrorCode.NONE
        assert world.offsets()[ORDERS_0] == 7

    def test_the_empty_group_id_is_allowed(self, world: World) -> None:
        assert world.commit_error((0, 5), group="") == ErrorCode.NONE
        assert world.offsets("") == {ORDERS_0: 5}

    @pytest.mark.parametrize(
        ("version", "error"),
        [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)],
    )
    def test_a_member_of_an_unknown_group(
        self, world: World, version: int, error: ErrorCode
    ) -> None:
        refused = world.commit_error((0, 5), generation=3, member_id="m", version=version)
        assert refused is error
        assert world.coordinator.overviews() == []

    def test_members_commit_with_their_generation(self, world: World) -> None:
        [member], generation = world.stable_group()
        good = {"generation": generation, "member_id": member}
        assert world.commit_error((0, 5), **good) == ErrorCode.NONE
        unknown, illegal = ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION
        assert world.commit_error((0, 5)) is unknown
        assert world.commit_error((0, 5), **(good | {"member_id": "stranger"})) is unknown
        assert world.commit_error((0, 5), **(good | {"generation": 9})) is illegal
        assert world.commit_error((0, 5), **(good | {"generation": -1})) is illegal
        assert world.commit_error((0, 5), **good, group_instance_id="i") is unknown

    def test_between_join_and_sync(self, world: World) -> None:
        member, _ = world.new_member()
        world.advance(3_000)
        error = world.commit_error((0, 5), generation=1, member_id=member)
        assert error is ErrorCode.REBALANCE_IN_PROGRESS

    def test_a_commit_is_a_sign_of_life(self, world: World) -> None:
        [member], generation = world.stable_group()
        for _ in range(3):
            world.advance(9_000)
            world.commit((0, 5), generation=generation, member_id=member)
        assert world.heartbeat(member, generation) == ErrorCode.NONE

    def test_retention_for_ever(self, world: World) -> None:
        forever = 2**63 - 1
        assert world.commit_error((0, 5), version=2, retention_time_ms=forever) == ErrorCode.NONE
        assert world.commit_error((0, 6), group="other") == ErrorCode.NONE
        successor = world.fail_over(2)
        successor.advance(successor.settings.offsets_retention_ms * 2)
        assert successor.offsets() == {ORDERS_0: 5}
        assert successor.offsets("other") == {}

    def test_a_record_that_cannot_be_written_holds_up_no_other(self, world: World) -> None:
        served = world.coordinator._shards.at(0)
        assert served is not None
        record = OffsetRecord("g", ORDERS_0, OffsetCommitValue(offset=2**63))
        with pytest.raises(InvariantViolated):
            served.shard.append([record], world.now)
        assert not served.shard.is_writing("g")
        assert world.commit_error((0, 5)) == ErrorCode.NONE
        assert world.offsets(require_stable=True) == {ORDERS_0: 5}

    def test_metadata_too_large(self, world_type: type[World]) -> None:
        world = world_type(GroupSettings(offset_metadata_max=4))
        [topic] = world.replies[world.commit((0, 5, "1234"), (1, 6, "12345"))].topics
        too_large = ErrorCode.OFFSET_METADATA_TOO_LARGE
        assert world.outcomes(topic) == [(0, ErrorCode.NONE), (1, too_large)]
        assert world.offsets() == {ORDERS_0: 5}
        assert world.commit_error((0, 9, "\U0001f600\U0001f600")) == ErrorCode.NONE
        assert world.commit_error((0, 9, "\U0001f600\U0001f600x")) is too_large

    def test_a_commit_of_nothing_makes_no_group(self, world_type: type[World]) -> None:
        world = world_type(GroupSettings(offset_metadata_max=4))
        assert world.commit_error((0, 5, "12345")) is ErrorCode.OFFSET_METADATA_TOO_LARGE
        assert world.log[0] == []
        assert world.state() is None

    def test_commits_are_answered_and_readable_when_durable(self, world: World) -> None:
        world.hold = True
        token = world.commit((0, 5))
        assert token not in world.replies
        assert world.offsets() == {}
        assert world.state() is None
        world.release()
        assert world.outcomes(world.replies[token].topics[0]) == [(0, ErrorCode.NONE)]
        assert world.offsets() == {ORDERS_0: 5}

    @pytest.mark.parametrize(
        ("met", "told"),
        [
            (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
            (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
            (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
            (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
            (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
            (ErrorCode.CORRUPT_MESSAGE, ErrorCode.CORRUPT_MESSAGE),
        ],
    )
    def test_commits_that_cannot_be_written(
        self, world: World, met: ErrorCode, told: ErrorCode
    ) -> None:
        world.commit((0, 4))
        world.hold = True
        token = world.commit((0, 5))
        world.refuse(met)
        assert world.outcomes(world.replies[token].topics[0]) == [(0, told)]
        assert world.offsets() == {ORDERS_0: 4}

    def test_a_simple_group_that_could_not_be_written_is_gone(self, world: World) -> None:
        world.fail_with = ErrorCode.NOT_ENOUGH_REPLICAS
        world.commit((0, 5))
        error = world.commit_error((0, 5), generation=3, member_id="m")
        assert error is ErrorCode.GROUP_ID_NOT_FOUND

    def test_an_overdue_commit_counts_when_it_is_durable_after_all(self, world: World) -> None:
        world.hold = True
        token = world.commit((0, 5))
        world.advance(5_000)
        told = ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert world.outcomes(world.replies[token].topics[0]) == [(0, told)]
        assert world.offsets() == {}
        world.release()
        assert world.offsets() == {ORDERS_0: 5}, "it is in the log, where a fail-over finds it"

    def test_a_commit_that_has_too_few_replicas_for_now(self, world: World) -> None:
        world.hold = True
        token = world.commit((0, 5))
        after = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        world.run(world.coordinator.appended(world.held[0], after, world.now))
        told = ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert world.outcomes(world.replies[token].topics[0]) == [(0, told)]
        world.release()
        assert world.offsets() == {ORDERS_0: 5}, "it was in the log all the time"

    def test_later_commits_win_whatever_becomes_of_earlier_ones(self, world: World) -> None:
        world.hold = True
        world.commit((0, 5))
        world.commit((0, 6))
        world.commit((0, 7))
        world.release(1)
        assert world.offsets() == {ORDERS_0: 5}
        world.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
        assert world.offsets() == {ORDERS_0: 5}
        world.release()
        assert world.offsets() == {ORDERS_0: 7}


def wanted(group: str, *topics: Any) -> OffsetFetchRequestGroup:
    """What is asked of one group: (topic, partitions[, topic id]), or everything."""
    asked = [
        OffsetFetchRequestTopics(
            name=name, partition_indexes=list(partitions), topic_id=more[0] if more else NO_TOPIC_ID
        )
        for name, partitions, *more in topics
    ]
    return OffsetFetchRequestGroup(group_id=group, topics=asked or None)


def found(topic: OffsetFetchResponseTopics) -> list[tuple[int, int, str | None]]:
    """(partition, offset, metadata) of a topic's committed offsets."""
    return [
        (item.partition_index, item.committed_offset, item.metadata) for item in topic.partitions
    ]


class TestFetch:
    def fetch(
        self, world: World, *groups: OffsetFetchRequestGroup, require_stable: bool = False
    ) -> Token:
        return world.ask(OffsetFetchRequest(groups=list(groups), require_stable=require_stable))

    def test_several_groups_with_their_topics(self, world: World) -> None:
        world.commit((0, 5, "note"), group="a")
        world.commit((3, 8), group="b", topic="payments")
        token = self.fetch(
            world,
            wanted("b"),
            wanted("a", ("orders", (1, 0)), ("none", (0,))),
            wanted("unknown", ("orders", (0,))),
            wanted("unknown"),
        )
        b, a, unknown, unknown_all = world.replies[token].groups
        assert [(topic.name, found(topic)) for topic in b.topics] == [("payments", [(3, 8, "")])]
        assert found(a.topics[0]) == [(1, -1, ""), (0, 5, "note")]
        assert found(a.topics[1]) == [(0, -1, "")]
        assert found(unknown.topics[0]) == [(0, -1, "")]
        assert (unknown.error_code, unknown_all.topics) == (ErrorCode.NONE, [])

    def test_offsets_of_an_earlier_topic_of_the_same_name(self, world: World) -> None:
        old, new = UUID(int=1), UUID(int=2)
        world.commit((0, 5), topic_id=old)
        for asked, offset in ((old, 5), (new, -1), (UUID(int=0), 5)):
            token = self.fetch(world, wanted("g", ("orders", (0,), asked)))
            [topic] = world.replies[token].groups[0].topics
            assert found(topic) == [(0, offset, "")]
            assert topic.topic_id == asked

    def test_stable_offsets_wait_for_what_is_being_written(self, world: World) -> None:
        world.commit((0, 5))
        world.hold = True
        world.commit((0, 6))
        world.commit((1, 1))
        token = self.fetch(world, wanted("g"), require_stable=True)
        other = self.fetch(world, wanted("other"), require_stable=True)
        assert other in world.replies
        world.release(1)
        assert token not in world.replies
        world.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
        [topic] = world.replies[token].groups[0].topics
        assert found(topic) == [(0, 6, "")]

    def test_stable_offsets_that_take_too_long(self, world: World) -> None:
        world.hold = True
        world.commit((0, 6))
        world.advance(4_999)
        token = self.fetch(world, wanted("g"), require_stable=True)
        world.advance(1)
        assert world.replies[token].groups[0].error_code == ErrorCode.NOT_COORDINATOR
        late = self.fetch(world, wanted("g"), require_stable=True)
        assert late not in world.replies
        world.advance(5_000)
        assert world.replies[late].groups[0].error_code == ErrorCode.NOT_COORDINATOR

    def test_no_groups(self, world: World) -> None:
        assert world.replies[self.fetch(world)].groups == []


class TestDelete:
    def delete(self, world: World, *topics: tuple[str, Iterable[int]], group: str = "g") -> Token:
        asked = [
            OffsetDeleteRequestTopic(
                name=name,
                partitions=[OffsetDeleteRequestPartition(partition_index=n) for n in partitions],
            )
            for name, partitions in topics
        ]
        return world.ask(OffsetDeleteRequest(group_id=group, topics=asked))

    def test_group_errors(self, world: World) -> None:
        refused = world.replies[self.delete(world, ("orders", (0,)), group="")]
        assert refused.error_code == ErrorCode.INVALID_GROUP_ID
        refused = world.replies[self.delete(world, ("orders", (0,)))]
        assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        world.stable_group(protocol_type="connect")
        refused = world.replies[self.delete(world, ("orders", (0,)))]
        assert refused.error_code == ErrorCode.NON_EMPTY_GROUP

    def test_only_topics_without_subscribers(self, world: World) -> None:
        world.commit((0, 5))
        world.commit((0, 5), (1, 6), topic="payments")
        world.stable_group()
        token = self.delete(world, ("orders", (0,)), ("payments", (0, 9, 0)))
        orders, payments = world.replies[token].topics
        assert world.outcomes(orders) == [(0, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)]
        assert world.outcomes(payments) == [(number, ErrorCode.NONE) for number in (0, 9, 0)]
        assert world.offsets() == {ORDERS_0: 5, TopicPartition("payments", 1): 6}
        assert world.fail_over(2).offsets() == world.offsets()

    def test_unknown_subscriptions_protect_everything(self, world: World) -> None:
        world.commit((0, 5))
        world.new_member()
        [topic] = world.replies[self.delete(world, ("orders", (0,)))].topics
        assert world.outcomes(topic) == [(0, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)]

    def test_a_deletion_follows_commits_in_flight(self, world: World) -> None:
        world.commit((1, 1))
        world.hold = True
        world.commit((0, 5))
        token = self.delete(world, ("orders", (0,)))
        world.release(1)
        assert token not in world.replies
        world.release()
        assert world.replies[token].error_code == ErrorCode.NONE
        assert world.offsets() == {ORDERS_1: 1}

    def test_nothing_to_delete(self, world: World) -> None:
        world.commit((0, 5))
        world.hold = True
        assert world.replies[self.delete(world, ("orders", (7,)))].topics

    def test_that_cannot_be_written(self, world: World) -> None:
        world.commit((0, 5))
        world.fail_with = ErrorCode.NOT_ENOUGH_REPLICAS
        refused = world.replies[self.delete(world, ("orders", (0,)))]
        assert refused.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert world.offsets() == {ORDERS_0: 5}
