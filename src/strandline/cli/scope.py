"""Partitions as arguments name them: `TOPIC`, or `TOPIC:0,2` for some of a topic's."""

from __future__ import annotations

from collections.abc import Iterable

import click

from strandline.client.cluster import ClusterClient
from strandline.errors import ErrorCode, ProtocolError
from strandline.numerals import INT32_MAX, whole_number
from strandline.types import TopicPartition


def parse_scope(client: ClusterClient, scopes: Iterable[str]) -> list[TopicPartition]:
    """The partitions that `TOPIC` or `TOPIC:0,2` name. Raises `ProtocolError` for unknown ones."""
    found: set[TopicPartition] = set()
    for scope in scopes:
        topic, colon, listed = scope.partition(":")
        items = listed.split(",") if colon else []
        numbers = [whole_number(item.strip(), INT32_MAX) for item in items]
        if not topic or None in numbers:
            raise click.UsageError(
                f"Partitions are named as TOPIC or TOPIC:0,1,..., not '{scope}'."
            )
        existing = client.topic(topic).partitions
        wanted = [each for each in numbers if each is not None]
        for number in wanted:
            if number not in existing:
                raise ProtocolError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"There is no partition {number} of topic '{topic}'.",
                )
        found.update(TopicPartition(topic, each) for each in (wanted or existing))
    return sorted(found)
