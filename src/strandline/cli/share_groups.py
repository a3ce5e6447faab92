"""What `strandline groups` says of share groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from strandline.cli.output import print_table
from strandline.client.admin_groups import GroupDescription
from strandline.client.admin_share_groups import ShareGroupOffset
from strandline.types import TopicPartition


def print_offsets(offsets: Mapping[TopicPartition, ShareGroupOffset]) -> None:
    """Where a group is in each partition."""
    print_table(
        ("TOPIC", "PARTITION", "START", "LAG"),
        ((*at, each.start, each.lag) for at, each in offsets.items()),
    )


def print_members(found: GroupDescription) -> None:
    """Who is in it. Several members may read a partition."""
    print_table(
        ("MEMBER", "CLIENT", "HOST", "EPOCH", "PARTITIONS"),
        (
            (
                each.member_id,
                each.client_id,
                each.host,
                each.epoch,
                " ".join(map(str, each.assigned)) or None,
            )
            for each in found.members
        ),
    )


def offsets_as_json(offsets: Mapping[TopicPartition, ShareGroupOffset]) -> list[dict[str, Any]]:
    """The same for programs."""
    return [
        {
            "topic": at.topic,
            "partition": at.partition,
            "start_offset": each.start,
            "lag": each.lag,
        }
        for at, each in offsets.items()
    ]
