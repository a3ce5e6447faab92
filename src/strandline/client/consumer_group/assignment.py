"""What a member owns and what it is to own, and which step leads from one to the other.

    target ── lacks what is owned ──> that is given up first: `to_give_up`
           ── has more ──────────> `take` what has a name

This file knows sets of partitions. It must not know requests, nor what the program is told when.

Theory: a partition belongs to one incarnation of a topic. So everything here is about the topic's
id: partition 0 of a topic that was made anew is another one, although it is called the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from strandline.types import TopicId, TopicPartition


class OwnedPartition(NamedTuple):
    """A partition as coordinators name it."""

    topic_id: TopicId
    partition: int


class MemberAssignment:
    """See the module."""

    def __init__(self) -> None:
        self._target: dict[OwnedPartition, None] = {}
        self._owned: dict[OwnedPartition, TopicPartition] = {}
        self._reported: tuple[OwnedPartition, ...] | None = ()
        """In order; None if that is to be found out anew."""
        self._announced: dict[OwnedPartition, None] = {}
        """What of it the program knows of."""

    @property
    def owned(self) -> tuple[TopicPartition, ...]:
        """What the member has, with names."""
        return tuple(self._owned.values())

    @property
    def reported(self) -> tuple[OwnedPartition, ...]:
        """What it has, as its coordinator is told."""
        if self._reported is None:
            self._reported = tuple(sorted(self._owned))
        return self._reported

    def aim(self, target: Iterable[OwnedPartition]) -> None:
        """The coordinator has said what the member is to own."""
        self._target = dict.fromkeys(target)

    def lose(self) -> None:
        """It is to own nothing any more: others may have all of it already."""
        self._target = {}

    def to_give_up(self) -> list[TopicPartition]:
        """What it has and is not to have."""
        return [at for each, at in self._owned.items() if each not in self._target]

    def unnamed(self, name_of: Callable[[TopicId], str | None]) -> list[TopicId]:
        """The topics of the target whose names are not known."""
        topics = dict.fromkeys(each.topic_id for each in self._target)
        return [each for each in topics if name_of(each) is None]

    def give_up(self, partitions: Iterable[TopicPartition]) -> None:
        """These are not owned any more."""
        gone = dict.fromkeys(partitions)
        for each in [each for each, at in self._owned.items() if at in gone]:
            del self._owned[each]
            self._reported = None
            self._announced.pop(each, None)

    def take(self, name_of: Callable[[TopicId], str | None]) -> list[TopicPartition]:
        """Own what the target has beyond that, as far as it has a name. Nothing is to be given up
        any more when this is called."""
        taken: list[TopicPartition] = []
        names: Mapping[TopicId, str | None] = {
            topic_id: name_of(topic_id)
            for topic_id in dict.fromkeys(each.topic_id for each in self._target)
        }
        for each in sorted(self._target):
            name = names[each.topic_id]
            if name is not None and each not in self._owned:
                at = self._owned[each] = TopicPartition(name, each.partition)
                self._reported = None
                taken.append(at)
        return taken

    def announce(self, partitions: Iterable[TopicPartition]) -> None:
        """The program is told of these."""
        told = dict.fromkeys(partitions)
        self._announced.update({each: None for each, at in self._owned.items() if at in told})

    def announced(self, partitions: Iterable[TopicPartition]) -> tuple[TopicPartition, ...]:
        """Those of them that the program knows of."""
        wanted = dict.fromkeys(partitions)
        return tuple(
            at for each, at in self._owned.items() if each in self._announced and at in wanted
        )
