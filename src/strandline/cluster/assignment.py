"""Which brokers hold the replicas of new partitions.

Round robin over the brokers, as Kafka's `AdminUtils` did it: the first replica of successive
partitions goes to successive brokers from a random start, and the other replicas follow at a
distance that grows whenever all brokers had a turn, so that the followers of one broker's
partitions spread over all the others.

Racks are taken in turn: the brokers are walked in an order in which neighbours stand in different
racks (KIP-36), and each further replica goes to the next broker in a rack that has fewest replicas
of the partition. So a partition is in as many racks as it has replicas, if there are so many.
Brokers that do not say where they stand count as one rack, as in Kafka's `StripedReplicaPlacer`.

Members of the cluster that are down get replicas only where those that run are too few, and never
the first one, so that each partition can be led at once; the other replicas are offline until
their brokers are back (as in `StripedReplicaPlacer`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from random import Random

from strandline.errors import ErrorCode, ProtocolError
from strandline.types import BrokerId

Replicas = tuple[BrokerId, ...]
Racks = Mapping[BrokerId, str | None]
"""The brokers to choose from, and where each stands."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """The members of the cluster that may hold replicas."""

    running: Racks
    down: Racks = field(default_factory=dict)

    @property
    def count(self) -> int:
        return len(self.running) + len(self.down)


def assign_replicas(
    candidates: Candidates, *, partition_count: int, replication_factor: int, random: Random
) -> list[Replicas]:
    """Replicas for the partitions of a new topic, by partition number.

    Raises INVALID_REPLICATION_FACTOR if the candidates are too few, or none of them runs.
    """
    _check_factor(candidates, replication_factor)
    order = _alternating(candidates.running)
    start = random.randrange(len(order))
    shift = random.randrange(len(order))
    walk = _Walk(candidates, order, start, shift, replication_factor)
    return [walk.replicas(number) for number in range(partition_count)]


def assign_more_replicas(
    candidates: Candidates,
    *,
    existing: Sequence[Replicas],
    partition_count: int,
    replication_factor: int,
) -> list[Replicas]:
    """Replicas for `partition_count` partitions beyond the existing ones.

    The walk goes on from the broker that leads partition 0, so that growing a topic in steps
    spreads it like making it at once. Raises as `assign_replicas`.
    """
    _check_factor(candidates, replication_factor)
    order = _alternating(candidates.running)
    first = existing[0][0]
    nearest = min(order, key=lambda broker: (broker < first, broker))
    start = order.index(nearest)
    walk = _Walk(candidates, order, start, start, replication_factor)
    numbers = range(len(existing), len(existing) + partition_count)
    return [walk.replicas(number) for number in numbers]


@dataclass(frozen=True, slots=True)
class _Walk:
    """The rounds over the brokers. `order` has each running one once; `start` and `shift` are
    places in it."""

    candidates: Candidates
    order: Sequence[BrokerId]
    start: int
    shift: int
    replication_factor: int

    def replicas(self, number: int) -> Replicas:
        """The replicas of one partition."""
        wanted = min(self.replication_factor, len(self.order))
        chosen = self._running(number, wanted)
        if wanted == self.replication_factor:
            return chosen
        down = _alternating(self.candidates.down)
        first = (self.start + number) % len(down)
        return self._spread(chosen, [*down[first:], *down[:first]], self.replication_factor)

    def _running(self, number: int, wanted: int) -> Replicas:
        """That many replicas of one partition, all on brokers that run."""
        count = len(self.order)
        first = (self.start + number) % count
        if count == 1 or wanted == 1:
            return (self.order[first],)
        # Racks must not come round at the same distance again: the shift passes all of them.
        rack_count = len(set(self.candidates.running.values()))
        shift = (self.shift + number // count) * rack_count
        others = [
            self.order[(first + 1 + (shift + position) % (count - 1)) % count]
            for position in range(count - 1)
        ]
        if rack_count == 1:
            return (self.order[first], *others[: wanted - 1])
        return self._spread((self.order[first],), others, wanted)

    def _spread(self, chosen: Replicas, others: list[BrokerId], wanted: int) -> Replicas:
        """The chosen ones and as many of the others as are missing, over as many racks as
        possible."""
        racks = {**self.candidates.running, **self.candidates.down}
        taken = Counter(racks[broker] for broker in chosen)
        while len(chosen) < wanted:
            # `min` gives the first of equals, which is the next on the way.
            broker = min(others, key=lambda other: taken[racks[other]])
            others.remove(broker)
            chosen = (*chosen, broker)
            taken[racks[broker]] += 1
        return chosen


def _alternating(brokers: Racks) -> list[BrokerId]:
    """The brokers in turns of one from each rack, racks by name, brokers of a rack by id."""
    by_rack: dict[str, list[BrokerId]] = defaultdict(list)
    for broker in sorted(brokers):
        by_rack[brokers[broker] or ""].append(broker)
    turns = zip_longest(*(by_rack[rack] for rack in sorted(by_rack)))
    return [broker for broker in chain.from_iterable(turns) if broker is not None]


def _check_factor(candidates: Candidates, replication_factor: int) -> None:
    if replication_factor <= 0:
        raise ProtocolError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor {replication_factor} is not positive.",
        )
    if not candidates.running:
        raise ProtocolError(ErrorCode.INVALID_REPLICATION_FACTOR, "No broker is running.")
    if replication_factor > candidates.count:
        raise ProtocolError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{replication_factor} replicas need as many brokers; {candidates.count} are "
            "registered.",
        )
