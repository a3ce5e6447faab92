"""JoinGroup: every rule and error code of becoming and staying a member."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from strandline.errors import ErrorCode, InvariantViolated
from strandline.groups.requests import Token
from strandline.groups.settings import GroupSettings
from strandline.protocol.messages.join_group import JoinGroupRequestProtocol
from tests.groups.world import World


def error(world: World, **overrides: Any) -> int:
    member_id = overrides.pop("member_id", "")
    code: int = world.replies[world.join(member_id, **overrides)].error_code
    return code


def test_requests_that_cannot_be_right_are_refused(world: World) -> None:
    assert error(world, group="") is ErrorCode.INVALID_GROUP_ID
    assert error(world, session_timeout_ms=5_999) is ErrorCode.INVALID_SESSION_TIMEOUT
    assert error(world, session_timeout_ms=1_800_001) is ErrorCode.INVALID_SESSION_TIMEOUT
    assert error(world, member_id="stranger") is ErrorCode.UNKNOWN_MEMBER_ID
    assert error(world, protocols=[]) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert error(world, protocol_type="") is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert error(world, client_id="x" * 32_740) is ErrorCode.INVALID_REQUEST
    assert world.coordinator.overviews() == [], "a refused join must not leave a group behind"


def test_a_new_dynamic_member_must_come_back_with_its_id(world: World) -> None:
    response = world.replies[world.join(client_id="app")]
    assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert response.member_id.startswith("app-")
    assert len(response.member_id) == len("app-") + 36
    world.join(response.member_id)
    world.advance(3_000)
    assert world.state() == "CompletingRebalance"


@pytest.mark.parametrize("version", [0, 3])
def test_old_clients_join_without_an_id(world: World, version: int) -> None:
    token = world.join(version=version)
    assert token not in world.replies
    world.advance(3_000)
    assert world.replies[token].error_code == ErrorCode.NONE
    assert world.replies[token].generation_id == 1


class Counted(list[JoinGroupRequestProtocol]):
    """The protocols of a member, and how often they are gone through."""

    passes = 0

    def __iter__(self) -> Iterator[JoinGroupRequestProtocol]:
        self.passes += 1
        return super().__iter__()


def test_a_join_does_not_go_through_what_others_support(world: World) -> None:
    """One member with very many protocols, or very many members, would hold up all groups."""
    many = [world.protocol(f"p{number}", b"") for number in range(100)]
    counted = Counted([*many, world.protocol("range", b"")])
    world.join(version=3, protocols=counted)
    for joins in range(5):
        before = counted.passes
        call = world.join_call(version=3, protocols=[world.protocol("range", b"")])
        effects = world.coordinator.handle(call, world.now)
        assert counted.passes == before, f"at join {joins}"
        world.run(effects)
    before = counted.passes
    foreign = world.join_call(version=3, protocols=[world.protocol("other", b"")])
    refused = world.coordinator.handle(foreign, world.now)
    assert counted.passes == before
    world.run(refused)
    assert world.replies[foreign.token].error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_counts_of_a_group_are_verified(world: World) -> None:
    world.join(version=3)
    served = world.coordinator._shards.at(0)
    assert served is not None
    [member] = served.shard.groups["g"].members.values()
    member.awaiting_join, parked = None, member.awaiting_join
    with pytest.raises(InvariantViolated, match="counted"):
        served.shard.groups["g"].check()
    member.awaiting_join = parked
    member.protocols = [world.protocol("other", b"")]
    with pytest.raises(InvariantViolated, match="counted"):
        served.shard.groups["g"].check()


def test_version_0_rebalances_within_the_session_timeout(world: World) -> None:
    member_id = world.replies[_joined(world, version=0)].member_id
    world.sync(member_id, 1, [(member_id, b"")])
    second = world.join(version=0)
    world.advance(9_999)
    assert second not in world.replies
    world.advance(1)
    assert world.replies[second].error_code == ErrorCode.NONE


def _joined(world: World, **overrides: Any) -> Token:
    token = world.join(**overrides)
    world.advance(3_000)
    return token


def test_a_pending_member_that_does_not_come_back_is_forgotten(world: World) -> None:
    member_id = world.replies[world.join()].member_id
    world.advance(10_000)
    assert error(world, member_id=member_id) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_pending_member_must_not_turn_static(world: World) -> None:
    member_id = world.replies[world.join()].member_id
    refused = error(world, member_id=member_id, group_instance_id="i")
    assert refused is ErrorCode.UNKNOWN_SERVER_ERROR


def test_the_initial_delay_is_extended_by_newcomers_up_to_the_rebalance_timeout(
    world_type: type[World],
) -> None:
    world = world_type(GroupSettings(initial_rebalance_delay_ms=3_000))
    _, first = world.new_member(rebalance_timeout_ms=8_000)
    for _ in range(2):
        world.advance(2_900)
        world.new_member(rebalance_timeout_ms=8_000)
    world.advance(2_199)
    assert first not in world.replies  # 7,999 ms: 3,000 + 3,000 + the remaining 2,000
    world.advance(1)
    assert world.replies[first].generation_id == 1
    assert len(world.replies[first].members) == 3


def test_no_initial_delay(world_type: type[World]) -> None:
    world = world_type(GroupSettings(initial_rebalance_delay_ms=0))
    _, token = world.new_member()
    world.advance(1)
    assert world.replies[token].generation_id == 1


def test_only_the_leader_sees_the_members(world: World) -> None:
    (one, first), (two, second) = world.new_member(), world.new_member()
    world.advance(6_000)
    leading, following = world.replies[first], world.replies[second]
    assert leading.leader == following.leader == one
    assert [member.member_id for member in leading.members] == [one, two]
    assert leading.members[0].metadata == world.subscription("orders")
    assert following.members == []
    assert (following.protocol_type, following.protocol_name) == ("consumer", "range")


def test_the_protocol_with_the_most_votes_among_the_common_ones_wins(world: World) -> None:
    def protocols(*names: str) -> list[JoinGroupRequestProtocol]:
        return [world.protocol(name, world.subscription("orders")) for name in names]

    tokens = [
        world.new_member(protocols=protocols(*names))[1]
        for names in (("a", "b", "c"), ("x", "c", "b"), ("c", "b"))
    ]
    world.advance(12_000)
    assert {world.replies[token].protocol_name for token in tokens} == {"c"}
    alien = error(world, protocols=protocols("x", "a"))
    assert alien is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    other_type = error(world, protocol_type="connect", protocols=protocols("b"))
    assert other_type is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_newcomer_rebalances_a_stable_group(world: World) -> None:
    [member], generation = world.stable_group()
    _, token = world.new_member()
    assert world.state() == "PreparingRebalance"
    assert world.heartbeat(member, generation) is ErrorCode.REBALANCE_IN_PROGRESS
    again = world.join(member)
    assert (
        world.replies[again].generation_id == world.replies[token].generation_id == generation + 1
    )
    assert world.replies[again].leader == member


def test_members_that_do_not_rejoin_are_dropped_and_another_one_leads(world: World) -> None:
    [leader, follower], _ = world.stable_group(2)
    rejoined = world.join(follower, protocols=[world.protocol("range", b"changed")])
    for _ in range(9):  # it heartbeats, and never joins
        assert world.heartbeat(leader, 1) is ErrorCode.REBALANCE_IN_PROGRESS
        world.advance(6_000)
    world.advance(6_000)
    assert world.replies[rejoined].leader == follower
    assert [member.member_id for member in world.replies[rejoined].members] == [follower]
    assert world.heartbeat(leader, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_rejoining_without_a_change(world: World) -> None:
    [leader, follower], generation = world.stable_group(2)
    response = world.replies[world.join(follower)]
    assert (response.error_code, response.generation_id) == (ErrorCode.NONE, generation)
    assert response.members == []
    assert world.state() == "Stable"
    world.join(leader)
    assert world.state() == "PreparingRebalance", "the leader may have seen new partitions"


def test_a_lost_join_answer_can_be_fetched_again(world: World) -> None:
    (one, _), (two, _) = world.new_member(), world.new_member()
    world.advance(6_000)
    leading = world.replies[world.join(one)]
    assert len(leading.members) == 2
    assert world.replies[world.join(two)].members == []
    assert world.state() == "CompletingRebalance"
    world.join(two, protocols=[world.protocol("range", world.subscription("payments"))])
    assert world.state() == "PreparingRebalance"


def test_a_repeated_join_supersedes_the_one_that_waits(world: World) -> None:
    member, first = world.new_member()
    second = world.join(member)
    assert world.replies[first].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    world.advance(3_000)
    assert world.replies[second].error_code == ErrorCode.NONE


def test_a_new_member_does_not_wait_for_ever(world_type: type[World]) -> None:
    world = world_type(GroupSettings(new_member_join_timeout_ms=20_000))
    [member], generation = world.stable_group(rebalance_timeout_ms=500_000)
    _, token = world.new_member()
    for _ in range(4):
        world.advance(5_000)
        world.heartbeat(member, generation)
    assert world.replies[token].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.state() == "PreparingRebalance"


def test_a_rebalance_does_not_end_while_a_promised_member_is_missing(world: World) -> None:
    [member], _ = world.stable_group()
    promised = world.replies[world.join()].member_id
    again = world.join(member)
    assert again not in world.replies
    world.advance(10_000)
    assert world.replies[again].generation_id == 2
    assert error(world, member_id=promised) is ErrorCode.UNKNOWN_MEMBER_ID


class TestGroupSize:
    def test_stable_and_completing_groups_take_no_more(self, world_type: type[World]) -> None:
        world = world_type(GroupSettings(members_max=2))
        (one, _), (two, _) = world.new_member(), world.new_member()
        world.advance(6_000)
        assert error(world) is ErrorCode.GROUP_MAX_SIZE_REACHED
        assert error(world, member_id=one) == ErrorCode.NONE
        world.sync(two, 1)
        world.sync(one, 1, [(one, b"a"), (two, b"b")])
        refused = world.replies[world.join()]
        assert (refused.error_code, refused.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")

    def test_a_preparing_group_counts_those_who_have_joined(self, world_type: type[World]) -> None:
        world = world_type(GroupSettings(members_max=1))
        _, first = world.new_member()
        assert error(world) is ErrorCode.GROUP_MAX_SIZE_REACHED
        world.advance(3_000)
        assert world.replies[first].error_code == ErrorCode.NONE

    def test_a_loaded_group_that_is_too_large_shrinks(self, world_type: type[World]) -> None:
        world = world_type()
        members, generation = world.stable_group(3)
        world.settings = GroupSettings(members_max=2)
        later = world.fail_over(2)
        assert later.state() == "PreparingRebalance"
        answers = [later.heartbeat(member, generation) for member in members]
        assert set(answers) == {ErrorCode.REBALANCE_IN_PROGRESS}, "so that they can commit"
        tokens = [later.join(member) for member in members]
        errors = [later.replies[token].error_code for token in tokens]
        assert errors == [ErrorCode.NONE] * 2 + [ErrorCode.GROUP_MAX_SIZE_REACHED]


def test_a_group_that_cannot_be_written_does_not_exist(world: World) -> None:
    world.hold = True
    static = world.join(group_instance_id="i")
    world.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert world.replies[static].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.state() is None
    written = len(world.log[0])
    world.advance(60_000)
    assert len(world.log[0]) == written, "no timer of the group is left"


def test_an_unwritten_group_is_not_visible(world: World) -> None:
    world.hold = True
    world.join()
    assert world.state() is None
    world.release()
    assert world.state() == "Empty"


def test_a_forgotten_join_is_not_answered_but_its_member_stays(world: World) -> None:
    member, token = world.new_member()
    world.coordinator.forget(token)
    world.advance(3_000)
    assert token not in world.replies
    assert world.heartbeat(member, 1) == ErrorCode.NONE
    world.coordinator.forget(token)
    world.coordinator.forget("never heard of")
