"""Share groups at their coordinator: how administrators put them elsewhere, and have them forget
topics, while members come."""

from __future__ import annotations

import pytest

from strandline.errors import ErrorCode
from tests.groups.share_world import (
    PARTITIONS,
    ShareWorld,
    check_it_lives_on,
    emptied_world,
    share_world,
)


@pytest.fixture
def world() -> ShareWorld:
    return share_world()


@pytest.fixture
def emptied() -> ShareWorld:
    return emptied_world()


def test_a_member_that_joins_leaves_offsets_that_are_being_altered(emptied: ShareWorld) -> None:
    """Its heartbeats had the states begin once more, where members begin by default."""
    told = emptied.alter(100)
    altering = emptied.question("initialize")
    assert set(altering.starts.values()) == {100}
    member = emptied.member("later")
    member.beat()
    member.beat()
    assert emptied.asked == []
    emptied.tell(altering)
    assert told == [ErrorCode.NONE]
    member.beat()
    assert emptied.asked == []
    assert member.partitions == PARTITIONS


def test_offsets_that_are_altered_while_states_begin(world: ShareWorld) -> None:
    """The answer to the first question does not make heartbeats ask a third one."""
    member = world.member("first")
    member.beat()
    begun = world.question("initialize")
    member.leave()
    world.alter(100)
    altering = world.question("initialize")
    world.tell(begun, ErrorCode.FENCED_STATE_EPOCH)
    world.member("later").beat()
    assert world.asked == []
    world.tell(altering)


def test_offsets_that_are_altered_while_other_states_cannot_begin(emptied: ShareWorld) -> None:
    emptied.alter(100)
    altering = emptied.question("initialize")
    member = emptied.member("later")
    member.beat()
    emptied.cluster.put("orders", 3)
    emptied.fail_with = ErrorCode.NOT_ENOUGH_REPLICAS
    member.beat()
    assert emptied.asked == []
    member.beat()
    assert {number for _, number in emptied.question("initialize").partitions} == {2}
    emptied.tell(altering)


def test_a_group_that_is_deleted_meanwhile_is_not_made_anew(emptied: ShareWorld) -> None:
    told = emptied.alter(100)
    altering = emptied.question("initialize")
    deleted = emptied.delete()
    emptied.tell(emptied.question("delete"))
    assert deleted() is ErrorCode.NONE
    emptied.tell(altering)
    assert told == [ErrorCode.GROUP_ID_NOT_FOUND]
    assert emptied.listed() == emptied.fail_over(2).listed() == []


def test_offsets_that_could_not_be_altered_are_not_waited_for(emptied: ShareWorld) -> None:
    emptied.fail_with = ErrorCode.NOT_ENOUGH_REPLICAS
    assert emptied.alter(100) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert emptied.asked == []
    told = emptied.alter(200)
    emptied.tell(emptied.question("initialize"), ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert told == [ErrorCode.NONE]
    check_it_lives_on(emptied)


FORGOTTEN = (ErrorCode.NONE, dict.fromkeys(PARTITIONS, ErrorCode.NONE))


def test_states_of_a_topic_end_before_those_of_a_member_that_came_meanwhile_begin(
    emptied: ShareWorld,
) -> None:
    """They began first, and were begun once more after the deletion: the member started anew."""
    told = emptied.forget()
    member = emptied.member("later")
    member.beat()
    member.beat()
    assert [each.kind for each in emptied.asked] == ["delete"]
    emptied.tell(emptied.question("delete"))
    assert told == [FORGOTTEN]
    member.beat()
    emptied.tell(emptied.question("initialize"))
    member.beat()
    assert member.partitions == PARTITIONS
    member.beat()
    assert emptied.asked == []


def test_partitions_that_are_new_while_states_of_a_topic_end(emptied: ShareWorld) -> None:
    """Theirs begin at once, and once."""
    told = emptied.forget()
    emptied.cluster.put("orders", 3)
    member = emptied.member("later")
    member.beat()
    begun = emptied.question("initialize")
    assert {number for _, number in begun.partitions} == {2}
    emptied.tell(begun)
    emptied.tell(emptied.question("delete"))
    assert told == [FORGOTTEN]
    member.beat()
    again = emptied.question("initialize")
    assert {number for _, number in again.partitions} == PARTITIONS
    emptied.tell(again)
    member.beat()
    assert member.partitions == {0, 1, 2}


def test_a_topic_that_could_not_be_forgotten_is_begun_by_a_member(emptied: ShareWorld) -> None:
    emptied.fail_with = ErrorCode.NOT_ENOUGH_REPLICAS
    assert emptied.forget() == [(ErrorCode.COORDINATOR_NOT_AVAILABLE, {})]
    told = emptied.forget()
    emptied.tell(emptied.question("delete"), p1=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert told == [(ErrorCode.NONE, {0: ErrorCode.NONE, 1: ErrorCode.COORDINATOR_NOT_AVAILABLE})]
    check_it_lives_on(emptied)


def test_a_topic_is_forgotten_by_a_coordinator_that_moves(emptied: ShareWorld) -> None:
    emptied.forget()
    check_it_lives_on(emptied.fail_over(2))


def test_a_topic_is_forgotten_once_more_with_everything(emptied: ShareWorld) -> None:
    """It was confirmed without a question to share coordinators, and the states stayed."""
    emptied.forget()
    emptied.tell(emptied.question("delete"), p1=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    told = emptied.forget()
    again = emptied.question("delete")
    assert {number for _, number in again.partitions} == PARTITIONS
    emptied.tell(again)
    assert told == [FORGOTTEN]
    assert emptied.forget() == [(ErrorCode.NONE, {})], "it has no state"
    assert emptied.asked == []


def test_partitions_that_were_being_begun_are_forgotten_with_the_others(
    emptied: ShareWorld,
) -> None:
    emptied.cluster.put("orders", 3)
    member = emptied.member("later")
    member.beat()
    emptied.tell(emptied.question("initialize"), ErrorCode.COORDINATOR_NOT_AVAILABLE)
    member.leave()
    emptied.forget()
    assert {number for _, number in emptied.question("delete").partitions} == {0, 1, 2}
