"""How offsets and groups end: expiry, DeleteGroups, deleted topics."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from uuid import UUID

import pytest

from strandline.errors import ErrorCode
from strandline.groups import cleanup
from strandline.groups.offset_records import GroupRecord, decode_record
from strandline.groups.requests import Token
from strandline.groups.settings import GroupSettings
from strandline.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from strandline.types import LeaderEpoch, TopicPartition
from tests.groups.world import World

CHECK_MS = 600_000
RETENTION_MS = 7 * 24 * 3_600_000
ORDERS_0 = TopicPartition("orders", 0)


def live(world: World, members: Iterable[str], generation: int, ms: int) -> None:
    """Let time pass with heartbeats."""
    for _ in range(ms // 9_000 + 1):
        for member in members:
            assert world.heartbeat(member, generation) == ErrorCode.NONE
        world.advance(9_000)


class TestExpiry:
    @pytest.fixture
    def world(self, world_type: type[World]) -> World:
        """A world with a retention of one hour."""
        return world_type(GroupSettings(offsets_retention_ms=3_600_000))

    def test_the_defaults_are_seven_days_and_ten_minutes(self) -> None:
        settings = GroupSettings()
        assert settings.offsets_retention_ms == RETENTION_MS
        assert settings.offsets_retention_check_interval_ms == CHECK_MS

    def test_simple_groups_expire_after_each_commit(self, world: World) -> None:
        world.commit((0, 5))
        world.advance(1_800_000)
        world.commit((1, 5))
        world.advance(1_800_000)
        assert world.offsets() == {TopicPartition("orders", 1): 5}
        world.advance(1_800_000)
        assert world.offsets() == {}
        assert world.state() is None
        assert world.fail_over(2).coordinator.overviews() == []

    def test_many_groups_are_looked_at_in_steps(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(cleanup, "_STEP", 20)
        for number in range(10):
            world.commit((0, 5), (1, 5), group=f"g{number}")
        written = [len(world.log[0])]
        end_ms = world.now.monotonic_ms + 3_600_000 + CHECK_MS
        while (due_ms := world.coordinator.next_deadline() or 0) <= end_ms:
            world.advance(due_ms - world.now.monotonic_ms)
            written.append(len(world.log[0]))
        tombstones = [later - before for before, later in pairwise(written) if later > before]
        assert tombstones == [9, 9, 9, 3], "two offsets and a group, three groups in a step"
        assert world.coordinator.overviews() == []

    def test_managed_groups_expire_after_they_became_empty(self, world: World) -> None:
        [member], generation = world.stable_group()
        world.commit((0, 5), generation=generation, member_id=member)
        live(world, [member], generation, 4_200_000)
        assert world.offsets() == {ORDERS_0: 5}
        world.leave(member)
        world.advance(3_000_000)
        assert world.offsets() == {ORDERS_0: 5}
        world.advance(1_200_000)
        assert world.state() is None

    def test_topics_without_a_subscriber(self, world: World) -> None:
        world.commit((0, 5))
        world.commit((0, 5), topic="payments")
        [member], generation = world.stable_group()
        live(world, [member], generation, 4_300_000)
        assert world.offsets() == {ORDERS_0: 5}
        assert world.state() == "Stable"

    @pytest.mark.parametrize("subscription", [b"", b"\0\0\0\0\0\1", b"\0\0\0\0\0\0\0\0\0\7x"])
    def test_unreadable_subscriptions_protect_everything(
        self, world: World, subscription: bytes
    ) -> None:
        world.commit((0, 5))
        protocols = [world.protocol("range", subscription)]
        [member], generation = world.stable_group(protocols=protocols)
        live(world, [member], generation, 4_300_000)
        assert world.offsets() == {ORDERS_0: 5}
        assert world.coordinator.overviews()[0].members[0].subscribed_topics == frozenset()

    def test_members_of_other_kinds_protect_everything(self, world: World) -> None:
        world.commit((0, 5))
        [member], generation = world.stable_group(protocol_type="connect")
        live(world, [member], generation, 4_300_000)
        assert world.offsets() == {ORDERS_0: 5}

    def test_a_retention_of_its_own(self, world: World) -> None:
        world.commit((0, 5), retention_time_ms=60_000)
        world.commit((1, 5), retention_time_ms=10 * 3_600_000)
        world.advance(CHECK_MS)
        assert world.offsets() == {TopicPartition("orders", 1): 5}
        assert world.fail_over(2).offsets() == world.offsets()

    def test_a_group_without_anything_goes(self, world: World) -> None:
        world.stable_group()
        world.advance(10_000 + CHECK_MS)
        assert world.state() is None

    def test_a_group_that_someone_is_about_to_join_stays(self, world: World) -> None:
        world.advance(CHECK_MS - 5_000)
        member = world.replies[world.join()].member_id
        world.advance(5_000)
        world.join(member)
        world.advance(3_000)
        assert world.state() == "CompletingRebalance"

    def test_an_offset_that_is_being_committed_again_stays(self, world: World) -> None:
        world.commit((0, 5))
        world.advance(3_599_000)
        world.hold = True
        world.commit((0, 6))
        world.advance(1_000)
        world.release()
        assert world.offsets() == {ORDERS_0: 6}

    def test_tombstones_are_cut_into_appends(self, world_type: type[World]) -> None:
        world = world_type(GroupSettings(offsets_retention_ms=1, append_bytes_max=100))
        world.commit(*((partition, 1) for partition in range(20)))
        world.hold = True
        world.advance(CHECK_MS)
        assert len(world.held) > 3
        assert world.state() == "Dead"
        world.release()
        assert world.state() is None

    def test_what_remains_when_a_part_is_refused(self, world_type: type[World]) -> None:
        world = world_type(GroupSettings(offsets_retention_ms=1, append_bytes_max=100))
        world.commit(*((partition, 1) for partition in range(20)))
        world.hold = True
        world.advance(CHECK_MS)
        world.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
        world.release()
        assert world.state() == "Empty"
        assert 0 < len(world.offsets()) < 20
        world.hold = False
        world.advance(CHECK_MS)
        assert world.state() is None


def deleted(response: DeleteGroupsResponse) -> list[tuple[str, int]]:
    """What became of each group of a DeleteGroups."""
    return [(result.group_id, result.error_code) for result in response.results]


class TestDeleteGroups:
    def delete(self, world: World, *groups: str) -> Token:
        return world.ask(DeleteGroupsRequest(groups_names=list(groups)))

    def test_every_group_has_its_own_result(self, world_type: type[World]) -> None:
        world = world_type(partition_count=3)
        world.commit((0, 5), group="a")
        world.commit((0, 5), group="b")
        world.stable_group(group="busy")
        results = deleted(world.replies[self.delete(world, "a", "none", "busy", "b", "a")])
        assert results == [
            ("a", ErrorCode.NONE),
            ("none", ErrorCode.GROUP_ID_NOT_FOUND),
            ("busy", ErrorCode.NON_EMPTY_GROUP),
            ("b", ErrorCode.NONE),
        ]
        assert world.offsets("a") == {}
        later = world.fail_over(2)
        assert [overview.group_id for overview in later.coordinator.overviews()] == ["busy"]

    def test_a_dying_group_refuses_and_is_gone_when_that_is_durable(self, world: World) -> None:
        world.commit((0, 5))
        world.hold = True
        world.commit((1, 6))  # in flight, and to be deleted too
        token = self.delete(world, "g")
        unavailable = ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert world.replies[world.join()].error_code == unavailable
        assert world.heartbeat("m", 1) is unavailable
        assert world.commit_error((0, 7)) is unavailable
        assert world.replies[world.sync("m", 1)].error_code == unavailable
        assert world.replies[world.leave("m")].error_code == unavailable
        second = world.replies[self.delete(world, "g")]
        assert deleted(second) == [("g", ErrorCode.GROUP_ID_NOT_FOUND)]
        assert world.state() == "Dead"
        world.release()
        assert deleted(world.replies[token]) == [("g", ErrorCode.NONE)]
        assert world.state() is None
        assert world.fail_over(2).coordinator.overviews() == []

    def test_a_group_that_cannot_be_deleted_lives_on(self, world: World) -> None:
        world.commit((0, 5))
        world.fail_with = ErrorCode.NOT_ENOUGH_REPLICAS
        results = deleted(world.replies[self.delete(world, "g")])
        assert results == [("g", ErrorCode.COORDINATOR_NOT_AVAILABLE)]
        assert world.state() == "Empty"
        assert world.offsets() == {ORDERS_0: 5}

    def test_no_groups(self, world: World) -> None:
        assert world.replies[self.delete(world)].results == []


class TestDeletedTopics:
    OLD, NEW = UUID(int=1), UUID(int=2)

    def test_offsets_go_with_their_topic(self, world_type: type[World]) -> None:
        world = world_type(partition_count=2)
        for group in ("a", "b", "c"):
            world.commit((0, 5), group=group, topic_id=self.OLD)
            world.commit((0, 6), group=group, topic="payments")
        world.run(world.coordinator.topics_deleted([("orders", self.OLD)], world.now))
        for group in ("a", "b", "c"):
            assert world.offsets(group) == {TopicPartition("payments", 0): 6}

    def test_offsets_of_the_next_topic_of_that_name_stay(self, world: World) -> None:
        world.commit((0, 5), topic_id=self.NEW)
        world.commit((1, 5))
        world.run(world.coordinator.topics_deleted([("orders", self.OLD)], world.now))
        assert world.offsets() == {ORDERS_0: 5}, "without an id, it is of any topic of the name"

    def test_commits_in_flight_count(self, world: World) -> None:
        world.hold = True
        world.commit((0, 5), topic_id=self.OLD)
        world.run(world.coordinator.topics_deleted([("orders", self.OLD)], world.now))
        world.release()
        assert world.offsets() == {}

    @pytest.mark.parametrize("is_committed", [True, False])
    def test_offsets_go_also_if_their_partition_is_being_loaded(
        self, world: World, world_type: type[World], is_committed: bool
    ) -> None:
        """A topic of the name that is made later would begin at the offsets of this one."""
        world.commit((0, 5), (1, 5), topic_id=self.OLD)
        world.commit((2, 6))
        world.commit((0, 7), topic="payments")
        kept = {TopicPartition("payments", 0): 7}
        other = world_type(load=False)
        other.log[0] = list(world.log[0])
        epoch = LeaderEpoch(2)
        other.run(other.coordinator.start_loading(0, epoch, other.now))
        other.coordinator.replay(0, epoch, other.log[0][:1])
        other.run(other.coordinator.topics_deleted([("orders", self.OLD)], other.now))
        other.run(other.coordinator.topics_deleted([("orders", self.NEW)], other.now))
        other.coordinator.replay(0, epoch, other.log[0][1:])
        effects, report = other.coordinator.finish_loading(
            0, epoch, other.now, is_committed=is_committed
        )
        assert report is not None
        other.hold = True
        other.run(effects)
        if report.append_id is not None:
            other.run(other.coordinator.appended(report.append_id, None, other.now))
        other.hold = False
        other.release()
        assert other.offsets() == kept
        assert other.fail_over(3).offsets() == kept

    def test_every_tombstone_is_an_offset_s(self, world: World) -> None:
        world.commit((0, 5))
        world.run(world.coordinator.topics_deleted([("orders", self.OLD)], world.now))
        tombstones = [decode_record(record) for record in world.log[0] if record.value is None]
        assert len(tombstones) == 1
        assert not any(isinstance(tombstone, GroupRecord) for tombstone in tombstones)
