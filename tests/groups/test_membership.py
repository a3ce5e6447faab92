"""SyncGroup, Heartbeat and LeaveGroup, sessions, and the rebalances that they cause."""

from __future__ import annotations

from typing import Any

import pytest

from strandline.errors import ErrorCode
from tests.groups.world import World


@pytest.fixture
def joined(world: World) -> tuple[str, str]:
    """Two members between join and sync: (leader, follower), generation 1."""
    (leader, _), (follower, _) = world.new_member(), world.new_member()
    world.advance(6_000)
    return leader, follower


class TestSync:
    def error(self, world: World, *args: Any, **kwargs: Any) -> int:
        code: int = world.replies[world.sync(*args, **kwargs)].error_code
        return code

    def test_the_checks_in_their_order(self, world: World, joined: tuple[str, str]) -> None:
        leader = joined[0]
        assert self.error(world, leader, 1, group="") is ErrorCode.INVALID_GROUP_ID
        assert self.error(world, leader, 1, group="other") is ErrorCode.UNKNOWN_MEMBER_ID
        assert self.error(world, "stranger", 7) is ErrorCode.UNKNOWN_MEMBER_ID
        bad_type = self.error(world, leader, 2, protocol_type="connect")
        assert bad_type is ErrorCode.ILLEGAL_GENERATION
        inconsistent = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert self.error(world, leader, 1, protocol_type="connect") is inconsistent
        assert self.error(world, leader, 1, protocol_name="roundrobin") is inconsistent

    def test_an_empty_group_knows_no_members(self, world: World) -> None:
        world.join()
        assert self.error(world, "", 0) is ErrorCode.UNKNOWN_MEMBER_ID

    def test_followers_wait_for_the_leader_and_for_durability(
        self, world: World, joined: tuple[str, str]
    ) -> None:
        leader, follower = joined
        waiting = world.sync(follower, 1, protocol_type="consumer", protocol_name="range")
        world.hold = True
        leading = world.sync(leader, 1, [(leader, b"L"), (follower, b"F"), ("stranger", b"S")])
        assert not {waiting, leading} & world.replies.keys()
        world.release()
        assert world.replies[leading].assignment == b"L"
        answer = world.replies[waiting]
        assert (answer.assignment, answer.protocol_type, answer.protocol_name) == (
            b"F",
            "consumer",
            "range",
        )
        assert world.state() == "Stable"

    def test_a_member_without_an_assignment_gets_an_empty_one(
        self, world: World, joined: tuple[str, str]
    ) -> None:
        leader, follower = joined
        world.sync(leader, 1, [(leader, b"L")])
        late = world.replies[world.sync(follower, 1)]
        assert (late.error_code, late.assignment) == (ErrorCode.NONE, b"")

    def test_during_a_rebalance(self, world: World) -> None:
        [member], _ = world.stable_group()
        world.new_member()
        assert self.error(world, member, 1) is ErrorCode.REBALANCE_IN_PROGRESS

    def test_a_rebalance_sends_those_who_wait_back(
        self, world: World, joined: tuple[str, str]
    ) -> None:
        waiting = world.sync(joined[1], 1)
        world.new_member()
        assert world.replies[waiting].error_code == ErrorCode.REBALANCE_IN_PROGRESS

    def test_an_assignment_that_cannot_be_stored(
        self, world: World, joined: tuple[str, str]
    ) -> None:
        leader, follower = joined
        waiting = world.sync(follower, 1)
        world.fail_with = ErrorCode.NOT_ENOUGH_REPLICAS
        leading = world.sync(leader, 1, [(leader, b"L")])
        for token in (waiting, leading):
            assert world.replies[token].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert world.state() == "PreparingRebalance"

    @pytest.mark.parametrize("how", ["timeout", "told"])
    def test_an_assignment_that_takes_too_long(
        self, world: World, joined: tuple[str, str], how: str
    ) -> None:
        leader, follower = joined
        waiting = world.sync(follower, 1)
        world.hold = True
        world.sync(leader, 1, [(leader, b"L"), (follower, b"F")])
        if how == "timeout":
            world.advance(5_000)
        else:
            after = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            append_id = world.held[0]
            world.run(world.coordinator.appended(append_id, after, world.now))
        assert world.replies[waiting].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert world.state() == "PreparingRebalance"
        world.release()
        assert world.state() == "PreparingRebalance", "the late success changes nothing"

    def test_a_repeated_leader_sync_does_not_assign_twice(
        self, world: World, joined: tuple[str, str]
    ) -> None:
        leader, follower = joined
        world.hold = True
        first = world.sync(leader, 1, [(leader, b"L"), (follower, b"F")])
        second = world.sync(leader, 1, [(leader, b"other")])
        assert world.replies[first].error_code == ErrorCode.REBALANCE_IN_PROGRESS
        assert len(world.held) == 1
        world.release()
        assert world.replies[second].assignment == b"L"

    def test_a_rebalance_makes_a_stored_assignment_void(
        self, world: World, joined: tuple[str, str]
    ) -> None:
        leader, follower = joined
        world.hold = True
        token = world.sync(leader, 1, [(leader, b"L"), (follower, b"F")])
        world.join(follower, protocols=[world.protocol("range", b"new")])
        assert world.replies[token].error_code == ErrorCode.REBALANCE_IN_PROGRESS
        world.release()
        assert world.state() == "PreparingRebalance"

    def test_an_assignment_of_the_generation_before_is_void(
        self, world: World, joined: tuple[str, str]
    ) -> None:
        leader, follower = joined
        world.hold = True
        world.sync(leader, 1, [(leader, b"old"), (follower, b"old")])
        for member in (follower, leader):
            world.join(member, protocols=[world.protocol("range", b"new")])
        waiting = world.sync(follower, 2)
        world.sync(leader, 2, [(leader, b"new"), (follower, b"new")])
        world.release(1)
        assert waiting not in world.replies
        assert world.state() == "CompletingRebalance"
        world.release()
        assert world.replies[waiting].assignment == b"new"

    def test_members_that_do_not_sync_are_removed(
        self, world: World, joined: tuple[str, str]
    ) -> None:
        leader, follower = joined
        for _ in range(10):  # the leader lives, and does not assign
            world.advance(6_000)
            world.heartbeat(leader, 1)
            world.heartbeat(follower, 1)
        assert world.heartbeat(leader, 1) is ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_follower_that_does_not_sync_in_a_stable_group(
        self, world: World, joined: tuple[str, str]
    ) -> None:
        leader, follower = joined
        world.sync(leader, 1, [(leader, b"L"), (follower, b"F")])
        assert world.state() == "Stable"
        for _ in range(10):
            world.advance(6_000)
            world.heartbeat(leader, 1)
            world.heartbeat(follower, 1)
        assert world.heartbeat(follower, 1) is ErrorCode.UNKNOWN_MEMBER_ID
        assert world.heartbeat(leader, 1) is ErrorCode.REBALANCE_IN_PROGRESS


