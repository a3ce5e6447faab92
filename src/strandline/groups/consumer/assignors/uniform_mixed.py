"""The assignor `uniform` for members whose subscriptions differ.

Every member keeps of its last target what it still subscribes to, as far as it is there. What has
no owner goes, topic by topic, to the least loaded subscriber. Then partitions move from the most to
the least loaded subscriber of their topic as long as that evens out two loads that differ by more
than one; a move for one topic can make another one uneven, so this is repeated, within a bound.
Topics with many partitions for few members come first, because for them there is least choice.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from typing import Final

from strandline.groups.consumer.assignors.subscriptions import MemberSpec, PartitionCounts
from strandline.groups.consumer.partitions import Partitions
from strandline.types import TopicId

_ROUNDS_MAX: Final = 16


def assign_mixed(
    members: Mapping[str, MemberSpec], partition_counts: PartitionCounts
) -> dict[str, Partitions]:
    """A target for each member."""
    work = _Work(members, partition_counts)
    for topic_id in work.topic_ids:
        work.hand_out(topic_id)
    for _ in range(_ROUNDS_MAX):
        if not sum(work.balance(topic_id) for topic_id in work.topic_ids):
            break
    return work.targets()


class _Work:
    """The assignment as it comes about. Members are numbers here, in the order of their coming."""

    def __init__(
        self, members: Mapping[str, MemberSpec], partition_counts: PartitionCounts
    ) -> None:
        self._member_ids = list(members)
        self._subscribers: dict[TopicId, list[int]] = {}
        for member, spec in enumerate(members.values()):
            for topic_id in spec.topic_ids:
                self._subscribers.setdefault(topic_id, []).append(member)
        self._owners: dict[TopicId, list[int | None]] = {
            topic_id: [None] * partition_counts[topic_id] for topic_id in self._subscribers
        }
        self._loads = [0] * len(self._member_ids)
        for member, spec in enumerate(members.values()):
            for topic_id, numbers in spec.target.items():
                if topic_id in spec.topic_ids:
                    for partition in sorted(numbers):
                        if 0 <= partition < partition_counts[topic_id]:
                            self._give(topic_id, partition, member)
        self.topic_ids = sorted(self._subscribers, key=self._rank)

    def _rank(self, topic_id: TopicId) -> tuple[float, int, TopicId]:
        subscribers = len(self._subscribers[topic_id])
        return -len(self._owners[topic_id]) / subscribers, subscribers, topic_id

    def _give(self, topic_id: TopicId, partition: int, member: int) -> None:
        owners = self._owners[topic_id]
        before = owners[partition]
        if before is not None:
            self._loads[before] -= 1
        owners[partition] = member
        self._loads[member] += 1

    def hand_out(self, topic_id: TopicId) -> None:
        """Give the partitions of a topic without an owner to its least loaded subscribers."""
        least = [(self._loads[member], member) for member in self._subscribers[topic_id]]
        heapq.heapify(least)
        for partition, owner in enumerate(self._owners[topic_id]):
            if owner is None:
                load, member = least[0]
                self._give(topic_id, partition, member)
                heapq.heapreplace(least, (load + 1, member))

    def balance(self, topic_id: TopicId) -> int:
        """Even out the loads of a topic's subscribers as far as its partitions can; returns how
        many have moved."""
        subscribers = self._subscribers[topic_id]
        if len(subscribers) < 2:
            return 0
        movable: dict[int, list[int]] = {}
        for partition, owner in enumerate(self._owners[topic_id]):
            if owner is not None:
                movable.setdefault(owner, []).append(partition)
        least = [(self._loads[member], member) for member in subscribers]
        most = [(-self._loads[member], member) for member in movable]
        heapq.heapify(least)
        heapq.heapify(most)
        moved = 0
        while most:
            load, giver = most[0]
            if -load != self._loads[giver] or not movable[giver]:
                heapq.heappop(most)  # it has taken or given since
                if movable[giver] and -load != self._loads[giver]:
                    heapq.heappush(most, (-self._loads[giver], giver))
                continue
            while least[0][0] != self._loads[least[0][1]]:
                heapq.heapreplace(least, (self._loads[least[0][1]], least[0][1]))
            taker = least[0][1]
            if self._loads[giver] - self._loads[taker] <= 1:
                break
            # A taker is below every giver, and stays so by one: it never becomes one itself.
            self._give(topic_id, movable[giver].pop(), taker)
            moved += 1
        return moved

    def targets(self) -> dict[str, Partitions]:
        """What has come of it."""
        own: list[dict[TopicId, set[int]]] = [{} for _ in self._member_ids]
        for topic_id in self.topic_ids:
            for partition, owner in enumerate(self._owners[topic_id]):
                if owner is not None:
                    own[owner].setdefault(topic_id, set()).add(partition)
        return {
            member_id: {topic_id: frozenset(numbers) for topic_id, numbers in mine.items()}
            for member_id, mine in zip(self._member_ids, own, strict=True)
        }
