"""Members of the consumer protocol: joining, reconciliation, fencing, leaving, static members."""

from __future__ import annotations

from typing import Any

import pytest

from strandline.errors import ErrorCode
from strandline.groups.consumer.cluster_view import GroupTimes
from strandline.groups.consumer.records import MemberAssignment
from strandline.groups.offset_records import encode_record
from strandline.groups.settings import ConsumerGroupSettings, GroupSettings
from strandline.protocol.messages.consumer_groups_topic import (
    ConsumerGroupCurrentMemberAssignmentValue,
    TopicPartitions,
)
from tests.groups.consumer.world import Cluster, ConsumerWorld, code

ALL_ORDERS = {("orders", number) for number in range(4)}
SESSION_MS = 45_000
REBALANCE_MS = 60_000


class TestJoining:
    def test_the_first_member_gets_everything_at_epoch_two(self, world: ConsumerWorld) -> None:
        member = world.client()
        answer = member.beat()
        assert (answer.member_id, answer.member_epoch) == ("m", 2)
        assert answer.heartbeat_interval_ms == 5_000
        assert member.owned == ALL_ORDERS
        assert world.states() == ("Stable", 2, 2)

    def test_old_clients_are_given_a_member_id(self, world: ConsumerWorld) -> None:
        request = world.client(member_id="").request(
            topic_partitions=[], subscribed_topic_names=["orders"], rebalance_timeout_ms=1
        )
        answer = world.answer(request, version=0)
        assert len(answer.member_id) == 22
        assert world.describe().members[0].member_id == answer.member_id

    def test_topics_that_are_not_there_are_waited_for(
        self, world: ConsumerWorld, cluster: Cluster
    ) -> None:
        member = world.client(topics=["later"])
        member.beat()
        assert member.owned == set()
        cluster.put("later", 2)
        world.topics_changed("later", are_new=True)
        member.beat()
        assert member.owned == {("later", 0), ("later", 1)}

    @pytest.mark.parametrize(
        ("said", "sentence"),
        [
            ({"group_id": " "}, "GroupId can't be empty."),
            ({"member_id": ""}, "MemberId can't be empty."),
            ({"instance_id": " "}, "InstanceId can't be empty."),
            ({"rack_id": ""}, "RackId can't be empty."),
            ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
            ({"topic_partitions": None}, "TopicPartitions must be empty when (re-)joining."),
            (
                {"subscribed_topic_names": None},
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
                "(re-)joining.",
            ),
            ({"member_epoch": -3}, "MemberEpoch is invalid."),
            ({"member_epoch": -2}, "InstanceId can't be null."),
        ],
    )
    def test_requests_that_make_no_sense(
        self, world: ConsumerWorld, said: dict[str, Any], sentence: str
    ) -> None:
        answer = world.client().beat(**said)
        assert (code(answer), answer.error_message) == (ErrorCode.INVALID_REQUEST, sentence)

    def test_an_assignor_that_is_not_there(self, world: ConsumerWorld) -> None:
        answer = world.client().beat(server_assignor="sticky")
        assert code(answer) is ErrorCode.UNSUPPORTED_ASSIGNOR
        assert (answer.error_message or "").endswith("Supported assignors: uniform, range.")

    def test_a_full_group(self, consumer_world_type: type[ConsumerWorld], cluster: Cluster) -> None:
        settings = GroupSettings(consumer=ConsumerGroupSettings(members_max=1))
        world = consumer_world_type(settings, cluster=cluster)
        first, second = world.client("a"), world.client("b")
        first.beat()
        assert code(second.beat()) is ErrorCode.GROUP_MAX_SIZE_REACHED
        assert code(first.beat()) is ErrorCode.NONE

    def test_an_unknown_group_or_member(self, world: ConsumerWorld) -> None:
        stranger = world.client("stranger")
        stranger.epoch = 5
        assert code(stranger.beat()) is ErrorCode.GROUP_ID_NOT_FOUND
        world.client().beat()
        stranger.epoch = 5
        assert code(stranger.beat()) is ErrorCode.UNKNOWN_MEMBER_ID

    def test_what_is_said_once_holds(self, world: ConsumerWorld) -> None:
        member = world.client(topics=["orders", "clicks"])
        member.beat()
        answer = member.beat()
        assert answer.assignment is None
        assert len(member.owned) == 6

    def test_most_votes_choose_the_assignor(self, world: ConsumerWorld) -> None:
        world.client("a", server_assignor="range").beat()
        assert world.describe().assignor_name == "range"
        world.client("b").beat()
        world.client("c").beat()
        assert world.describe().assignor_name == "range"


