"""What consumer groups have to know of the cluster: its topics, and the settings of groups.

The node answers from its image of the metadata; a coordinator without a cluster knows no topics.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from strandline.types import TopicId


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic."""

    name: str
    topic_id: TopicId
    partition_count: int


@dataclass(frozen=True, slots=True)
class GroupTimes:
    """The times of one group; each default is that of Kafka 4.3."""

    session_timeout_ms: int = 45_000
    """`consumer.session.timeout.ms`: silence after which a member is out."""
    heartbeat_interval_ms: int = 5_000
    """`consumer.heartbeat.interval.ms`, as members are told."""
    assignment_interval_ms: int = 1_000
    """`consumer.assignment.interval.ms`: the least time between two target assignments."""
    share_session_timeout_ms: int = 45_000
    """`share.session.timeout.ms`."""
    share_heartbeat_interval_ms: int = 5_000
    """`share.heartbeat.interval.ms`."""
    share_assignment_interval_ms: int = 1_000
    """`share.assignment.interval.ms`."""


class ClusterView(Protocol):
    """The cluster as it is now."""

    @property
    def version(self) -> int:
        """Grows with every change of the metadata."""
        ...

    def named(self, name: str) -> TopicFacts | None:
        """The topic of that name."""
        ...

    def identified(self, topic_id: TopicId) -> TopicFacts | None:
        """The topic with that id."""
        ...

    def names(self) -> Iterable[str]:
        """The names of all topics."""
        ...

    def racks(self, name: str) -> Sequence[Sequence[str]]:
        """For each partition of a topic the racks of its replicas, where they have one."""
        ...

    def times(self, group_id: str) -> GroupTimes:
        """What is set for a group."""
        ...


class NoCluster:
    """A view in which there are no topics."""

    version = 0

    def named(self, name: str) -> TopicFacts | None:
        """None."""
        del name
        return None

    def identified(self, topic_id: TopicId) -> TopicFacts | None:
        """None."""
        del topic_id
        return None

    def names(self) -> Iterable[str]:
        """Nothing."""
        return ()

    def racks(self, name: str) -> Sequence[Sequence[str]]:
        """Nothing."""
        del name
        return ()

    def times(self, group_id: str) -> GroupTimes:
        """The defaults."""
        del group_id
        return GroupTimes()


def named_partitions(
    partitions: Mapping[TopicId, Iterable[int]], cluster: ClusterView
) -> Iterator[tuple[TopicFacts, list[int]]]:
    """The topics of an assignment that are there, each with its partitions in their order."""
    for topic_id, numbers in partitions.items():
        topic = cluster.identified(topic_id)
        if topic is not None:
            yield topic, sorted(numbers)
