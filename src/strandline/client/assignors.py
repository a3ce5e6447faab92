"""How the leader of a group divides the partitions: range and roundrobin, and the table of all.

Every member offers the assignors that it knows; the coordinator chooses one that all of them offer,
and the leader computes with it. The names and the bytes between members are Kafka's. Results are
those of Kafka's classes for range and roundrobin without racks; `sticky` is as balanced as Kafka's
and keeps as much, but may choose other partitions. This file knows no request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from strandline.client.group_subscriber import Subscriber, in_order
from strandline.client.sticky import (
    assign_cooperatively,
    assign_sticky,
    cooperative_user_data,
    sticky_user_data,
)
from strandline.errors import InvalidSetting
from strandline.types import TopicPartition

Assign: TypeAlias = Callable[
    [Sequence[Subscriber], Mapping[str, Sequence[int]]], dict[str, list[TopicPartition]]
]
"""Members and the partitions of their topics in, the partitions of each member out."""
UserData: TypeAlias = Callable[[Sequence[TopicPartition], int], bytes | None]
"""What a member tells the leader, of what it was given last and in which generation."""


def no_user_data(owned: Sequence[TopicPartition], generation: int) -> bytes | None:
    """The leader needs to know nothing."""
    del owned, generation
    return None


@dataclass(frozen=True, slots=True)
class Assignor:
    """A way to divide partitions."""

    name: str
    assign: Assign
    user_data: UserData = no_user_data
    is_cooperative: bool = False
    """Whether members keep their partitions while they join, and give up what moves only then."""


def assign_range(
    members: Sequence[Subscriber], partitions: Mapping[str, Sequence[int]]
) -> dict[str, list[TopicPartition]]:
    """Of each topic, every subscriber gets a run of partitions; the first ones get one more."""
    parts: dict[str, list[TopicPartition]] = {each.member_id: [] for each in members}
    for topic in sorted(partitions):
        numbers = sorted(partitions[topic])
        takers = [each for each in in_order(members) if topic in each.subscription.topics]
        if not takers:
            continue
        share, rest = divmod(len(numbers), len(takers))
        begin = 0
        for place, taker in enumerate(takers):
            end = begin + share + (1 if place < rest else 0)
            parts[taker.member_id] += [TopicPartition(topic, each) for each in numbers[begin:end]]
            begin = end
    return parts


def assign_round_robin(
    members: Sequence[Subscriber], partitions: Mapping[str, Sequence[int]]
) -> dict[str, list[TopicPartition]]:
    """All partitions in their order, one to each member in turn that subscribes to the topic."""
    parts: dict[str, list[TopicPartition]] = {each.member_id: [] for each in members}
    turns = in_order(members)
    turn = 0
    for topic in sorted(partitions):
        if not any(topic in each.subscription.topics for each in turns):
            continue
        for number in sorted(partitions[topic]):
            while topic not in turns[turn].subscription.topics:
                turn = (turn + 1) % len(turns)
            parts[turns[turn].member_id].append(TopicPartition(topic, number))
            turn = (turn + 1) % len(turns)
    return parts


RANGE: Final = Assignor("range", assign_range)
ASSIGNORS: Final = {
    each.name: each
    for each in (
        RANGE,
        Assignor("roundrobin", assign_round_robin),
        Assignor("sticky", assign_sticky, sticky_user_data),
        Assignor("cooperative-sticky", assign_cooperatively, cooperative_user_data, True),
    )
}
DEFAULT_ASSIGNORS: Final = ("range", "cooperative-sticky")
"""As in Kafka: groups begin with range and can go over to the other without a stop."""
_CLASSES: Final = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "StickyAssignor": "sticky",
    "CooperativeStickyAssignor": "cooperative-sticky",
}
_PACKAGE: Final = "org.apache.kafka.clients.consumer."


def parse_assignors(text: str) -> tuple[str, ...]:
    """Read `partition.assignment.strategy`: names, or Kafka's classes. Raises `InvalidSetting`."""
    setting = "partition.assignment.strategy"
    names = [each.strip() for each in text.split(",") if each.strip()]
    found = tuple(_CLASSES.get(each.removeprefix(_PACKAGE), each) for each in names)
    unknown = next((each for each in found if each not in ASSIGNORS), None)
    if unknown is not None or not found:
        raise InvalidSetting(
            setting, f"{setting} takes {', '.join(ASSIGNORS)}, not '{unknown or text}'."
        )
    if len(set(found)) < len(found):
        raise InvalidSetting(setting, f"{setting} names an assignor twice: '{text}'.")
    return found


def is_cooperative(names: Sequence[str]) -> bool:
    """Whether a member that offers these keeps its partitions while it joins: all must do so."""
    return all(ASSIGNORS[name].is_cooperative for name in names)
