"""What the controller did, as values that read as sentences in the log."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from strandline.numerals import counted
from strandline.types import BrokerId, LeaderEpoch, TopicPartition


class Event(ABC):
    """One thing that a decision does. `str(event)` is the sentence for people."""

    __slots__ = ()

    is_alarming: ClassVar[bool] = False
    """Whether the operator should be warned."""

    @abstractmethod
    def __str__(self) -> str: ...


@dataclass(frozen=True, slots=True)
class LeaderElected(Event):
    """A partition has a leader that held every committed record when it was elected."""

    partition: TopicPartition
    leader: BrokerId
    former: BrokerId
    leader_epoch: LeaderEpoch
    in_sync: tuple[BrokerId, ...]

    def __str__(self) -> str:
        if self.former == self.leader:
            what = f"Broker {self.leader} leads {self.partition} anew"
        elif self.former < 0:
            what = f"Broker {self.leader} leads {self.partition}, which had no leader"
        else:
            what = f"Broker {self.leader} leads {self.partition} in place of {self.former}"
        return f"{what}: leader epoch {self.leader_epoch}, in sync {_list(self.in_sync)}."


@dataclass(frozen=True, slots=True)
class RestartedLeaderElected(Event):
    """All that is left are members that crashed: one of them leads with what its disk has."""

    partition: TopicPartition
    leader: BrokerId
    leader_epoch: LeaderEpoch

    def __str__(self) -> str:
        return (
            f"Broker {self.leader} leads {self.partition} after a restart that was not clean: "
            f"leader epoch {self.leader_epoch}."
        )


@dataclass(frozen=True, slots=True)
class UncleanElection(Event):
    """A replica leads that was not complete: committed records may be lost, as was allowed."""

    is_alarming: ClassVar[bool] = True

    partition: TopicPartition
    leader: BrokerId
    leader_epoch: LeaderEpoch
    passed_over: tuple[BrokerId, ...]

    def __str__(self) -> str:
        return (
            f"Unclean election: broker {self.leader} leads {self.partition} although it was not in "
            f"sync; committed records that only {_list(self.passed_over)} had are lost. "
            f"Leader epoch {self.leader_epoch}."
        )


@dataclass(frozen=True, slots=True)
class LeaderLost(Event):
    """No replica can lead the partition."""

    is_alarming: ClassVar[bool] = True

    partition: TopicPartition
    former: BrokerId
    waiting_for: tuple[BrokerId, ...]

    def __str__(self) -> str:
        return (
            f"{self.partition} has no leader after broker {self.former}: "
            f"it waits for {_list(self.waiting_for)}."
        )


@dataclass(frozen=True, slots=True)
class MembersChanged(Event):
    """The leader stays, and the in-sync set or the eligible leaders are others."""

    partition: TopicPartition
    in_sync: tuple[BrokerId, ...]
    eligible: tuple[BrokerId, ...]

    def __str__(self) -> str:
        eligible = f", eligible to lead {_list(self.eligible)}" if self.eligible else ""
        return f"In sync of {self.partition} are {_list(self.in_sync)}{eligible}."


@dataclass(frozen=True, slots=True)
class PartitionMoved(Event):
    """A reassignment is complete."""

    partition: TopicPartition
    replicas: tuple[BrokerId, ...]
    left: tuple[BrokerId, ...]

    def __str__(self) -> str:
        left = f"; {_list(self.left)} gave it up" if self.left else ""
        return f"{self.partition} has moved to {_list(self.replicas)}{left}."


@dataclass(frozen=True, slots=True)
class PartitionStarted(Event):
    """A partition that was assigned but never led has its first leader."""

    partition: TopicPartition
    leader: BrokerId

    def __str__(self) -> str:
        return f"Broker {self.leader} is the first leader of {self.partition}."


@dataclass(frozen=True, slots=True)
class TopicRemoved(Event):
    """A topic whose deletion was asked for is gone, or a part of it."""

    topic: str
    partitions_left: int = 0

    def __str__(self) -> str:
        if self.partitions_left:
            left = counted(self.partitions_left, "partition")
            return f"Topic {self.topic} is being deleted: {left} left."
        return f"Topic {self.topic} is deleted."


@dataclass(frozen=True, slots=True)
class DeletionDropped(Event):
    """A deletion that was asked for will not be: there is no such topic, or it is not allowed."""

    topic: str

    def __str__(self) -> str:
        return f"The request to delete topic {self.topic} is dropped."


def _list(brokers: Iterable[BrokerId]) -> str:
    return "[" + ", ".join(str(broker) for broker in brokers) + "]"
