"""The assignor `simple`: every partition has a reader, and no member is without a partition.

Members share partitions if there are fewer of these. In each topic, members take partitions in turn
in the order of their ids; if there are more partitions than members, a member takes several.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from strandline.types import TopicId

if TYPE_CHECKING:
    from strandline.groups.share.image import ShareMember

NAME = "simple"


def simple(
    members: Iterable[ShareMember], topics: Mapping[str, tuple[TopicId, Sequence[int]]]
) -> dict[str, dict[TopicId, frozenset[int]]]:
    """What each member is to read, of topics by name with the partitions that can be read."""
    ordered = sorted(members, key=lambda member: member.member_id)
    given: dict[str, dict[TopicId, frozenset[int]]] = {each.member_id: {} for each in ordered}
    for name, (topic_id, partitions) in sorted(topics.items()):
        readers = [each.member_id for each in ordered if name in each.topic_names]
        if not readers or not partitions:
            continue
        shares: dict[str, set[int]] = {}
        for turn in range(max(len(readers), len(partitions))):
            reader = readers[turn % len(readers)]
            shares.setdefault(reader, set()).add(partitions[turn % len(partitions)])
        for reader, numbers in shares.items():
            given[reader][topic_id] = frozenset(numbers)
    return given
