"""Groups in which members of both protocols are, and groups that change from one to the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from strandline.errors import ErrorCode
from strandline.groups.consumer_protocol import assigned_partitions
from strandline.groups.settings import ConsumerGroupSettings, GroupSettings
from strandline.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from strandline.protocol.messages.consumer_protocol import TopicPartition as Numbers
from strandline.protocol.messages.join_group import JoinGroupRequestProtocol, JoinGroupResponse
from strandline.protocol.messages.sync_group import SyncGroupResponse
from strandline.protocol.schema import encode_versioned
from tests.groups.consumer.world import Client, Cluster, ConsumerWorld, code

ALL_ORDERS = {("orders", number) for number in range(4)}
SESSION_MS = 45_000

MakeGroup = Callable[..., "list[ClassicClient]"]
"""Makes the members of a stable classic group; in another world than the usual, if told."""


def numbers(partitions: Iterable[tuple[str, int]]) -> list[Numbers]:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(partition)
    return [Numbers(topic=topic, partitions=found) for topic, found in by_topic.items()]


class ClassicClient:
    """A consumer of the classic protocol with cooperative rebalances."""

    def __init__(
        self,
        world: ConsumerWorld,
        topics: Iterable[str] = ("orders",),
        instance_id: str | None = None,
    ) -> None:
        self.world, self.topics, self.instance_id = world, topics, instance_id
        self.member_id, self.generation = "", -1
        self.owned: set[tuple[str, int]] = set()

    def protocols(self) -> list[JoinGroupRequestProtocol]:
        subscription = ConsumerProtocolSubscription(
            topics=list(self.topics),
            owned_partitions=numbers(self.owned),
            generation_id=self.generation,
        )
        metadata = encode_versioned(subscription, 3)
        return [
            JoinGroupRequestProtocol(name=name, metadata=metadata)
            for name in ("cooperative-sticky", "range")
        ]

    def join(self) -> JoinGroupResponse | None:
        """Join, with the id that is asked for first; returns the answer, if there is one yet."""
        fields: dict[str, Any] = {
            "protocols": self.protocols(),
            "group_instance_id": self.instance_id,
        }
        token = self.world.join(self.member_id, **fields)
        answer = self.world.replies.get(token)
        if answer is not None and code(answer) is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            token = self.world.join(self.member_id, **fields)
        self.joining = token
        return self.joined()

    def joined(self) -> JoinGroupResponse | None:
        answer: JoinGroupResponse | None = self.world.replies.get(self.joining)
        if answer is not None and code(answer) is ErrorCode.NONE:
            self.member_id, self.generation = answer.member_id, answer.generation_id
        return answer

    def sync(self, assignments: Iterable[tuple[str, bytes]] = ()) -> SyncGroupResponse | None:
        token = self.world.sync(
            self.member_id, self.generation, assignments, group_instance_id=self.instance_id
        )
        self.syncing = token
        answer: SyncGroupResponse | None = self.world.replies.get(token)
        if answer is not None and code(answer) is ErrorCode.NONE:
            self.owned = set(assigned_partitions(answer.assignment))
        return answer

    def beat(self) -> ErrorCode:
        error = self.world.heartbeat(self.member_id, self.generation, instance=self.instance_id)
        if error == ErrorCode.REBALANCE_IN_PROGRESS:
            self.join()
            self.sync()
        return ErrorCode(error)


@pytest.fixture
def classic_group(world: ConsumerWorld) -> MakeGroup:
    """Two members of a stable classic group, who own half of the orders each."""

    def make(world: ConsumerWorld = world, **more: Any) -> list[ClassicClient]:
        clients = [ClassicClient(world, **more) for _ in range(2)]
        for client in clients:
            client.join()
        world.advance(9_001)
        parts = []
        for index, client in enumerate(clients):
            client.joined()
            owned = {("orders", 2 * index), ("orders", 2 * index + 1)}
            assignment = ConsumerProtocolAssignment(assigned_partitions=numbers(owned))
            parts.append((client.member_id, encode_versioned(assignment, 3)))
        leader = world.replies[clients[0].joining].leader
        clients.sort(key=lambda client: client.member_id != leader)
        clients[0].sync(parts)
        clients[1].sync()
        assert clients[0].owned | clients[1].owned == ALL_ORDERS
        return clients

    return make


def storing_an_assignment(world: ConsumerWorld, classic: ClassicClient) -> None:
    """The log is slow while the first assignment of a group is being stored."""
    classic.join()
    world.advance(9_001)
    classic.joined()
    world.hold = True
    classic.sync([(classic.member_id, world.assignment(*sorted(ALL_ORDERS)))])


def settle(world: ConsumerWorld, *clients: Client | ClassicClient, rounds: int = 8) -> None:
    for _ in range(rounds):
        for client in clients:
            client.beat()
        world.advance(1)


def shares(*clients: Client | ClassicClient) -> list[int]:
    """How many partitions each has; every one has one owner."""
    owned = [each for client in clients for each in client.owned]
    assert sorted(owned) == sorted(ALL_ORDERS)
    return sorted(len(client.owned) for client in clients)


class TestUpgrade:
    def test_members_go_on_with_what_they_have(
        self, world: ConsumerWorld, classic_group: MakeGroup
    ) -> None:
        first, second = classic_group()
        newcomer = world.client("new")
        assert newcomer.beat().member_epoch == first.generation + 1
        found = world.describe()
        assert {member.member_type for member in found.members} == {0, 1}
        assert newcomer.owned == set()
        settle(world, first, second, newcomer)
        assert shares(first, second, newcomer) == [1, 1, 2]
        assert world.states()[0] == "Stable"

    def test_a_new_coordinator_finds_both_kinds(
        self, world: ConsumerWorld, classic_group: MakeGroup
    ) -> None:
        first, second = classic_group()
        newcomer = world.client("new")
        settle(world, newcomer, first, second)
        later = world.fail_over(2)
        assert later.describe() == world.describe()
        first.world = second.world = newcomer.world = later
        settle(later, first, second, newcomer)
        assert shares(first, second, newcomer) == [1, 1, 2]

    def test_restarting_one_after_the_other(
        self, world: ConsumerWorld, classic_group: MakeGroup
    ) -> None:
        first, second = classic_group()
        newcomers: list[Client] = []
        for leaving in (first, second):
            world.leave(leaving.member_id)
            newcomers.append(world.client(f"new-{len(newcomers)}"))
            settle(world, *newcomers, *([second] if leaving is first else []))
        assert shares(*newcomers) == [2, 2]
        assert {member.member_type for member in world.describe().members} == {1}

    def test_an_empty_classic_group_needs_no_permission(
        self, consumer_world_type: type[ConsumerWorld], cluster: Cluster
    ) -> None:
        settings = GroupSettings(
            consumer=ConsumerGroupSettings(may_upgrade=False, may_downgrade=False)
        )
        world = consumer_world_type(settings, cluster=cluster)
        world.commit((0, 5))
        member = world.client()
        assert member.beat().member_epoch == 2
        assert world.offsets()
        assert world.fail_over(2).states() == ("Stable", 2, 2)

    def test_the_policy_forbids_it(
        self, consumer_world_type: type[ConsumerWorld], cluster: Cluster, classic_group: MakeGroup
    ) -> None:
        settings = GroupSettings(consumer=ConsumerGroupSettings(may_upgrade=False))
        world = consumer_world_type(settings, cluster=cluster)
        first, _ = classic_group(world)
        answer = world.client("new").beat()
        assert code(answer) is ErrorCode.GROUP_ID_NOT_FOUND
        assert (answer.error_message or "").endswith("because online upgrade is disabled.")
        assert first.beat() is ErrorCode.NONE

    def test_a_group_of_another_kind(self, world: ConsumerWorld) -> None:
        world.new_member(protocol_type="connect")
        answer = world.client("new").beat()
        assert code(answer) is ErrorCode.GROUP_ID_NOT_FOUND
        assert "does not use the consumer embedded protocol" in (answer.error_message or "")

    def test_a_group_whose_assignor_keeps_notes(self, world: ConsumerWorld) -> None:
        members, generation = world.stable_group()
        world.join(members[0])
        token = world.sync(
            members[0],
            generation + 1,
            [
                (
                    members[0],
                    encode_versioned(
                        ConsumerProtocolAssignment(
                            assigned_partitions=numbers(ALL_ORDERS), user_data=b"notes"
                        ),
                        1,
                    ),
                )
            ],
        )
        assert code(world.replies[token]) is ErrorCode.NONE
        answer = world.client("new").beat()
        assert code(answer) is ErrorCode.GROUP_ID_NOT_FOUND
        assert "unsupported custom assignor" in (answer.error_message or "")

    def test_one_that_is_refused_leaves_the_classic_group(
        self, world: ConsumerWorld, classic_group: MakeGroup
    ) -> None:
        first, second = classic_group()
        world.fail_with = ErrorCode.NOT_ENOUGH_REPLICAS
        assert code(world.client("new").beat()) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert first.beat() is ErrorCode.NONE
        assert second.beat() is ErrorCode.NONE
        assert world.state() == "Stable"
        assert code(world.describe()) is ErrorCode.GROUP_ID_NOT_FOUND

    def test_one_that_is_overdue_goes_on_though_what_follows_is_refused(
        self, world: ConsumerWorld, classic_group: MakeGroup
    ) -> None:
        first, second = classic_group()
        world.hold = True
        world.ask(world.client("new").request(topic_partitions=[], **world.client().first))
        world.fail_with = ErrorCode.NOT_ENOUGH_REPLICAS
        assert code(first.join()) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        world.advance(world.settings.offset_commit_timeout_ms)
        world.hold = False
        world.release()
        assert {member.member_id for member in world.describe().members} == {
            "new",
            first.member_id,
            second.member_id,
        }
        assert world.fail_over(2).describe() == world.describe()

    def test_one_while_an_assignment_takes_too_long_to_be_stored(
        self, world: ConsumerWorld
    ) -> None:
        """The classic group that was replaced went on for itself: it rebalanced, and its record
        came behind its tombstone."""
        classic, newcomer = ClassicClient(world), world.client("new")
        storing_an_assignment(world, classic)
        token = world.ask(newcomer.request(topic_partitions=[], **newcomer.first))
        assert code(world.replies[classic.syncing]) is ErrorCode.REBALANCE_IN_PROGRESS
        world.advance(world.settings.offset_commit_timeout_ms + 1)
        world.hold = False
        world.release()
        assert code(world.replies[token]) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        for _ in range(8):  # a rebalance takes no longer
            settle(world, newcomer, classic)
            world.advance(9_000)
        assert shares(newcomer, classic) == [2, 2]
        later = world.fail_over(2)
        assert later.describe() == world.describe()
        assert [each.group_type for each in later.coordinator.overviews()] == ["consumer"]

    def test_one_that_is_refused_while_an_assignment_is_being_stored(
        self, world: ConsumerWorld
    ) -> None:
        classic, newcomer = ClassicClient(world), world.client("new")
        storing_an_assignment(world, classic)
        world.ask(newcomer.request(topic_partitions=[], **newcomer.first))
        world.release(1)
        world.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
        world.hold = False
        assert code(classic.join()) is ErrorCode.NONE
        classic.sync([(classic.member_id, world.assignment(*sorted(ALL_ORDERS)))])
        assert classic.owned == ALL_ORDERS
        assert world.state() == "Stable"

    def test_those_who_wait_in_a_join_are_told_to_join_again(self, world: ConsumerWorld) -> None:
        waiting = ClassicClient(world)
        waiting.join()
        world.client("new").beat()
        assert code(waiting.joined()) is ErrorCode.REBALANCE_IN_PROGRESS
        assert code(waiting.join()) is ErrorCode.NONE
        assert waiting.generation == 1


class TestClassicMembers:
    def test_a_join_needs_an_id_first(self, world: ConsumerWorld) -> None:
        world.client("new").beat()
        client = ClassicClient(world)
        assert code(client.join()) is ErrorCode.NONE
        assert len(client.member_id) == 22
        assert client.generation == 3

    def test_what_a_member_has_to_give_up_first(self, world: ConsumerWorld) -> None:
        classic, newcomer = ClassicClient(world), world.client("new")
        newcomer.beat()
        classic.join()
        classic.sync()
        assert classic.owned == set()
        settle(world, newcomer, classic)
        assert shares(newcomer, classic) == [2, 2]

    def test_with_another_protocol(self, world: ConsumerWorld) -> None:
        world.client("new").beat()
        token = world.join(protocol_type="connect")
        assert code(world.replies[token]) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    def test_a_heartbeat_of_a_member_of_the_other_protocol(self, world: ConsumerWorld) -> None:
        world.client("new").beat()
        assert world.heartbeat("new", 2) == ErrorCode.UNKNOWN_MEMBER_ID

    def test_another_generation(self, world: ConsumerWorld) -> None:
        world.client("new").beat()
        classic = ClassicClient(world)
        classic.join()
        classic.generation = 9
        assert classic.beat() is ErrorCode.ILLEGAL_GENERATION
        assert code(classic.sync()) is ErrorCode.ILLEGAL_GENERATION

    def test_one_that_does_not_sync_is_out(self, world: ConsumerWorld) -> None:
        newcomer = world.client("new")
        newcomer.beat()
        ClassicClient(world).join()
        for _ in range(7):
            newcomer.beat()
            world.advance(9_000)
        settle(world, newcomer)
        assert shares(newcomer) == [4]

    def test_topics_that_change_are_noticed_without_members_of_the_other(
        self, world: ConsumerWorld, cluster: Cluster
    ) -> None:
        newcomer, classic = world.client("new"), ClassicClient(world, instance_id="i")
        newcomer.beat()
        classic.join()
        settle(world, newcomer, classic)
        cluster.put("orders", 6)
        world.topics_changed("orders")
        assert classic.beat() is ErrorCode.REBALANCE_IN_PROGRESS
        settle(world, newcomer, classic)
        assert len(newcomer.owned) == len(classic.owned) == 3

    def test_one_that_is_silent_is_out_after_its_own_session(self, world: ConsumerWorld) -> None:
        newcomer = world.client("new")
        newcomer.beat()
        classic = ClassicClient(world)
        classic.join()
        classic.sync()
        world.advance(10_001)
        assert len(world.describe().members) == 1

    def test_a_leave_removes_members_of_both_protocols(
        self, world: ConsumerWorld, classic_group: MakeGroup
    ) -> None:
        first, second = classic_group()
        newcomer = world.client("new")
        newcomer.beat()
        token = world.leave(first.member_id, "new", "stranger")
        errors = [member.error_code for member in world.replies[token].members]
        assert errors == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
        assert world.state() == "PreparingRebalance"
        assert second.member_id

    def test_a_policy_that_forbids_both_ways(
        self, consumer_world_type: type[ConsumerWorld], cluster: Cluster
    ) -> None:
        settings = GroupSettings(
            consumer=ConsumerGroupSettings(may_upgrade=False, may_downgrade=False)
        )
        world = consumer_world_type(settings, cluster=cluster)
        world.client("new").beat()
        assert code(ClassicClient(world).join()) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


class TestDowngrade:
    def test_when_the_last_member_of_the_new_protocol_leaves(
        self, world: ConsumerWorld, classic_group: MakeGroup
    ) -> None:
        first, second = classic_group()
        newcomer = world.client("new")
        settle(world, newcomer, first, second)
        epoch = world.states()[1]
        newcomer.leave()
        assert code(world.describe()) is ErrorCode.GROUP_ID_NOT_FOUND
        assert world.state() == "PreparingRebalance"
        for client in (first, second):
            assert (
                world.heartbeat(client.member_id, client.generation)
                == ErrorCode.REBALANCE_IN_PROGRESS
            )
            client.join()
        answers = [answer for client in (first, second) if (answer := client.joined()) is not None]
        assert [answer.generation_id for answer in answers] == [epoch + 1] * 2
        assert world.fail_over(2).state() == "Stable"

    def test_by_a_static_member_that_comes_back_with_the_old_protocol(
        self, world: ConsumerWorld
    ) -> None:
        static = world.client("a", instance_id="i")
        static.beat()
        classic = ClassicClient(world)
        settle(world, static)
        classic.join()
        classic.sync()
        settle(world, static, classic)
        static.leave(-2)
        successor = ClassicClient(world, instance_id="i")
        answer = successor.join()
        assert code(answer) is ErrorCode.NONE
        assert code(world.describe()) is ErrorCode.GROUP_ID_NOT_FOUND
        assert world.state() == "Stable"
        assert code(successor.sync()) is ErrorCode.NONE
        assert shares(successor, classic) == [2, 2]

    def test_the_policy_forbids_it(
        self, consumer_world_type: type[ConsumerWorld], cluster: Cluster, classic_group: MakeGroup
    ) -> None:
        settings = GroupSettings(consumer=ConsumerGroupSettings(may_downgrade=False))
        world = consumer_world_type(settings, cluster=cluster)
        first, second = classic_group(world)
        newcomer = world.client("new")
        settle(world, newcomer, first, second)
        newcomer.leave()
        settle(world, first, second)
        assert world.states()[0] == "Stable"
        assert shares(first, second) == [2, 2]

    def test_one_that_is_refused_leaves_the_consumer_group(
        self, world: ConsumerWorld, classic_group: MakeGroup
    ) -> None:
        first, second = classic_group()
        newcomer = world.client("new")
        settle(world, newcomer, first, second)
        world.fail_with = ErrorCode.NOT_ENOUGH_REPLICAS
        assert code(newcomer.leave()) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert world.states()[0] == "Stable"
        settle(world, newcomer, first, second)
        assert shares(first, second, newcomer) == [1, 1, 2]

    def test_one_whose_cause_is_refused_does_not_happen(
        self, world: ConsumerWorld, classic_group: MakeGroup
    ) -> None:
        """Two members of the consumer protocol are fenced at once; the first one stays."""
        classic = classic_group()
        newcomers = [world.client(name) for name in ("new", "newer")]
        settle(world, *newcomers, *classic)
        for newcomer in newcomers:
            newcomer.beat()
        world.fail_with = ErrorCode.KAFKA_STORAGE_ERROR
        for _ in range(5):
            for each in classic:
                assert each.beat() is ErrorCode.NONE
            world.advance(SESSION_MS // 5)
        staying = {newcomers[0].member_id, *(each.member_id for each in classic)}
        assert {member.member_id for member in world.describe().members} == staying
        assert world.fail_over(2).describe() == world.describe()

    def test_an_empty_consumer_group_becomes_a_classic_one(self, world: ConsumerWorld) -> None:
        member = world.client()
        member.beat()
        member.leave()
        members, _ = world.stable_group()
        assert world.state() == "Stable"
        assert code(world.describe()) is ErrorCode.GROUP_ID_NOT_FOUND
        later = world.fail_over(2)
        assert later.state() == "Stable"
        assert members

    def test_one_beside_a_commit_leaves_the_way_back_open(self, world: ConsumerWorld) -> None:
        """The consumer group's tombstone was durable, and it was never dropped."""
        newcomer, classic = world.client("new"), ClassicClient(world)
        newcomer.beat()
        classic.join()
        settle(world, newcomer, classic)
        world.hold = True
        world.ask(newcomer.request(member_epoch=-1))
        token = world.commit(
            (0, 7), member_id=classic.member_id, generation=classic.generation, version=9
        )
        world.hold = False
        world.release()
        assert world.replies[token].topics[0].partitions[0].error_code == ErrorCode.NONE
        settle(world, classic)
        assert code(world.client("newer").beat()) is ErrorCode.NONE
        assert {member.member_type for member in world.describe().members} == {0, 1}

    def test_an_empty_consumer_group_may_come_back_at_any_time(
        self, consumer_world_type: type[ConsumerWorld], cluster: Cluster
    ) -> None:
        """Its tombstone and the record of the classic group were under way at once."""
        settings = GroupSettings(initial_rebalance_delay_ms=0)
        world = consumer_world_type(settings, cluster=cluster)
        member = world.client()
        member.beat()
        member.leave()
        world.hold = True
        classic = ClassicClient(world)
        classic.join()
        world.advance(1)
        classic.joined()
        classic.sync([(classic.member_id, world.assignment(("orders", 0)))])
        world.hold = False
        world.release()
        world.leave(classic.member_id)
        assert code(world.client("later").beat()) is ErrorCode.NONE

    def test_an_empty_consumer_group_stays_if_the_classic_one_beside_a_commit_is_refused(
        self, world: ConsumerWorld
    ) -> None:
        """Both were there then. The next classic group took the place of the one that was refused,
        whose promised id ended the time in which a member had to sync."""
        member = world.client()
        member.beat()
        member.leave()
        world.hold = True
        token = world.commit((0, 7))
        world.fail_with = ErrorCode.NOT_ENOUGH_REPLICAS
        promised = world.replies[world.join()]
        assert promised.error_code == ErrorCode.MEMBER_ID_REQUIRED
        world.hold = False
        world.release()
        assert world.replies[token].topics[0].partitions[0].error_code == ErrorCode.NONE
        assert world.states()[0] == "Empty"
        late, token = world.new_member(rebalance_timeout_ms=20_000)
        world.advance(3_000)
        generation = world.replies[token].generation_id
        for _ in range(3):
            world.heartbeat(late, generation)
            world.advance(9_000)
        assert world.heartbeat(late, generation) == ErrorCode.UNKNOWN_MEMBER_ID
