"""The assignor `uniform`: every member gets the same number of partitions, and keeps what it had.

If all members subscribe to the same topics, each has a quota: the number of all partitions divided
by the number of members, and one more for as many members as there is a remainder. A member keeps
of its last target what fits into its quota; what is over, and what had no owner, goes to those that
are below theirs. So no more partitions move than balance demands. Members with different
subscriptions are another matter, see `uniform_mixed`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from strandline.groups.consumer.assignors.subscriptions import (
    MemberSpec,
    PartitionCounts,
    is_homogeneous,
)
from strandline.groups.consumer.assignors.uniform_mixed import assign_mixed
from strandline.groups.consumer.partitions import Partitions
from strandline.types import TopicId

_Kept = dict[TopicId, set[int]]


def assign_uniform(
    members: Mapping[str, MemberSpec], partition_counts: PartitionCounts
) -> dict[str, Partitions]:
    """A target for each member."""
    if not members:
        return {}
    if not is_homogeneous(members):
        return assign_mixed(members, partition_counts)
    topic_ids = next(iter(members.values())).topic_ids
    kept, wanting = _keep(members, {each: partition_counts[each] for each in topic_ids})
    unassigned = _unassigned(kept, partition_counts, topic_ids)
    for member_id, missing in wanting:
        for topic_id, partition in islice(unassigned, missing):
            kept[member_id].setdefault(topic_id, set()).add(partition)
    return {
        member_id: {topic_id: frozenset(numbers) for topic_id, numbers in own.items() if numbers}
        for member_id, own in kept.items()
    }


def _keep(
    members: Mapping[str, MemberSpec], partition_counts: PartitionCounts
) -> tuple[dict[str, _Kept], list[tuple[str, int]]]:
    """What each member keeps, and who lacks how many."""
    quota, extras = divmod(sum(partition_counts.values()), len(members))
    free = {topic_id: set(range(count)) for topic_id, count in partition_counts.items()}
    kept: dict[str, _Kept] = {}
    wanting: list[tuple[str, int]] = []
    for index, (member_id, spec) in enumerate(members.items()):
        room = quota + (extras > 0)
        own = kept[member_id] = {}
        for topic_id, numbers in spec.target.items():
            if topic_id in free:
                own[topic_id] = set(sorted(free[topic_id] & numbers)[:room])
                free[topic_id] -= own[topic_id]
                room -= len(own[topic_id])
        # The extra partitions go to members that have them already, as long as there are enough
        # members behind this one to take them all.
        takes_extra = extras > 0
        if takes_extra and room > 0 and len(members) - index > extras:
            room -= 1
            takes_extra = False
        extras -= takes_extra
        if room > 0:
            wanting.append((member_id, room))
    return kept, wanting


def _unassigned(
    kept: Mapping[str, _Kept], partition_counts: PartitionCounts, topic_ids: Iterable[TopicId]
) -> Iterator[tuple[TopicId, int]]:
    """The partitions without an owner, in order."""
    taken: _Kept = {}
    for own in kept.values():
        for topic_id, numbers in own.items():
            taken.setdefault(topic_id, set()).update(numbers)
    for topic_id in sorted(topic_ids):
        out = taken.get(topic_id, set())
        yield from ((topic_id, p) for p in range(partition_counts[topic_id]) if p not in out)
