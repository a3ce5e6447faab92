"""Share groups at their coordinator: how they end, and how administrators put them elsewhere, while
members come. What share coordinators do with the states of partitions a test says itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from strandline.errors import ErrorCode
from strandline.groups.consumer.cluster_view import GroupTimes
from strandline.groups.effects import AskStates, Effect
from strandline.groups.settings import GroupSettings
from strandline.protocol.messages.delete_groups import DeleteGroupsRequest
from strandline.protocol.messages.list_groups import ListGroupsRequest
from strandline.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from strandline.types import TopicPartition
from tests.groups.consumer.world import Cluster
from tests.groups.world import World

PARTITIONS = {0, 1}
"""Of the only topic."""


class ShareWorld(World):
    """A world with share coordinators, whose questions wait in `asked`."""

    cluster: Cluster

    def __init__(self, settings: GroupSettings | None = None, **more: Any) -> None:
        self.asked: list[AskStates] = []
        super().__init__(settings, **more)

    def run(self, effects: Iterable[Effect]) -> None:
        effects = list(effects)
        self.asked += [each for each in effects if isinstance(each, AskStates)]
        super().run([each for each in effects if not isinstance(each, AskStates)])

    def question(self, kind: str) -> AskStates:
        """The one question of this kind, which is to be answered."""
        [found] = [each for each in self.asked if each.kind == kind]
        self.asked.remove(found)
        return found

    def tell(self, question: AskStates, code: ErrorCode = ErrorCode.NONE, **other: int) -> None:
        """What became of each partition; all but those in `other` end with `code`."""
        outcomes = {
            (topic_id, number): ErrorCode(other.get(f"p{number}", code))
            for topic_id, number in question.partitions
        }
        self.run(self.coordinator.states_answered(question.question_id, outcomes, self.now))

    def member(self, member_id: str) -> Member:
        return Member(self, member_id)

    def delete(self) -> Callable[[], ErrorCode | None]:
        """Ask for the end of the group; gives what is answered, None while nothing is."""
        token = self.ask(DeleteGroupsRequest(groups_names=["g"]))

        def told() -> ErrorCode | None:
            answer = self.replies.get(token)
            return None if answer is None else ErrorCode(answer.results[0].error_code)

        return told

    def alter(self, start: int) -> list[ErrorCode]:
        """Put the group elsewhere in both partitions; gives what is answered, when it is."""
        told: list[ErrorCode] = []
        starts = {self.cluster.topics["orders"].topic_id: dict.fromkeys(PARTITIONS, start)}
        self.run(
            self.coordinator.administer(
                "g",
                lambda admin: admin.alter("g", starts, self.now, lambda code, _: told.append(code)),
                self.now,
            )
        )
        return told

    def listed(self) -> list[str]:
        return [group.group_id for group in self.answer(ListGroupsRequest()).groups]


class Member:
    """A member of the group, which reads the only topic."""

    def __init__(self, world: ShareWorld, member_id: str) -> None:
        self.world, self.member_id = world, member_id
        self.epoch = 0
        self.partitions: set[int] = set()

    def beat(self, epoch: int | None = None) -> ShareGroupHeartbeatResponse:
        answer: ShareGroupHeartbeatResponse = self.world.answer(
            ShareGroupHeartbeatRequest(
                group_id="g",
                member_id=self.member_id,
                member_epoch=self.epoch if epoch is None else epoch,
                subscribed_topic_names=["orders"] if self.epoch == 0 else None,
            )
        )
        if answer.error_code == ErrorCode.NONE:
            self.epoch = answer.member_epoch
        if answer.assignment is not None:
            assigned = answer.assignment.topic_partitions
            self.partitions = {number for topic in assigned for number in topic.partitions}
        return answer

    def leave(self) -> None:
        self.beat(-1)


@pytest.fixture
def world() -> ShareWorld:
    cluster = Cluster(orders=len(PARTITIONS))
    cluster.group_times = GroupTimes(share_assignment_interval_ms=0)
    return ShareWorld(cluster=cluster)


@pytest.fixture
def emptied(world: ShareWorld) -> ShareWorld:
    """The group has had a member that read everything, and it has left."""
    member = world.member("first")
    member.beat()
    world.tell(world.question("initialize"))
    member.beat()
    assert member.partitions == PARTITIONS
    member.leave()
    return world


def check_it_lives_on(world: ShareWorld) -> None:
    """A member's heartbeats have states begun of everything, and bring it everything."""
    member = world.member("later")
    member.beat()
    begun = world.question("initialize")
    assert {number for _, number in begun.partitions} == PARTITIONS
    assert not begun.starts
    world.tell(begun)
    member.beat()
    assert member.partitions == PARTITIONS


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