class TestReconciliation:
    def test_a_partition_is_given_up_before_another_member_gets_it(
        self, world: ConsumerWorld
    ) -> None:
        first, second = world.client("a"), world.client("b")
        first.beat()
        second.beat()
        assert second.owned == set()
        assert world.states() == ("Reconciling", 3, 3)
        first.beat(topic_partitions=None)
        assert len(first.owned) == 2
        assert first.epoch == 2
        second.beat()
        assert second.owned == set()
        first.beat()
        assert first.epoch == 3
        second.beat()
        assert len(second.owned) == 2
        assert first.owned | second.owned == ALL_ORDERS
        assert not first.owned & second.owned
        assert world.states() == ("Stable", 3, 3)

    def test_a_member_that_has_given_up_already_goes_on_at_once(self, world: ConsumerWorld) -> None:
        first, second = world.client("a"), world.client("b")
        first.beat()
        second.beat()
        answer = first.beat(topic_partitions=[])
        assert answer.member_epoch == 3
        assert len(first.owned) == 2

    def test_what_is_not_subscribed_to_any_more_goes_at_once(
        self, world: ConsumerWorld, cluster: Cluster
    ) -> None:
        member = world.client(topics=["orders", "clicks"])
        member.beat()
        cluster.group_times = GroupTimes(assignment_interval_ms=60_000)
        member.beat(subscribed_topic_names=["clicks"])
        assert member.owned == {("clicks", 0), ("clicks", 1)}
        assert world.states() == ("Assigning", 3, 2)

    def test_assignments_are_not_computed_more_often_than_told(
        self, world: ConsumerWorld, cluster: Cluster
    ) -> None:
        cluster.group_times = GroupTimes(assignment_interval_ms=1_000)
        first, second = world.client("a"), world.client("b")
        first.beat()
        second.beat()
        assert second.epoch == 2
        assert world.states() == ("Assigning", 3, 2)
        world.advance(1_000)
        second.beat()
        assert world.states() == ("Reconciling", 3, 3)

    def test_a_clock_that_was_put_back_does_not_hold_up_the_next_assignment(
        self, world: ConsumerWorld, cluster: Cluster
    ) -> None:
        cluster.group_times = GroupTimes(assignment_interval_ms=1_000)
        world.client("a").beat()
        world.now = world.now._replace(wall_ms=world.now.wall_ms - 3_600_000)
        world.client("b").beat()
        assert world.states() == ("Reconciling", 3, 3)

    def test_new_partitions_bring_a_new_epoch(self, world: ConsumerWorld, cluster: Cluster) -> None:
        member = world.client()
        member.beat()
        cluster.put("orders", 6)
        world.topics_changed("orders")
        member.beat()
        assert len(member.owned) == 6
        assert world.states() == ("Stable", 3, 3)

    def test_a_topic_that_is_deleted_is_taken_away(
        self, world: ConsumerWorld, cluster: Cluster
    ) -> None:
        member = world.client(topics=["orders", "clicks"])
        member.beat()
        cluster.drop("orders")
        world.topics_changed("orders")
        member.owned = {each for each in member.owned if each[0] == "clicks"}
        member.beat()
        assert world.states() == ("Stable", 3, 3)
        assert member.owned == {("clicks", 0), ("clicks", 1)}

    def test_replicas_that_move_to_other_racks_bring_a_new_epoch(
        self, world: ConsumerWorld, cluster: Cluster
    ) -> None:
        member = world.client()
        member.beat()
        cluster.rack_names = ["a", "c"]
        world.topics_changed("orders")
        member.beat()
        assert world.states() == ("Stable", 3, 3)

    def test_changes_of_other_topics_bring_none(
        self, world: ConsumerWorld, cluster: Cluster
    ) -> None:
        member = world.client()
        member.beat()
        cluster.put("clicks", 9)
        world.topics_changed("clicks")
        member.beat()
        assert world.states() == ("Stable", 2, 2)


