"""The sticky assignors: balanced as well as subscriptions allow, moving as little as needed.

Theory: members own partitions from before. What one of them claims counts if its claim is of the
newest generation; two claims of one generation cancel each other. What is left is dealt out to
whichever subscriber has least. Then partitions move from members that have more to members that
have less, directly or through others, until no such path leads to a member with at least two fewer:
then no assignment is more balanced (Harvey et al., Semi-matchings).

`cooperative-sticky` computes the same and then holds back what another member still owns; that is
assigned in the next generation, after its owner has given it up (KIP-429).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from strandline.client.consumer_protocol import NO_GENERATION, Subscription, grouped, ungrouped
from strandline.client.group_subscriber import Subscriber, in_order
from strandline.errors import MalformedFrame
from strandline.protocol.declare import array, int32, message
from strandline.protocol.messages.consumer_protocol import TopicPartition as TopicPartitions
from strandline.protocol.schema import decode, encode
from strandline.types import TopicPartition


@message("0-1")
class StickyUserData:
    """What a member of `sticky` tells of its last assignment. No version stands in front of it."""

    previous_assignment: list[TopicPartitions] = array(TopicPartitions)
    generation: int = int32("1+", default=NO_GENERATION, ignorable=True)


@message("0")
class CooperativeUserData:
    """What a member of `cooperative-sticky` tells: what it owns stands in its subscription."""

    generation: int = int32()


def sticky_user_data(owned: Sequence[TopicPartition], generation: int) -> bytes | None:
    """None before the first assignment, as in Kafka."""
    if generation == NO_GENERATION:
        return None
    return encode(StickyUserData(previous_assignment=grouped(owned), generation=generation), 1)


def cooperative_user_data(owned: Sequence[TopicPartition], generation: int) -> bytes | None:
    """The generation, for leaders that read subscriptions of version 1 only."""
    del owned
    return encode(CooperativeUserData(generation=generation), 0)


def assign_sticky(
    members: Sequence[Subscriber], partitions: Mapping[str, Sequence[int]]
) -> dict[str, list[TopicPartition]]:
    """See the module."""
    claims = {each.member_id: _claim_in_user_data(each.subscription) for each in members}
    return _Division(members, partitions, claims).result()


def assign_cooperatively(
    members: Sequence[Subscriber], partitions: Mapping[str, Sequence[int]]
) -> dict[str, list[TopicPartition]]:
    """See the module: without the partitions that another member has still to give up."""
    claims = {each.member_id: _claim(each.subscription) for each in members}
    division = _Division(members, partitions, claims)
    owners = {at: member for member, owned in division.valid_claims().items() for at in owned}
    return {
        member: [at for at in part if owners.get(at, member) == member]
        for member, part in division.result().items()
    }


def _claim(subscription: Subscription) -> tuple[int, tuple[TopicPartition, ...]]:
    """What a cooperative member owns, and since which generation."""
    generation = subscription.generation
    if generation == NO_GENERATION and subscription.user_data is not None:
        try:
            generation = decode(CooperativeUserData, 0, subscription.user_data).generation
        except MalformedFrame:
            generation = NO_GENERATION
    return generation, subscription.owned


def _claim_in_user_data(subscription: Subscription) -> tuple[int, tuple[TopicPartition, ...]]:
    """What a member of `sticky` had; nothing if that cannot be read, as in Kafka."""
    if subscription.user_data is None:
        return NO_GENERATION, ()
    for version in (1, 0):
        try:
            found = decode(StickyUserData, version, subscription.user_data)
        except MalformedFrame:
            continue
        return found.generation, ungrouped(found.previous_assignment)
    return NO_GENERATION, ()


class _Division:
    """One assignment while it is made. Members with the same rights to a topic are told apart by
    topics alone, so the partitions of a topic are interchangeable here."""

    def __init__(
        self,
        members: Sequence[Subscriber],
        partitions: Mapping[str, Sequence[int]],
        claims: Mapping[str, tuple[int, Sequence[TopicPartition]]],
    ) -> None:
        self._members = [each.member_id for each in in_order(members)]
        topics = {each.member_id: set(each.subscription.topics) for each in members}
        self._takers = {
            topic: [member for member in self._members if topic in topics[member]]
            for topic in sorted(partitions)
        }
        self._all = [
            TopicPartition(topic, number)
            for topic in self._takers
            for number in sorted(partitions[topic])
        ]
        self._claims = claims
        self._sizes = dict.fromkeys(self._members, 0)
        self._parts: dict[str, dict[str, list[TopicPartition]]] = {
            member: {} for member in self._members
        }

    def valid_claims(self) -> dict[str, list[TopicPartition]]:
        """What each member owns and may keep: of existing partitions, the newest claims."""
        newest: dict[TopicPartition, tuple[int, str | None]] = {}
        existing = set(self._all)
        for member in self._members:
            generation, owned = self._claims[member]
            for at in dict.fromkeys(owned):
                if at not in existing or member not in self._takers[at.topic]:
                    continue
                before, _ = newest.get(at, (NO_GENERATION - 1, None))
                if generation > before:
                    newest[at] = (generation, member)
                elif generation == before:
                    newest[at] = (generation, None)
        kept: dict[str, list[TopicPartition]] = {member: [] for member in self._members}
        for at in self._all:
            _, owner = newest.get(at, (NO_GENERATION, None))
            if owner is not None:
                kept[owner].append(at)
        return kept

    def result(self) -> dict[str, list[TopicPartition]]:
        """The assignment."""
        taken: set[TopicPartition] = set()
        for member, owned in self.valid_claims().items():
            for at in owned:
                self._give(at, member)
                taken.add(at)
        free = [at for at in self._all if at not in taken and self._takers[at.topic]]
        # Partitions that few may take go first, while there is still a choice.
        for at in sorted(free, key=lambda each: len(self._takers[each.topic])):
            self._give(at, min(self._takers[at.topic], key=self._sizes.__getitem__))
        while self._improve():
            continue
        return {
            member: sorted(at for numbers in topics.values() for at in numbers)
            for member, topics in self._parts.items()
        }

    def _give(self, at: TopicPartition, member: str) -> None:
        self._parts[member].setdefault(at.topic, []).append(at)
        self._sizes[member] += 1

    def _improve(self) -> bool:
        """Move one partition, or one along each step of a path, from more to less; False if there
        is nothing to gain. Each call lowers the sum of the squared sizes, so it ends."""
        for start in sorted(self._members, key=self._sizes.__getitem__, reverse=True):
            path = self._path_from(start)
            if path:
                for giver, topic, taker in path:
                    at = self._parts[giver][topic].pop()
                    self._sizes[giver] -= 1
                    self._give(at, taker)
                return True
        return False

    def _path_from(self, start: str) -> list[tuple[str, str, str]]:
        """The shortest path to a member with at least two fewer, as (from, topic, to)."""
        enough = self._sizes[start] - 2
        if enough < min(self._sizes.values()):
            return []
        came: dict[str, tuple[str, str]] = {}
        seen = {start}
        reach = deque([start])
        while reach:
            giver = reach.popleft()
            for topic, numbers in self._parts[giver].items():
                if not numbers:
                    continue
                for taker in self._takers[topic]:
                    if taker not in seen:
                        seen.add(taker)
                        came[taker] = (giver, topic)
                        reach.append(taker)
            found = [each for each in reach if came[each][0] == giver]
            least = min(found, key=self._sizes.__getitem__, default=None)
            if least is not None and self._sizes[least] <= enough:
                return self._steps(came, start, least)
        return []

    def _steps(
        self, came: Mapping[str, tuple[str, str]], start: str, end: str
    ) -> list[tuple[str, str, str]]:
        steps: list[tuple[str, str, str]] = []
        while end != start:
            giver, topic = came[end]
            steps.append((giver, topic, end))
            end = giver
        return steps
