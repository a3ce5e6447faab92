"""A world with topics, and members of the consumer protocol in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol
from uuid import UUID

from strandline.errors import ErrorCode
from strandline.groups.consumer.cluster_view import GroupTimes, TopicFacts
from strandline.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    DescribedGroup,
)
from strandline.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tests.groups.world import World


class Answer(Protocol):
    """Any answer with an error of its own."""

    error_code: int


class Cluster:
    """Topics by name, each with its number of partitions and the racks of their replicas."""

    def __init__(self, **partition_counts: int) -> None:
        self.version = 1
        self.topics: dict[str, TopicFacts] = {}
        self.rack_names = ["a", "b"]
        self.group_times = GroupTimes(assignment_interval_ms=0)
        self.created = 0
        for name, count in partition_counts.items():
            self.put(name, count)

    def put(self, name: str, count: int) -> None:
        """Make a topic, or give it more partitions."""
        known = self.topics.get(name)
        self.version += 1
        if known is None:
            self.created += 1
        topic_id = UUID(int=self.created) if known is None else known.topic_id
        self.topics[name] = TopicFacts(name, topic_id, count)

    def drop(self, name: str) -> None:
        self.version += 1
        del self.topics[name]

    def named(self, name: str) -> TopicFacts | None:
        return self.topics.get(name)

    def identified(self, topic_id: UUID) -> TopicFacts | None:
        return next((t for t in self.topics.values() if t.topic_id == topic_id), None)

    def names(self) -> Iterator[str]:
        return iter(self.topics)

    def racks(self, name: str) -> list[list[str]]:
        return [list(self.rack_names) for _ in range(self.topics[name].partition_count)]

    def times(self, group_id: str) -> GroupTimes:
        return self.group_times


class Client:
    """A member that does as a correct client does."""

    def __init__(
        self,
        world: ConsumerWorld,
        member_id: str = "m",
        topics: Iterable[str] | None = ("orders",),
        **said: Any,
    ) -> None:
        self.world = world
        self.member_id = member_id
        self.group: str = said.pop("group", "g")
        self.first: dict[str, Any] = {"rebalance_timeout_ms": 60_000} | said
        if topics is not None:
            self.first["subscribed_topic_names"] = list(topics)
        self.instance_id: str | None = said.get("instance_id")
        self.epoch = 0
        self.owned: set[tuple[str, int]] = set()
        self.interval_ms: int | None = None

    def request(self, **more: Any) -> ConsumerGroupHeartbeatRequest:
        """A heartbeat of this member."""
        fields: dict[str, Any] = {
            "group_id": self.group,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "instance_id": self.instance_id,
        }
        return ConsumerGroupHeartbeatRequest(**(fields | more))

    def beat(self, **more: Any) -> ConsumerGroupHeartbeatResponse:
        """Send a heartbeat that reports what it owns, and do at once what the answer says."""
        if self.epoch == 0:
            more = self.first | {"topic_partitions": []} | more
        elif "topic_partitions" not in more:
            more["topic_partitions"] = self.reported()
        return self.take(self.world.answer(self.request(**more)))

    def take(self, response: ConsumerGroupHeartbeatResponse) -> ConsumerGroupHeartbeatResponse:
        """Follow an answer: give up what is not in it, and take what is."""
        if response.error_code == ErrorCode.NONE:
            assert response.member_id is not None
            self.member_id, self.epoch = response.member_id, response.member_epoch
            self.interval_ms = response.heartbeat_interval_ms
            if response.assignment is not None:
                self.owned = set(self.world.named(response.assignment.topic_partitions))
        elif response.error_code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            self.epoch, self.owned = 0, set()
        return response

    def reported(self) -> list[TopicPartitions]:
        by_topic: dict[UUID, list[int]] = {}
        for name, partition in sorted(self.owned):
            topic_id = self.world.cluster.topics[name].topic_id
            by_topic.setdefault(topic_id, []).append(partition)
        return [
            TopicPartitions(topic_id=topic_id, partitions=numbers)
            for topic_id, numbers in by_topic.items()
        ]

    def leave(self, epoch: int = -1) -> ConsumerGroupHeartbeatResponse:
        response: ConsumerGroupHeartbeatResponse
        response = self.world.answer(self.request(member_epoch=epoch))
        return response


class ConsumerWorld(World):
    """A world whose coordinator sees topics."""

    cluster: Cluster

    def client(
        self, member_id: str = "m", topics: Iterable[str] | None = ("orders",), **said: Any
    ) -> Client:
        return Client(self, member_id, topics, **said)

    def named(self, topic_partitions: Iterable[TopicPartitions]) -> Iterator[tuple[str, int]]:
        """(topic, partition) pairs of what an answer says."""
        for topic in topic_partitions:
            facts = self.cluster.identified(topic.topic_id)
            if facts is not None:
                for partition in topic.partitions:
                    yield facts.name, partition

    def settle(self, *clients: Client, rounds: int = 6) -> None:
        """Let all members send heartbeats until nothing changes."""
        for _ in range(rounds):
            for client in clients:
                client.beat()
                self.advance(1)

    def describe(self, group: str = "g") -> DescribedGroup:
        request = ConsumerGroupDescribeRequest(group_ids=[group])
        found: list[DescribedGroup] = self.answer(request).groups
        [described] = found
        return described

    def states(self, group: str = "g") -> tuple[str, int, int]:
        found = self.describe(group)
        return found.group_state, found.group_epoch, found.assignment_epoch

    def topics_changed(self, *names: str, are_new: bool = False) -> None:
        self.coordinator.topics_changed(names, are_new=are_new)


def code(response: Answer | None) -> ErrorCode:
    """The error of an answer, which is to be there."""
    assert response is not None
    return ErrorCode(response.error_code)
