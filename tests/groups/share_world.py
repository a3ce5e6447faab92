"""A share group at its coordinator. What share coordinators do with the states of partitions a test
says itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from strandline.errors import ErrorCode
from strandline.groups.consumer.cluster_view import GroupTimes
from strandline.groups.effects import AskStates, Effect
from strandline.groups.settings import GroupSettings
from strandline.groups.share.admin import Outcomes
from strandline.protocol.messages.delete_groups import DeleteGroupsRequest
from strandline.protocol.messages.list_groups import ListGroupsRequest
from strandline.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
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

    def forget(self) -> list[tuple[ErrorCode, dict[int, ErrorCode]]]:
        """End the states of the topic; gives what is answered, when it is: the code for all, and
        that of each partition."""
        told: list[tuple[ErrorCode, dict[int, ErrorCode]]] = []
        topic_id = self.cluster.topics["orders"].topic_id

        def deliver(code: ErrorCode, outcomes: Outcomes) -> None:
            told.append((code, {number: each for (_, number), each in outcomes.items()}))

        self.run(
            self.coordinator.administer(
                "g",
                lambda admin: admin.forget_topics("g", [topic_id], self.now, deliver),
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


def share_world(partition_count: int = len(PARTITIONS)) -> ShareWorld:
    """A world with one topic, whose members get their partitions at once."""
    cluster = Cluster(orders=partition_count)
    cluster.group_times = GroupTimes(share_assignment_interval_ms=0)
    return ShareWorld(cluster=cluster)


def emptied_world() -> ShareWorld:
    """The group has had a member that read everything, and it has left."""
    world = share_world()
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