class TestFencing:
    def test_a_greater_epoch(self, world: ConsumerWorld) -> None:
        member = world.client()
        member.beat()
        member.epoch = 9
        answer = member.beat()
        assert code(answer) is ErrorCode.FENCED_MEMBER_EPOCH
        assert "greater member epoch (9)" in (answer.error_message or "")

    def test_the_epoch_before_is_that_of_a_lost_answer(self, world: ConsumerWorld) -> None:
        first, second = world.client("a"), world.client("b")
        first.beat()
        second.beat()
        first.beat()
        before = first.epoch
        first.beat()
        assert (before, first.epoch) == (2, 3)
        first.epoch = before
        answer = first.beat()
        assert (code(answer), answer.member_epoch) == (ErrorCode.NONE, 3)

    def test_the_epoch_before_with_partitions_of_others(self, world: ConsumerWorld) -> None:
        first, second = world.client("a"), world.client("b")
        first.beat()
        second.beat()
        first.beat()
        first.beat()
        first.epoch, first.owned = 2, ALL_ORDERS
        assert code(first.beat()) is ErrorCode.FENCED_MEMBER_EPOCH

    def test_a_fenced_member_comes_back_from_the_start(self, world: ConsumerWorld) -> None:
        member = world.client()
        member.beat()
        member.epoch = 9
        member.beat()
        assert code(member.beat()) is ErrorCode.NONE
        assert member.owned == ALL_ORDERS


