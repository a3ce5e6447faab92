"""OffsetCommit, OffsetFetch and OffsetDelete."""

from __future__ import annotations

from uuid import UUID

import pytest

from strandline.errors import ErrorCode
from strandline.groups.offset_requests import (
    FetchedOffset,
    GroupFetch,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    TopicFetch,
)
from strandline.groups.settings import GroupSettings
from strandline.types import TopicPartition

ORDERS_0, ORDERS_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


class TestCommit:
    def test_anyone_may_commit_to_a_group_without_members(self, world):
        assert world.commit_error((0, 5), (1, 6)) is ErrorCode.NONE
        assert world.offsets() == {ORDERS_0: 5, ORDERS_1: 6}
        assert world.state() == "Empty"
        assert world.commit_error((0, 7), generation=-1, member_id="someone") is ErrorCode.NONE
        assert world.offsets()[ORDERS_0] == 7

    def test_the_empty_group_id_is_allowed(self, world):
        assert world.commit_error((0, 5), group="") is ErrorCode.NONE
        assert world.offsets("") == {ORDERS_0: 5}

    @pytest.mark.parametrize(
        ("version", "error"),
        [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)],
    )
    def test_a_member_of_an_unknown_group(self, world, version, error):
        refused = world.commit_error((0, 5), generation=3, member_id="m", version=version)
        assert refused is error
        assert world.coordinator.overviews() == []

    def test_members_commit_with_their_generation(self, world):
        [member], generation = world.stable_group()
        good = {"generation": generation, "member_id": member}
        assert world.commit_error((0, 5), **good) is ErrorCode.NONE
        unknown, illegal = ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION
        assert world.commit_error((0, 5)) is unknown
        assert world.commit_error((0, 5), **(good | {"member_id": "stranger"})) is unknown
        assert world.commit_error((0, 5), **(good | {"generation": 9})) is illegal
        assert world.commit_error((0, 5), **(good | {"generation": -1})) is illegal
        assert world.commit_error((0, 5), **good, group_instance_id="i") is unknown

    def test_between_join_and_sync(self, world):
        member, _ = world.new_member()
        world.advance(3_000)
        error = world.commit_error((0, 5), generation=1, member_id=member)
        assert error is ErrorCode.REBALANCE_IN_PROGRESS

    def test_a_commit_is_a_sign_of_life(self, world):
        [member], generation = world.stable_group()
        for _ in range(3):
            world.advance(9_000)
            world.commit((0, 5), generation=generation, member_id=member)
        assert world.heartbeat(member, generation) is ErrorCode.NONE

    def test_metadata_too_large(self, world_type):
        world = world_type(GroupSettings(offset_metadata_max=4))
        [topic] = world.replies[world.commit((0, 5, "1234"), (1, 6, "12345"))].topics
        too_large = ErrorCode.OFFSET_METADATA_TOO_LARGE
        assert topic.partitions == ((0, ErrorCode.NONE), (1, too_large))
        assert world.offsets() == {ORDERS_0: 5}
        assert world.commit_error((0, 9, "\U0001f600\U0001f600")) is ErrorCode.NONE
        assert world.commit_error((0, 9, "\U0001f600\U0001f600x")) is too_large

    def test_a_commit_of_nothing_makes_no_group(self, world_type):
        world = world_type(GroupSettings(offset_metadata_max=4))
        assert world.commit_error((0, 5, "12345")) is ErrorCode.OFFSET_METADATA_TOO_LARGE
        assert world.log[0] == []
        assert world.state() is None

    def test_commits_are_answered_and_readable_when_durable(self, world):
        world.hold = True
        token = world.commit((0, 5))
        assert token not in world.replies
        assert world.offsets() == {}
        assert world.state() is None
        world.release()
        assert world.replies[token].topics[0].partitions == ((0, ErrorCode.NONE),)
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
    def test_commits_that_cannot_be_written(self, world, met, told):
        world.commit((0, 4))
        world.hold = True
        token = world.commit((0, 5))
        world.refuse(met)
        assert world.replies[token].topics[0].partitions == ((0, told),)
        assert world.offsets() == {ORDERS_0: 4}

    def test_a_simple_group_that_could_not_be_written_is_gone(self, world):
        world.fail_with = ErrorCode.NOT_ENOUGH_REPLICAS
        world.commit((0, 5))
        error = world.commit_error((0, 5), generation=3, member_id="m")
        assert error is ErrorCode.GROUP_ID_NOT_FOUND

    def test_an_overdue_commit_counts_when_it_is_durable_after_all(self, world):
        world.hold = True
        token = world.commit((0, 5))
        world.advance(5_000)
        told = ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert world.replies[token].topics[0].partitions == ((0, told),)
        assert world.offsets() == {}
        world.release()
        assert world.offsets() == {ORDERS_0: 5}, "it is in the log, where a fail-over finds it"

    def test_a_commit_that_has_too_few_replicas_for_now(self, world):
        world.hold = True
        token = world.commit((0, 5))
        after = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        world.run(world.coordinator.appended(world.held[0], after, world.now))
        told = ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert world.replies[token].topics[0].partitions == ((0, told),)
        world.release()
        assert world.offsets() == {ORDERS_0: 5}, "it was in the log all the time"

    def test_later_commits_win_whatever_becomes_of_earlier_ones(self, world):
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


