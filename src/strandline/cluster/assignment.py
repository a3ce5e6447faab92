"""Which brokers hold the replicas of new partitions.

Round robin over the brokers by id, as Kafka's `AdminUtils` did without racks: the first replica of
successive partitions goes to successive brokers from a random start, and the other replicas follow
at a distance that grows by one whenever all brokers had a turn, so that the followers of one
broker's partitions spread over all the others. Racks are not looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

from strandline.errors import ErrorCode, ProtocolError
from strandline.types import BrokerId

Replicas = tuple[BrokerId, ...]


def assign_replicas(
    brokers: Iterable[BrokerId],
    *,
    partition_count: int,
    replication_factor: int,
    random: Random,
) -> list[Replicas]:
    """Replicas for the partitions of a new topic, by partition number."""
    ordered = _enough(brokers, replication_factor)
    start = random.randrange(len(ordered))
    shift = random.randrange(len(ordered))
    return _round_robin(ordered, range(partition_count), replication_factor, start, shift)


def assign_more_replicas(
    brokers: Iterable[BrokerId],
    *,
    existing: Sequence[Replicas],
    partition_count: int,
    replication_factor: int,
) -> list[Replicas]:
    """Replicas for `partition_count` partitions beyond the existing ones.

    The walk goes on from the broker that leads partition 0, so that growing a topic in steps
    spreads it like making it at once.
    """
    ordered = _enough(brokers, replication_factor)
    first = existing[0][0]
    start = next((index for index, broker in enumerate(ordered) if broker >= first), 0)
    numbers = range(len(existing), len(existing) + partition_count)
    return _round_robin(ordered, numbers, replication_factor, start, start)


def _enough(brokers: Iterable[BrokerId], replication_factor: int) -> list[BrokerId]:
    ordered = sorted(brokers)
    if replication_factor <= 0:
        raise ProtocolError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor {replication_factor} is not positive.",
        )
    if replication_factor > len(ordered):
        raise ProtocolError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{replication_factor} replicas need as many brokers; {len(ordered)} are registered.",
        )
    return ordered


def _round_robin(
    brokers: list[BrokerId], numbers: range, replication_factor: int, start: int, shift: int
) -> list[Replicas]:
    count = len(brokers)
    assignment = []
    for number in numbers:
        if number > 0 and number % count == 0:
            shift += 1
        first = (number + start) % count
        others = (
            (first + 1 + (shift + position) % (count - 1)) % count
            for position in range(replication_factor - 1)
        )
        assignment.append((brokers[first], *(brokers[index] for index in others)))
    return assignment
