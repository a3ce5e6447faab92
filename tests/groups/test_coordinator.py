"""Routing, loading, giving up, and the facts for readers."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from strandline.errors import ErrorCode, InvariantViolated
from strandline.protocol.coordinator_log import CoordinatorRecord, partition_for
from strandline.protocol.messages.describe_groups import DescribeGroupsRequest
from strandline.protocol.messages.list_groups import ListGroupsRequest
from strandline.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from strandline.types import LeaderEpoch, TopicPartition
from tests.groups.world import World


def everything_of(group: str, require_stable: bool = False) -> OffsetFetchRequest:
    """An OffsetFetch for all offsets of a group."""
    wanted = OffsetFetchRequestGroup(group_id=group, topics=None)
    return OffsetFetchRequest(groups=[wanted], require_stable=require_stable)


@pytest.mark.parametrize(
    ("group_id", "code"),
    [
        ("", 0),
        ("a", 97),
        ("console-consumer-12345", 158_455_506),
        ("polygenelubricants", -(2**31)),
        ("\U0001f600", 1_772_899),
        ("gr\u00fcn", 3_185_949),
    ],
)
def test_groups_are_spread_as_java_hashes_strings(group_id: str, code: int) -> None:
    expected = 0 if code == -(2**31) else abs(code)
    assert partition_for(group_id, 50) == expected % 50
    assert partition_for(group_id, 2**31) == expected


class TestOwnership:
    def errors(self, world: World) -> list[int]:
        """What every request about group g is answered."""
        fetch = everything_of("g")
        described = world.answer(DescribeGroupsRequest(groups=["g"]))
        return [
            world.replies[world.join()].error_code,
            world.replies[world.sync("m", 1)].error_code,
            world.replies[world.leave("m")].error_code,
            world.commit_error((0, 5)),
            world.answer(fetch).groups[0].error_code,
            described.groups[0].error_code,
            world.heartbeat("m", 1),
        ]

    def test_not_ours(self, world_type: type[World]) -> None:
        world = world_type(load=False)
        assert set(self.errors(world)) == {ErrorCode.NOT_COORDINATOR}
        assert world.answer(ListGroupsRequest()).error_code == ErrorCode.NONE

    def test_loading(self, world_type: type[World]) -> None:
        world = world_type(load=False)
        world.run(world.coordinator.start_loading(0, LeaderEpoch(1), world.now))
        *others, heartbeat = self.errors(world)
        assert set(others) == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
        assert heartbeat == ErrorCode.NONE, "no member may lose a session over our loading"
        listing = world.answer(ListGroupsRequest())
        assert listing.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        _, report = world.coordinator.finish_loading(0, LeaderEpoch(1), world.now)
        assert report is not None
        assert report.groups == 0
        assert world.commit_error((0, 5)) == ErrorCode.NONE

    def test_in_pieces(self, world: World, world_type: type[World]) -> None:
        for offset in range(4):
            world.commit((offset, offset))
        other = world_type(load=False)
        other.run(other.coordinator.start_loading(0, LeaderEpoch(5), other.now))
        for record in world.log[0]:
            other.coordinator.replay(0, LeaderEpoch(5), [record])
        other.coordinator.replay(0, LeaderEpoch(4), [world.log[0][0]])
        _, report = other.coordinator.finish_loading(0, LeaderEpoch(5), other.now)
        assert report is not None
        assert (report.groups, report.offsets) == (1, 4)
        assert other.offsets() == world.offsets()

    def test_offsets_are_told_when_the_end_of_the_loaded_log_is_committed(
        self, world: World, world_type: type[World]
    ) -> None:
        """What stands above the high watermark may be lost with the leadership."""
        world.commit((0, 5))
        world.stable_group(group="members")
        other = world_type(load=False)
        other.run(other.coordinator.start_loading(0, LeaderEpoch(5), other.now))
        other.coordinator.replay(0, LeaderEpoch(5), world.log[0])
        effects, report = other.coordinator.finish_loading(
            0, LeaderEpoch(5), other.now, is_committed=False
        )
        other.run(effects)
        assert report is not None
        assert report.append_id is not None
        asked = [
            other.ask(everything_of(group, stable))
            for group, stable in [("g", False), ("g", True), ("unknown", False)]
        ]
        assert not other.replies.keys() & set(asked)
        [described] = other.answer(DescribeGroupsRequest(groups=["members"])).groups
        assert described.group_state == "Stable", "all else goes on"
        other.run(other.coordinator.appended(report.append_id, None, other.now))
        first, second, third = (other.replies[token].groups[0] for token in asked)
        assert first == second
        assert first.topics[0].partitions[0].committed_offset == 5
        assert third.topics == []
        assert other.offsets() == world.offsets()

    @pytest.mark.parametrize("is_lost", [False, True])
    def test_i39_a_loaded_generation_is_told_when_it_is_committed(
        self, world: World, world_type: type[World], is_lost: bool
    ) -> None:
        """Its number would be used again if it got lost with the leadership."""
        (member,), generation = world.stable_group(group="members")
        other = world_type(load=False)
        other.run(other.coordinator.start_loading(0, LeaderEpoch(5), other.now))
        other.coordinator.replay(0, LeaderEpoch(5), world.log[0])
        effects, report = other.coordinator.finish_loading(
            0, LeaderEpoch(5), other.now, is_committed=False
        )
        other.run(effects)
        assert report is not None
        assert report.append_id is not None
        token = other.sync(member, generation, group="members")
        assert token not in other.replies
        if is_lost:
            other.run(other.coordinator.unload_partition(0, LeaderEpoch(6), other.now))
            assert other.replies[token].error_code == ErrorCode.NOT_COORDINATOR
        else:
            other.run(other.coordinator.appended(report.append_id, None, other.now))
            assert other.replies[token].error_code == ErrorCode.NONE
            assert other.replies[token].assignment

    def test_offsets_that_stay_uncommitted_are_refused_after_a_while(
        self, world: World, world_type: type[World]
    ) -> None:
        world.commit((0, 5))
        other = world_type(load=False)
        other.run(other.coordinator.start_loading(0, LeaderEpoch(5), other.now))
        other.coordinator.replay(0, LeaderEpoch(5), world.log[0])
        other.run(
            other.coordinator.finish_loading(0, LeaderEpoch(5), other.now, is_committed=False)[0]
        )
        request = everything_of("g")
        token = other.ask(request)
        other.advance(other.settings.offset_commit_timeout_ms)
        assert other.replies[token].groups[0].error_code == ErrorCode.NOT_COORDINATOR
        lost = other.ask(everything_of("g"))
        other.run(other.coordinator.unload_partition(0, LeaderEpoch(6), other.now))
        assert other.replies[lost].groups[0].error_code == ErrorCode.NOT_COORDINATOR

    def test_news_of_old_epochs_is_ignored(self, world: World) -> None:
        world.load(epoch=5)
        world.commit((0, 5))
        world.run(world.coordinator.unload_partition(0, LeaderEpoch(4), world.now))
        assert world.load(epoch=4, records=[]) is None
        assert world.load(epoch=5, records=[]) is None
        assert world.offsets() == {TopicPartition("orders", 0): 5}
        world.run(world.coordinator.unload_partition(0, LeaderEpoch(6), world.now))
        assert world.load(epoch=5) is None
        assert world.heartbeat("m", 1) is ErrorCode.NOT_COORDINATOR
        assert world.load(epoch=6) is not None

    def test_a_topic_that_is_made_again_begins_with_the_first_epoch(self, world: World) -> None:
        world.load(epoch=5)
        world.commit((0, 5))
        world.hold = True
        token = world.commit((0, 6))
        world.run(world.coordinator.unload_partition(0, None, world.now))
        told = [(0, ErrorCode.NOT_COORDINATOR)]
        assert world.outcomes(world.replies[token].topics[0]) == told
        assert world.load(epoch=0, records=[]) is not None
        world.release()  # the late end of the append means nothing any more
        assert world.offsets() == {}
        assert world.load(epoch=1, records=[]) is not None

    def test_giving_up_while_loading(self, world_type: type[World]) -> None:
        world = world_type(load=False)
        world.run(world.coordinator.start_loading(0, LeaderEpoch(1), world.now))
        world.run(world.coordinator.unload_partition(0, LeaderEpoch(2), world.now))
        assert world.coordinator.finish_loading(0, LeaderEpoch(1), world.now) == ([], None)

    def test_everyone_who_waits_is_told(self, world: World) -> None:
        moved = ErrorCode.NOT_COORDINATOR
        [last], _ = world.stable_group(group="leaving", session_timeout_ms=60_000)
        static = world.join(group="static", group_instance_id="i", session_timeout_ms=60_000)
        world.advance(3_000)
        world.stabilize([static], "static")
        (leader, _), (follower, _) = world.new_member("syncing"), world.new_member("syncing")
        world.advance(6_000)
        _, joining = world.new_member("joining")
        syncing = world.sync(follower, 1, group="syncing")
        world.hold = True
        leading = world.sync(leader, 1, group="syncing")
        commit = world.commit((0, 5), group="committing")
        fetch = world.ask(everything_of("committing", True))
        leave = world.leave(last, group="leaving")
        replaced = world.join(group="static", group_instance_id="i")
        world.run(world.coordinator.unload_partition(0, LeaderEpoch(2), world.now))
        for token in (joining, syncing, leading, leave, replaced):
            assert world.replies[token].error_code == moved
        assert world.outcomes(world.replies[commit].topics[0]) == [(0, moved)]
        assert world.replies[fetch].groups[0].error_code == moved
        assert world.coordinator.next_deadline() is None
        world.release()  # the late ends of appends mean nothing any more
        assert world.coordinator.overviews() == []


class TestFailOver:
    def test_members_go_on_under_the_new_coordinator(self, world: World) -> None:
        members, generation = world.stable_group(2)
        world.commit((0, 5), generation=generation, member_id=members[0])
        later = world.fail_over(2)
        assert later.offsets() == {TopicPartition("orders", 0): 5}
        for member in members:
            assert later.heartbeat(member, generation) == ErrorCode.NONE
        token = later.sync(members[1], generation)
        assert later.replies[token].assignment == world.assignment(("orders", 1))
        later.advance(9_000)
        assert later.heartbeat(members[0], generation) == ErrorCode.NONE
        later.advance(1_000)
        assert later.heartbeat(members[1], generation) is ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_deleted_group_stays_deleted(self, world: World) -> None:
        world.commit((0, 5))
        [member], _ = world.stable_group()
        world.leave(member)
        world.advance(8 * 24 * 3_600_000)
        assert world.fail_over(2).coordinator.overviews() == []

    def test_records_that_are_not_ours_are_counted(self, world_type: type[World]) -> None:
        records = [
            CoordinatorRecord(b"\x00\x11\x00\x01g", b"\x00\x00\x00\x00\x00\x01"),
            CoordinatorRecord(b"\x00\x11\x00\x01h", None),
            CoordinatorRecord(b"\x00\x14\x00\x01g\x00\x01m", b"\x00\x00"),
            CoordinatorRecord(b"\x00\x02\x00\x05g", b""),
            CoordinatorRecord(b"", None),
        ]
        report = world_type(load=False).load(records=records)
        assert report is not None
        assert report.unknown_kinds == {17: 2, 20: 1}
        assert report.damaged_records == 2
        assert (report.groups, report.offsets) == (0, 0)


class TestFacts:
    def test_list_groups(self, world_type: type[World]) -> None:
        world = world_type(partition_count=4)
        world.commit((0, 5), group="simple")
        world.stable_group(group="stable")
        world.new_member("preparing")

        def listed(states: Iterable[str] = (), types: Iterable[str] = ()) -> list[str]:
            request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
            return [group.group_id for group in world.answer(request).groups]

        assert listed() == ["preparing", "simple", "stable"]
        assert listed([" STABLE ", "empty"]) == ["simple", "stable"]
        assert listed(["nonsense"]) == []
        assert listed(types=["classic"]) == ["preparing", "simple", "stable"]
        assert listed(types=["Consumer"]) == []
        request = ListGroupsRequest(states_filter=["Stable"])
        [group] = world.answer(request).groups
        assert (group.protocol_type, group.group_state, group.group_type) == (
            "consumer",
            "Stable",
            "classic",
        )

    def test_describe_groups(self, world: World) -> None:
        world.stable_group(group="stable")
        world.new_member("preparing")
        request = DescribeGroupsRequest(groups=["preparing", "none", "stable"])
        preparing, missing, stable = world.answer(request).groups
        assert missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert missing.error_message == "Group none not found."
        assert missing.group_state == "Dead"
        assert (stable.group_state, stable.protocol_type, stable.protocol_data) == (
            "Stable",
            "consumer",
            "range",
        )
        assert stable.members[0].member_metadata == world.subscription("orders")
        assert stable.members[0].member_assignment == world.assignment(("orders", 0))
        assert stable.members[0].client_host == "/10.0.0.1"
        assert (preparing.group_state, preparing.protocol_data) == ("PreparingRebalance", "")
        assert preparing.members[0].member_metadata == b""
        old = world.answer(DescribeGroupsRequest(groups=["none"]), version=5).groups[0]
        assert (old.error_code, old.group_state, old.error_message) == (
            ErrorCode.NONE,
            "Dead",
            None,
        )

    def test_overviews(self, world: World) -> None:
        [member], generation = world.stable_group()
        world.commit((0, 5, "note"), generation=generation, member_id=member)
        [overview] = world.coordinator.overviews()
        assert (overview.group_id, overview.generation, overview.leader) == ("g", 1, member)
        assert overview.state_since_ms == world.now.wall_ms
        assert overview.members[0].subscribed_topics == {"orders"}
        assert overview.members[0].assigned_partitions == (("orders", 0),)
        assert overview.committed[TopicPartition("orders", 0)].metadata == "note"
        assert member in overview.rebalance_reason


def test_bugs_of_the_driver_are_noticed(world: World) -> None:
    world.hold = True
    world.commit((0, 5))
    world.commit((0, 6))
    _, second = world.held
    with pytest.raises(InvariantViolated, match="before earlier ones"):
        world.coordinator.appended(second, None, world.now)
    call = world.join_call()
    world.new_member()
    world.ask_call(call)
    parked = world.join_call(version=3)
    world.ask_call(parked)
    with pytest.raises(InvariantViolated, match="in use"):
        world.coordinator.handle(parked, world.now)