class TestHeartbeat:
    def test_the_checks_in_their_order(self, world: World, joined: tuple[str, str]) -> None:
        leader = joined[0]
        assert world.heartbeat(leader, 1, group="") is ErrorCode.INVALID_GROUP_ID
        assert world.heartbeat(leader, 1, group="other") is ErrorCode.UNKNOWN_MEMBER_ID
        assert world.heartbeat("stranger", 9) is ErrorCode.UNKNOWN_MEMBER_ID
        assert world.heartbeat(leader, 0) is ErrorCode.ILLEGAL_GENERATION
        assert world.heartbeat(leader, 1) == ErrorCode.NONE

    def test_a_silent_member_is_removed(self, world: World) -> None:
        members, generation = world.stable_group(2)
        world.advance(9_999)
        assert world.heartbeat(members[0], generation) == ErrorCode.NONE
        world.advance(1)
        assert world.heartbeat(members[0], generation) is ErrorCode.REBALANCE_IN_PROGRESS
        assert world.heartbeat(members[1], generation) is ErrorCode.UNKNOWN_MEMBER_ID

    def test_waiting_for_the_coordinator_is_being_alive(
        self, world: World, joined: tuple[str, str]
    ) -> None:
        leader, follower = joined
        waiting = world.sync(follower, 1)
        for _ in range(3):
            world.advance(9_000)
            assert world.heartbeat(leader, 1) == ErrorCode.NONE
        world.sync(leader, 1, [(follower, b"F")])
        assert world.replies[waiting].assignment == b"F"
        world.advance(9_999)
        assert world.heartbeat(follower, 1) == ErrorCode.NONE
        assert world.heartbeat(leader, 1) == ErrorCode.NONE

    def test_the_last_member_leaves_an_empty_generation_behind(self, world: World) -> None:
        world.stable_group()
        world.advance(10_000)
        assert world.state() == "Empty"
        assert world.fail_over(2).coordinator.overviews()[0].generation == 2


