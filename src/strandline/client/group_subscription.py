"""What a member subscribes to and owns, and what it tells the leader of that.

This file knows the difference between eager and cooperative members. It must not know requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from strandline.client.assignors import ASSIGNORS, is_cooperative
from strandline.client.consumer_protocol import (
    NO_GENERATION,
    Subscription,
    subscription_bytes,
)
from strandline.client.group_settings import GroupSettings
from strandline.types import TopicPartition


class GroupSubscription:
    """See the module."""

    def __init__(self, settings: GroupSettings) -> None:
        self.topics: tuple[str, ...] = ()
        self.owned: tuple[TopicPartition, ...] = ()
        self.is_cooperative = is_cooperative(settings.assignors)
        self._settings = settings
        self._announced: dict[TopicPartition, None] = {}
        """What of it the program was told."""
        self._last: tuple[tuple[TopicPartition, ...], int] = ((), NO_GENERATION)
        """The last assignment and its generation, also after it was given up."""

    def change(self, topics: Iterable[str]) -> bool:
        """Subscribe to these; whether that is a change."""
        before, self.topics = self.topics, tuple(sorted(set(topics)))
        return before != self.topics

    def protocols(self, generation: int) -> list[tuple[str, bytes]]:
        """The assignors that the member offers, the preferred one first, each with what its leader
        is told."""
        owned, given_in = self._last
        return [
            (
                name,
                subscription_bytes(
                    Subscription(
                        self.topics,
                        self.owned,
                        generation,
                        ASSIGNORS[name].user_data(owned, given_in),
                        self._settings.rack,
                    )
                ),
            )
            for name in self._settings.assignors
        ]

    def assigned(
        self, owned: Sequence[TopicPartition], generation: int
    ) -> tuple[list[TopicPartition], list[TopicPartition]]:
        """The assignment of a generation has come: what is new, and what must be given up."""
        before = set(self.owned)
        gone = [each for each in self.owned if each not in set(owned)]
        self._last = (tuple(owned), generation)
        # What is to be given up stays owned until it is.
        self.owned = (*owned, *gone)
        return [each for each in owned if each not in before], gone

    def to_give_up(self, *, is_lost: bool) -> list[TopicPartition]:
        """What must be given up before the member joins again."""
        if is_lost or not self.is_cooperative:
            return list(self.owned)
        return [each for each in self.owned if each.topic not in self.topics]

    def give_up(self, partitions: Iterable[TopicPartition]) -> tuple[TopicPartition, ...]:
        """These are not owned any more; those of them that the program knows of."""
        gone = dict.fromkeys(partitions)
        self.owned = tuple(each for each in self.owned if each not in gone)
        announced = tuple(each for each in self._announced if each in gone)
        for each in announced:
            del self._announced[each]
        return announced

    def announce(self, partitions: Iterable[TopicPartition]) -> None:
        """The program is told of these."""
        self._announced.update(dict.fromkeys(partitions))
