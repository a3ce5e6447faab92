"""What `strandline groups` says of share groups, and has them forget."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from strandline.cli.output import print_table
from strandline.client.admin_groups import GroupAdmin, GroupDescription
from strandline.client.admin_share_groups import ShareGroupAdmin, ShareGroupOffset
from strandline.client.cluster import ClusterClient
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


def delete_offsets(client: ClusterClient, group: str, topics: list[str], *, is_share: bool) -> None:
    """Have a group forget topics, and say so. Raises the first refusal."""
    for topic in topics:
        if is_share:
            outcomes = list(ShareGroupAdmin(client).delete_offsets(group, [topic]).values())
        else:
            stored = [at for at in GroupAdmin(client).offsets(group) if at.topic == topic]
            outcomes = list(GroupAdmin(client).delete_offsets(group, stored).values())
        for error in outcomes:
            if error is not None:
                raise error
        click.echo(f"Group '{group}' has forgotten topic '{topic}'.")
