"""KIP-345 and KIP-814: static members keep their place, and duplicates are fenced."""

from __future__ import annotations

import pytest

from strandline.errors import ErrorCode
from tests.groups.world import World

STATIC = {"group_instance_id": "i-1"}


@pytest.fixture
def pair(world: World) -> tuple[str, str]:
    """A stable group of a static leader and a dynamic follower: (leader, follower)."""
    leading = world.join(**STATIC)
    follower, following = world.new_member()
    world.advance(6_000)
    leader = world.replies[leading].member_id
    assert world.replies[leading].leader == leader
    world.stabilize([leading, following])
    return leader, follower


def test_a_static_member_joins_at_once_under_its_instance_id(
    world: World, pair: tuple[str, str]
) -> None:
    assert pair[0].startswith("i-1-")
    assert pair[1].startswith("client-")


def test_a_restarted_leader_takes_over_without_a_rebalance(
    world: World, pair: tuple[str, str]
) -> None:
    leader, follower = pair
    returned = world.replies[world.join(**STATIC)]
    assert returned.error_code == ErrorCode.NONE
    assert returned.generation_id == 1
    assert returned.member_id != leader
    assert returned.leader == returned.member_id
    assert returned.skip_assignment
    assert {m.member_id for m in returned.members} == {returned.member_id, follower}
    assert world.state() == "Stable"
    token = world.sync(returned.member_id, 1, group_instance_id="i-1")
    assert world.replies[token].assignment == world.assignment(("orders", 0))
    assert world.heartbeat(follower, 1) == ErrorCode.NONE


def test_before_version_9_a_returning_leader_is_not_told_that_it_leads(
    world: World, pair: tuple[str, str]
) -> None:
    returned = world.replies[world.join(version=8, **STATIC)]
    assert returned.leader == pair[0]
    assert not returned.skip_assignment
    assert returned.members == []


def test_a_restarted_follower(world: World, pair: tuple[str, str]) -> None:
    token = world.join(group_instance_id="i-2")
    leading = world.join(pair[0], **STATIC)
    following = world.join(pair[1])
    world.stabilize([leading, token, following])
    returned = world.replies[world.join(group_instance_id="i-2")]
    assert (returned.leader, returned.skip_assignment) == (pair[0], False)
    assert returned.members == []
    assert world.state() == "Stable"


def test_a_replacement_is_durable_before_it_is_answered(
    world: World, pair: tuple[str, str]
) -> None:
    world.hold = True
    token = world.join(**STATIC)
    assert token not in world.replies
    world.release()
    later = world.fail_over(2)
    new_id = world.replies[token].member_id
    assert later.heartbeat(new_id, 1, instance="i-1") == ErrorCode.NONE
    assert later.heartbeat(pair[0], 1, instance="i-1") is ErrorCode.FENCED_INSTANCE_ID


def test_a_replacement_that_cannot_be_stored_is_undone(world: World, pair: tuple[str, str]) -> None:
    world.fail_with = ErrorCode.NOT_LEADER_OR_FOLLOWER
    returned = world.replies[world.join(**STATIC)]
    assert returned.error_code == ErrorCode.NOT_COORDINATOR
    assert world.heartbeat(pair[0], 1, instance="i-1") == ErrorCode.NONE
    world.advance(10_000)
    assert world.heartbeat(pair[0], 1) is ErrorCode.UNKNOWN_MEMBER_ID, "its session is watched"


def test_a_replacement_that_is_overdue_is_undone(world: World, pair: tuple[str, str]) -> None:
    world.hold = True
    token = world.join(**STATIC)
    world.advance(5_000)
    assert world.replies[token].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.heartbeat(pair[0], 1, instance="i-1") == ErrorCode.NONE
    world.release()
    assert world.heartbeat(pair[0], 1, instance="i-1") == ErrorCode.NONE


def test_a_rebalance_during_the_replacement_answers_it(world: World, pair: tuple[str, str]) -> None:
    world.hold = True
    token = world.join(**STATIC)
    joined = world.join(pair[1], protocols=[world.protocol("range", b"changed")])
    world.release()
    assert world.replies[token].generation_id == world.replies[joined].generation_id == 2


def test_a_replacement_that_is_stored_during_a_rebalance_joins_it(
    world: World, pair: tuple[str, str]
) -> None:
    world.hold = True
    token = world.join(**STATIC)
    _, newcomer = world.new_member()
    world.release()
    assert world.state() == "PreparingRebalance"
    assert token not in world.replies, "the generation that it would be told is over"
    world.join(pair[1])
    assert world.replies[token].generation_id == world.replies[newcomer].generation_id == 2