class TestLeave:
    def test_errors(self, world: World, joined: tuple[str, str]) -> None:
        assert world.replies[world.leave("m", group="")].error_code == ErrorCode.INVALID_GROUP_ID
        [left] = world.replies[world.leave(("m", "i"), group="other")].members
        assert left.error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert (left.member_id, left.group_instance_id) == ("m", "i")

    def test_several_members_each_with_its_own_error(self, world: World) -> None:
        members, _ = world.stable_group(3)
        response = world.replies[world.leave(members[0], "stranger", "", members[1])]
        assert response.error_code == ErrorCode.NONE
        unknown = ErrorCode.UNKNOWN_MEMBER_ID
        errors = [left.error_code for left in response.members]
        assert errors == [ErrorCode.NONE, unknown, unknown, ErrorCode.NONE]
        assert world.heartbeat(members[2], 1) is ErrorCode.REBALANCE_IN_PROGRESS

    def test_leaving_for_nothing_does_not_rebalance(self, world: World) -> None:
        world.stable_group()
        world.leave("stranger")
        assert world.state() == "Stable"

    def test_the_last_one_waits_until_the_empty_group_is_stored(self, world: World) -> None:
        [member], _ = world.stable_group()
        world.hold = True
        token = world.leave((member, None, "closing"))
        assert token not in world.replies
        world.release()
        assert world.replies[token].members[0].error_code == ErrorCode.NONE
        assert world.state() == "Empty"
        assert "closing" in world.coordinator.overviews()[0].rebalance_reason

    def test_that_cannot_be_stored(self, world: World) -> None:
        [member], _ = world.stable_group()
        world.fail_with = ErrorCode.NOT_ENOUGH_REPLICAS
        response = world.replies[world.leave(member)]
        assert response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE

    def test_a_pending_member_may_leave(self, world: World) -> None:
        [member], _ = world.stable_group()
        pending = world.replies[world.join()].member_id
        token = world.join(member)
        assert token not in world.replies
        [left] = world.replies[world.leave(pending)].members
        assert left.error_code == ErrorCode.NONE
        assert world.replies[token].error_code == ErrorCode.NONE

    def test_a_member_that_waits_is_answered(self, world: World, joined: tuple[str, str]) -> None:
        leader, follower = joined
        waiting = world.sync(follower, 1)
        world.leave(follower)
        assert world.replies[waiting].error_code == ErrorCode.UNKNOWN_MEMBER_ID
        rejoining = world.join(leader)
        world.stabilize([rejoining])
        _, new = world.new_member()
        again = world.join(leader)
        assert {new, again} <= world.replies.keys()

    def test_the_others_need_not_wait_for_one_that_leaves(self, world: World) -> None:
        members, _ = world.stable_group(2)
        token = world.join(members[0])
        assert token not in world.replies
        world.leave(members[1])
        assert world.replies[token].generation_id == 2

    def test_all_members_leave_before_the_initial_delay_is_over(self, world: World) -> None:
        member, token = world.new_member()
        world.leave(member)
        assert world.replies[token].error_code == ErrorCode.UNKNOWN_MEMBER_ID
        world.advance(3_000)
        assert world.state() == "Empty"


def test_cooperative_rebalancing(world: World) -> None:
    """KIP-429: a partition changes hands over two rebalances, and no member stops in between."""
    orders = [world.protocol("cooperative-sticky", world.subscription("orders", version=3))]
    one, _ = world.new_member(protocols=orders)
    world.advance(3_000)
    everything = world.assignment(("orders", 0), ("orders", 1))
    assert world.replies[world.sync(one, 1, [(one, everything)])].assignment == everything
    two, _ = world.new_member(protocols=orders)
    assert world.heartbeat(one, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    busy = {"generation": 1, "member_id": one}
    assert world.commit_error((0, 10), **busy) == ErrorCode.NONE, "it goes on while rebalancing"
    world.join(one, protocols=orders)
    # The leader takes partition 1 from the first member, and does not give it away yet.
    parked = world.sync(two, 2)
    world.sync(one, 2, [(one, world.assignment(("orders", 0))), (two, world.assignment())])
    assert world.replies[parked].assignment == world.assignment()
    assert world.state() == "Stable"
    # The first member has given it up, and joins again so that it can be assigned.
    owned = [world.protocol("cooperative-sticky", world.subscription("orders", version=3) + b"0")]
    world.join(one, protocols=owned)
    assert world.heartbeat(two, 2) is ErrorCode.REBALANCE_IN_PROGRESS
    world.join(two, protocols=orders)
    parked = world.sync(two, 3)
    world.sync(
        one, 3, [(one, world.assignment(("orders", 0))), (two, world.assignment(("orders", 1)))]
    )
    assert world.replies[parked].assignment == world.assignment(("orders", 1))
    [overview] = world.coordinator.overviews()
    assert [m.assigned_partitions for m in overview.members] == [(("orders", 0),), (("orders", 1),)]