class TestTime:
    def test_a_member_that_is_silent_is_out(self, world: ConsumerWorld) -> None:
        first, second = world.client("a"), world.client("b")
        world.settle(first, second)
        world.advance(SESSION_MS - 1_000)
        first.beat()
        world.advance(2_000)
        assert [member.member_id for member in world.describe().members] == ["a"]
        world.settle(first)
        assert first.owned == ALL_ORDERS
        assert code(second.beat()) is ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_member_that_does_not_give_up_is_out(self, world: ConsumerWorld) -> None:
        first, second = world.client("a"), world.client("b")
        first.beat()
        second.beat()
        for _ in range(REBALANCE_MS // 10_000 + 1):
            first.beat(topic_partitions=None)
            second.beat()
            world.advance(10_000)
        assert [member.member_id for member in world.describe().members] == ["b"]
        second.beat()
        assert second.owned == ALL_ORDERS

    def test_the_sessions_of_a_loaded_group_begin_anew(self, world: ConsumerWorld) -> None:
        world.client().beat()
        world.advance(SESSION_MS - 1)
        later = world.fail_over(2)
        later.advance(SESSION_MS - 1)
        assert len(later.describe().members) == 1
        later.advance(2)
        assert later.states()[0] == "Empty"

    def test_a_group_has_times_of_its_own(self, world: ConsumerWorld, cluster: Cluster) -> None:
        cluster.group_times = GroupTimes(session_timeout_ms=1_000, heartbeat_interval_ms=300)
        member = world.client()
        assert member.beat().heartbeat_interval_ms == 300
        world.advance(1_001)
        assert world.states()[0] == "Empty"


class TestLeaving:
    def test_partitions_of_one_that_leaves_are_free_at_once(self, world: ConsumerWorld) -> None:
        first, second = world.client("a"), world.client("b")
        world.settle(first, second)
        answer = first.leave()
        assert (code(answer), answer.member_epoch) == (ErrorCode.NONE, -1)
        second.beat()
        assert second.owned == ALL_ORDERS

    def test_the_last_one_leaves_an_empty_group(self, world: ConsumerWorld) -> None:
        member = world.client()
        member.beat()
        member.leave()
        assert world.states()[:2] == ("Empty", 3)
        assert code(member.leave()) is ErrorCode.UNKNOWN_MEMBER_ID


class TestStaticMembers:
    def test_a_successor_takes_over_without_an_assignment(self, world: ConsumerWorld) -> None:
        first, other = world.client("a", instance_id="i"), world.client("b")
        world.settle(first, other)
        owned, epoch = first.owned, world.states()
        assert first.leave(-2).member_epoch == -2
        successor = world.client("c", instance_id="i")
        successor.beat()
        assert successor.owned == owned
        assert world.states() == epoch
        assert code(first.beat()) is ErrorCode.FENCED_INSTANCE_ID

    def test_an_instance_that_is_not_released(self, world: ConsumerWorld) -> None:
        world.client("a", instance_id="i").beat()
        answer = world.client("c", instance_id="i").beat()
        assert code(answer) is ErrorCode.UNRELEASED_INSTANCE_ID

    def test_one_that_went_for_a_while_too_long(self, world: ConsumerWorld) -> None:
        member = world.client("a", instance_id="i")
        member.beat()
        member.leave(-2)
        world.advance(SESSION_MS + 1)
        assert world.states()[0] == "Empty"

    def test_one_that_goes_for_good(self, world: ConsumerWorld) -> None:
        member = world.client("a", instance_id="i")
        member.beat()
        member.leave(-1)
        assert world.states()[0] == "Empty"
        assert code(world.client("c", instance_id="i").beat()) is ErrorCode.NONE

    def test_an_unknown_instance(self, world: ConsumerWorld) -> None:
        world.client("a").beat()
        stranger = world.client("s", instance_id="i")
        stranger.epoch = 3
        assert code(stranger.beat()) is ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_successor_with_another_subscription(self, world: ConsumerWorld) -> None:
        first = world.client("a", instance_id="i")
        first.beat()
        first.leave(-2)
        successor = world.client("c", topics=["clicks"], instance_id="i")
        world.settle(successor)
        assert successor.owned == {("clicks", 0), ("clicks", 1)}


class TestDurability:
    def test_an_answer_waits_for_its_records(self, world: ConsumerWorld) -> None:
        world.hold = True
        token = world.ask(
            world.client().request(
                rebalance_timeout_ms=1, subscribed_topic_names=["orders"], topic_partitions=[]
            )
        )
        assert token not in world.replies
        assert code(world.describe()) is ErrorCode.GROUP_ID_NOT_FOUND
        world.release()
        assert world.replies[token].member_epoch == 2
        assert world.states() == ("Stable", 2, 2)

    def test_an_answer_waits_for_the_records_of_others_that_it_rests_on(
        self, world: ConsumerWorld
    ) -> None:
        first, second = world.client("a"), world.client("b")
        first.beat()
        world.hold = True
        world.ask(second.request(**second.first, topic_partitions=[]))
        token = world.ask(first.request(topic_partitions=None))
        assert token not in world.replies
        world.release()
        assert world.replies[token].assignment is not None

    @pytest.mark.parametrize(
        ("refusal", "told"),
        [
            (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
            (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
            (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        ],
    )
    def test_a_change_that_is_refused_has_not_happened(
        self, world: ConsumerWorld, refusal: ErrorCode, told: ErrorCode
    ) -> None:
        first, second = world.client("a"), world.client("b")
        first.beat()
        world.fail_with = refusal
        assert code(second.beat()) is told
        assert world.states() == ("Stable", 2, 2)
        first.beat()
        assert first.owned == ALL_ORDERS
        world.settle(second, first)
        assert len(first.owned) == len(second.owned) == 2

    def test_a_member_whose_fencing_is_refused_is_watched_again(self, world: ConsumerWorld) -> None:
        world.client().beat()
        world.fail_with = ErrorCode.NOT_ENOUGH_REPLICAS
        world.advance(SESSION_MS + 1)
        assert world.states()[0] == "Stable"
        world.advance(SESSION_MS + 1)
        assert world.states()[0] == "Empty"

    def test_two_members_are_fenced_at_once_and_the_first_fencing_is_refused(
        self, world: ConsumerWorld
    ) -> None:
        """Seed 110010241: handles of files ran out for the append of the first one only."""
        for member_id in ("a", "b"):
            world.client(member_id).beat()
        world.fail_with = ErrorCode.KAFKA_STORAGE_ERROR
        world.advance(SESSION_MS)
        assert [member.member_id for member in world.describe().members] == ["a"]
        world.advance(SESSION_MS)
        assert world.states()[0] == "Empty"

    def test_a_new_coordinator_finds_everything(self, world: ConsumerWorld) -> None:
        first = world.client("a", instance_id="i", rack_id="r")
        second = world.client("b", topics=["orders", "clicks"])
        world.settle(first, second)
        first.leave(-2)
        second.beat()
        later = world.fail_over(2)
        assert later.describe() == world.describe()

    def test_groups_that_are_gone_stay_gone(self, world: ConsumerWorld) -> None:
        member = world.client()
        member.beat()
        member.leave()
        world.advance(11 * 60_000)
        assert code(world.describe()) is ErrorCode.GROUP_ID_NOT_FOUND
        assert code(world.fail_over(2).describe()) is ErrorCode.GROUP_ID_NOT_FOUND
        assert member.world.client().beat().member_epoch == 2

    def test_a_state_of_a_later_kafka_is_begun_anew(
        self, world: ConsumerWorld, cluster: Cluster
    ) -> None:
        member = world.client()
        member.beat()
        owned = TopicPartitions(topic_id=cluster.topics["orders"].topic_id, partitions=[0, 1])
        value = ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=2, previous_member_epoch=1, state=9, assigned_partitions=[owned]
        )
        world.log[0].append(encode_record(MemberAssignment("g", "m", value)))
        member.world = later = world.fail_over(2)
        assert code(member.beat(topic_partitions=None)) is ErrorCode.FENCED_MEMBER_EPOCH
        member.beat()
        assert member.owned == ALL_ORDERS
        assert later.states() == ("Stable", 2, 2)