def test_two_replacements_at_once(world: World, pair: tuple[str, str]) -> None:
    world.hold = True
    first, second = world.join(**STATIC), world.join(**STATIC)
    assert world.replies[first].error_code == ErrorCode.FENCED_INSTANCE_ID
    assert world.replies[first].protocol_name is None
    world.release()
    assert world.replies[second].error_code == ErrorCode.NONE


def test_a_change_of_the_chosen_protocol_rebalances(world: World) -> None:
    first = world.join(
        group_instance_id="i-1", protocols=[world.protocol("a", b"1"), world.protocol("b", b"1")]
    )
    world.advance(3_000)
    world.stabilize([first])
    token = world.join(
        group_instance_id="i-1", protocols=[world.protocol("b", b"1"), world.protocol("a", b"1")]
    )
    assert world.replies[token].generation_id == 2
    assert world.replies[token].protocol_name == "b"


def test_a_changed_subscription_alone_does_not(world: World, pair: tuple[str, str]) -> None:
    changed = [world.protocol("range", world.subscription("payments"))]
    assert world.replies[world.join(protocols=changed, **STATIC)].generation_id == 1
    assert world.state() == "Stable"


def test_a_member_that_returns_between_join_and_sync_rebalances(world: World) -> None:
    leading = world.join(**STATIC)
    world.advance(3_000)
    leader = world.replies[leading].member_id
    syncing = world.join(group_instance_id="i-2")
    assert world.replies[world.join(leader, **STATIC)].generation_id == 2
    second = world.replies[syncing]
    parked = world.sync(second.member_id, 2, group_instance_id="i-2")
    returned = world.join(group_instance_id="i-2")
    assert world.replies[parked].error_code == ErrorCode.FENCED_INSTANCE_ID
    assert world.state() == "PreparingRebalance"
    world.join(leader, **STATIC)
    assert world.replies[returned].generation_id == 3


def test_duplicates_are_fenced_everywhere(world: World, pair: tuple[str, str]) -> None:
    leader = pair[0]
    returned = world.replies[world.join(**STATIC)].member_id
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert world.replies[world.join(leader, **STATIC)].error_code == fenced
    assert world.replies[world.sync(leader, 1, group_instance_id="i-1")].error_code == fenced
    assert world.heartbeat(leader, 1, instance="i-1") is fenced
    commit = {"generation": 1, "group_instance_id": "i-1"}
    assert world.commit_error((0, 5), member_id=leader, **commit) is fenced
    [left] = world.replies[world.leave((leader, "i-1"))].members
    assert left.error_code == fenced
    assert world.heartbeat(returned, 1, instance="nobody") is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_waiting_join_is_fenced_by_its_successor(world: World) -> None:
    first = world.join(**STATIC)
    second = world.join(**STATIC)
    assert world.replies[first].error_code == ErrorCode.FENCED_INSTANCE_ID
    world.advance(6_000)
    assert world.replies[second].error_code == ErrorCode.NONE


def test_static_members_survive_a_missed_rebalance_until_their_session_ends(
    world: World, pair: tuple[str, str]
) -> None:
    leader, follower = pair
    token = world.join(follower, protocols=[world.protocol("range", world.subscription("x"))])
    for _ in range(6):
        world.advance(9_000)
        world.heartbeat(leader, 1, instance="i-1")
    world.advance(6_000)
    response = world.replies[token]
    assert response.leader == follower
    assert {member.member_id for member in response.members} == {leader, follower}


def test_without_anyone_the_join_goes_on_until_sessions_end(
    world: World, pair: tuple[str, str]
) -> None:
    leader, follower = pair
    world.leave(follower)
    assert world.state() == "PreparingRebalance"
    for _ in range(8):  # past the rebalance timeout: no member has joined, none is removed
        world.advance(9_000)
        assert world.heartbeat(leader, 1, instance="i-1") is ErrorCode.REBALANCE_IN_PROGRESS
    world.advance(10_000)
    assert world.state() == "Empty"


def test_an_administrator_removes_by_instance_id(world: World, pair: tuple[str, str]) -> None:
    [left] = world.replies[world.leave(("", "i-1"))].members
    assert (left.error_code, left.group_instance_id) == (ErrorCode.NONE, "i-1")
    [unknown] = world.replies[world.leave(("", "i-1"))].members
    assert unknown.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.heartbeat(pair[1], 1) is ErrorCode.REBALANCE_IN_PROGRESS


def test_static_members_keep_their_ids_over_a_fail_over(
    world: World, pair: tuple[str, str]
) -> None:
    later = world.fail_over(2)
    assert later.heartbeat(pair[0], 1, instance="i-1") == ErrorCode.NONE
    returned = later.replies[later.join(**STATIC)]
    assert (returned.generation_id, returned.skip_assignment) == (1, True)
