"""Partitions as arguments name them: `TOPIC`, or `TOPIC:0,2` for some of a topic's."""

from __future__ import annotations

from collections.abc import Iterable

import click

from strandline.client.cluster import ClusterClient
from strandline.errors import ErrorCode, ProtocolError
from strandline.types import TopicPartition


def parse_scope(client: ClusterClient, scopes: Iterable[str]) -> list[TopicPartition]:
    """The partitions that `TOPIC` or `TOPIC:0,2` name. Raises `ProtocolError` for unknown ones."""
    found: set[TopicPartition] = set()
    for scope in scopes:
        topic, colon, listed = scope.partition(":")
        numbers = [item.strip() for item in listed.split(",")] if colon else []
        if not topic or not all(item.isascii() and item.isdigit() for item in numbers):
            raise click.UsageError(
                f"Partitions are named as TOPIC or TOPIC:0,1,..., not '{scope}'."
            )
        existing = client.topic(topic).partitions
        for number in map(int, numbers):
            if number not in existing:
                raise ProtocolError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"There is no partition {number} of topic '{topic}'.",
                )
        found.update(TopicPartition(topic, int(each)) for each in (numbers or existing))
    return sorted(found)