class TestFetch:
    def fetch(self, world, *groups, require_stable=False):
        request = OffsetFetchRequest(world.token(), groups, require_stable)
        return world.ask(request)

    def test_several_groups_with_their_topics(self, world):
        world.commit((0, 5, "note"), group="a")
        world.commit((3, 8), group="b", topic="payments")
        token = self.fetch(
            world,
            GroupFetch("b", None),
            GroupFetch("a", (TopicFetch("orders", (1, 0)), TopicFetch("none", (0,)))),
            GroupFetch("unknown", (TopicFetch("orders", (0,)),)),
            GroupFetch("unknown", None),
        )
        b, a, unknown, unknown_all = world.replies[token].groups
        assert [(t.topic, t.partitions) for t in b.topics] == [("payments", (FetchedOffset(3, 8),))]
        assert a.topics[0].partitions == (FetchedOffset(1), FetchedOffset(0, 5, metadata="note"))
        assert a.topics[1].partitions == (FetchedOffset(0),)
        assert unknown.topics[0].partitions == (FetchedOffset(0),)
        assert (unknown.error, unknown_all.topics) == (ErrorCode.NONE, ())

    def test_offsets_of_an_earlier_topic_of_the_same_name(self, world):
        old, new = UUID(int=1), UUID(int=2)
        world.commit((0, 5), topic_id=old)
        for asked, found in ((old, 5), (new, -1), (UUID(int=0), 5)):
            token = self.fetch(world, GroupFetch("g", (TopicFetch("orders", (0,), asked),)))
            assert world.replies[token].groups[0].topics[0].partitions[0].offset == found
            assert world.replies[token].groups[0].topics[0].topic_id == asked

    def test_stable_offsets_wait_for_what_is_being_written(self, world):
        world.commit((0, 5))
        world.hold = True
        world.commit((0, 6))
        world.commit((1, 1))
        token = self.fetch(world, GroupFetch("g", None), require_stable=True)
        other = self.fetch(world, GroupFetch("other", None), require_stable=True)
        assert other in world.replies
        world.release(1)
        assert token not in world.replies
        world.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
        [topic] = world.replies[token].groups[0].topics
        assert topic.partitions == (FetchedOffset(0, 6),)

    def test_stable_offsets_that_take_too_long(self, world):
        world.hold = True
        world.commit((0, 6))
        world.advance(4_999)
        token = self.fetch(world, GroupFetch("g", None), require_stable=True)
        world.advance(1)
        assert world.replies[token].groups[0].error is ErrorCode.NOT_COORDINATOR
        late = self.fetch(world, GroupFetch("g", None), require_stable=True)
        assert late not in world.replies
        world.advance(5_000)
        assert world.replies[late].groups[0].error is ErrorCode.NOT_COORDINATOR

    def test_no_groups(self, world):
        assert world.replies[self.fetch(world)].groups == ()


class TestDelete:
    def delete(self, world, *topics, group="g"):
        return world.ask(OffsetDeleteRequest(world.token(), group, topics))

    def test_group_errors(self, world):
        refused = world.replies[self.delete(world, ("orders", (0,)), group="")]
        assert refused.error is ErrorCode.INVALID_GROUP_ID
        refused = world.replies[self.delete(world, ("orders", (0,)))]
        assert refused.error is ErrorCode.GROUP_ID_NOT_FOUND
        world.stable_group(protocol_type="connect")
        refused = world.replies[self.delete(world, ("orders", (0,)))]
        assert refused.error is ErrorCode.NON_EMPTY_GROUP

    def test_only_topics_without_subscribers(self, world):
        world.commit((0, 5))
        world.commit((0, 5), (1, 6), topic="payments")
        world.stable_group()
        token = self.delete(world, ("orders", (0,)), ("payments", (0, 9, 0)))
        orders, payments = world.replies[token].topics
        assert orders.partitions == ((0, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC),)
        assert payments.partitions == (
            (0, ErrorCode.NONE),
            (9, ErrorCode.NONE),
            (0, ErrorCode.NONE),
        )
        assert world.offsets() == {ORDERS_0: 5, TopicPartition("payments", 1): 6}
        assert world.fail_over(2).offsets() == world.offsets()

    def test_unknown_subscriptions_protect_everything(self, world):
        world.commit((0, 5))
        world.new_member()
        [topic] = world.replies[self.delete(world, ("orders", (0,)))].topics
        assert topic.partitions == ((0, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC),)

    def test_a_deletion_follows_commits_in_flight(self, world):
        world.commit((1, 1))
        world.hold = True
        world.commit((0, 5))
        token = self.delete(world, ("orders", (0,)))
        world.release(1)
        assert token not in world.replies
        world.release()
        assert world.replies[token].error is ErrorCode.NONE
        assert world.offsets() == {ORDERS_1: 1}

    def test_nothing_to_delete(self, world):
        world.commit((0, 5))
        world.hold = True
        assert world.replies[self.delete(world, ("orders", (7,)))].topics

    def test_that_cannot_be_written(self, world):
        world.commit((0, 5))
        world.fail_with = ErrorCode.NOT_ENOUGH_REPLICAS
        refused = world.replies[self.delete(world, ("orders", (0,)))]
        assert refused.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert world.offsets() == {ORDERS_0: 5}
