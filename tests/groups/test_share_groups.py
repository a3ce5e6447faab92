"""Share groups at their coordinator: how they end, while members come."""

from __future__ import annotations

import pytest

from strandline.errors import ErrorCode
from strandline.types import TopicPartition
from tests.groups.share_world import (
    PARTITIONS,
    ShareWorld,
    check_it_lives_on,
    emptied_world,
    share_world,
)
from tests.lines import lines_of


@pytest.fixture
def world() -> ShareWorld:
    return share_world()


@pytest.fixture
def emptied() -> ShareWorld:
    return emptied_world()


def test_a_group_is_gone_when_its_states_are(emptied: ShareWorld) -> None:
    told = emptied.delete()
    assert told() is None
    emptied.tell(emptied.question("delete"))
    assert told() is ErrorCode.NONE
    assert emptied.listed() == emptied.fail_over(2).listed() == []
    check_it_lives_on(emptied)


def test_states_that_ended_begin_anew_if_others_did_not_end(emptied: ShareWorld) -> None:
    """They passed for being there, and members were given partitions that have none."""
    told = emptied.delete()
    emptied.tell(emptied.question("delete"), p1=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert told() is ErrorCode.COORDINATOR_NOT_AVAILABLE
    check_it_lives_on(emptied)


def test_states_that_ended_begin_anew_if_the_coordinator_moved(emptied: ShareWorld) -> None:
    emptied.delete()
    check_it_lives_on(emptied.fail_over(2))


def test_states_that_ended_begin_anew_for_a_member_that_came_meanwhile(
    emptied: ShareWorld,
) -> None:
    """They begin after they have ended, whatever share coordinators would have heard first."""
    told = emptied.delete()
    member = emptied.member("later")
    member.beat()
    assert [each.kind for each in emptied.asked] == ["delete"]
    emptied.tell(emptied.question("delete"))
    assert told() is ErrorCode.NON_EMPTY_GROUP
    member.beat()
    emptied.tell(emptied.question("initialize"))
    member.beat()
    assert member.partitions == PARTITIONS


def test_states_whose_begin_is_told_after_a_deletion_was_asked_for_do_not_count(
    world: ShareWorld,
) -> None:
    """Which of the two was done last is not known."""
    member = world.member("first")
    member.beat()
    begun = world.question("initialize")
    member.leave()
    told = world.delete()
    world.tell(begun)
    later = world.member("later")
    later.beat()
    assert [each.kind for each in world.asked] == ["delete"]
    world.tell(world.question("delete"))
    assert told() is ErrorCode.NON_EMPTY_GROUP
    later.beat()
    world.tell(world.question("initialize"))
    later.beat()
    assert later.partitions == PARTITIONS


def test_a_deletion_that_is_refused_leaves_all_states(emptied: ShareWorld) -> None:
    emptied.fail_with = ErrorCode.NOT_ENOUGH_REPLICAS
    assert emptied.delete()() is ErrorCode.COORDINATOR_NOT_AVAILABLE
    member = emptied.member("later")
    member.beat()
    assert emptied.asked == []
    assert member.partitions == PARTITIONS
    member.leave()
    emptied.delete()
    emptied.tell(emptied.question("delete"), ErrorCode.COORDINATOR_NOT_AVAILABLE)
    check_it_lives_on(emptied)


def test_a_deletion_is_tried_again_with_everything(emptied: ShareWorld) -> None:
    emptied.delete()
    emptied.tell(emptied.question("delete"), p1=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    told = emptied.delete()
    again = emptied.question("delete")
    assert {number for _, number in again.partitions} == PARTITIONS
    emptied.tell(again)
    assert told() is ErrorCode.NONE
    assert emptied.listed() == []


def test_two_deletions_at_once(emptied: ShareWorld) -> None:
    """The second one does not end a group of the name that has come since."""
    first, second = emptied.delete(), emptied.delete()
    asked, emptied.asked = emptied.asked, []
    emptied.tell(asked[0])
    assert first() is ErrorCode.NONE
    assert emptied.listed() == []
    check_it_lives_on(emptied)
    emptied.tell(asked[1])
    assert second() is ErrorCode.NONE
    assert emptied.listed() == emptied.fail_over(2).listed() == ["g"]


@pytest.mark.parametrize("refusal", [None, ErrorCode.NOT_ENOUGH_REPLICAS])
def test_a_name_is_free_after_a_commit_beside_the_end_of_its_group(
    world: ShareWorld, refusal: ErrorCode | None
) -> None:
    """The commit makes a simple group, which could not be deleted."""
    world.member("first").beat()
    world.question("initialize")
    world.advance(45_000)  # its session is over
    world.hold = True
    told = world.delete()
    world.release(1)
    world.tell(world.question("delete"))
    world.commit((0, 5))
    world.release(1)
    assert told() is ErrorCode.NONE
    world.hold = False
    if refusal is None:
        world.release()
        assert world.offsets() == {TopicPartition("orders", 0): 5}
        assert world.delete()() is ErrorCode.NONE
    else:
        world.refuse(refusal)
    assert world.listed() == []
    check_it_lives_on(world)


def test_partitions_that_come_later_get_states_as_well(world: ShareWorld) -> None:
    member = world.member("first")
    member.beat()
    world.tell(world.question("initialize"))
    member.beat()
    member.beat()
    assert not world.asked
    world.cluster.put("orders", 3)
    world.coordinator.topics_changed(["orders"])
    member.beat()
    begun = world.question("initialize")
    assert {number for _, number in begun.partitions} == {2}
    world.tell(begun, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    member.beat()
    world.tell(world.question("initialize"))
    member.beat()
    assert member.partitions == {0, 1, 2}


def test_a_heartbeat_of_a_group_in_which_nothing_changes() -> None:
    """All partitions of all topics were looked at each time, after all members' subscriptions."""

    def cost(count: int) -> int:
        world = share_world(count)
        world.coordinator.check = lambda: None  # type: ignore[method-assign]
        members = [world.member(f"m{number}") for number in range(count // 2)]
        for member in members:
            member.beat()
        world.tell(world.question("initialize"))
        for member in members:
            member.beat()
        return lines_of(members[0].beat)

    assert cost(100) == cost(50)
