"""The offsets that places in partitions stand for, asked of brokers.

This file joins `start`, which knows what must be asked for, to `offsets`, which asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from strandline.client.cluster import ClusterClient
from strandline.client.fetching import Isolation
from strandline.client.offsets import list_offsets, list_offsets_now
from strandline.client.start import Start, resolve_starts
from strandline.errors import ErrorCode, ProtocolError
from strandline.types import Offset, TopicPartition


def resolve(
    cluster: ClusterClient, starts: Mapping[TopicPartition, Start], isolation: Isolation
) -> dict[TopicPartition, Offset]:
    """The offsets that places stand for at the moment, with retries. Raises `ProtocolError`."""

    def ask(wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        found = list_offsets(cluster, wanted, isolation)
        return {each: at.offset for each, at in found.items()}

    cluster.retry_on_topics(lambda: _check_known(cluster, starts), {each.topic for each in starts})
    return resolve_starts(starts, ask)


def resolve_now(
    cluster: ClusterClient, starts: Mapping[TopicPartition, Start], isolation: Isolation
) -> tuple[dict[TopicPartition, Offset], dict[TopicPartition, ProtocolError]]:
    """As `resolve`, in one attempt: the offsets, and why brokers do not tell the others."""
    refused: dict[TopicPartition, ProtocolError] = {}

    def ask(wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        found, failed = list_offsets_now(cluster, wanted, isolation)
        refused.update(failed)
        return {each: at.offset for each, at in found.items()}

    return resolve_starts(starts, ask), refused


def _check_known(cluster: ClusterClient, partitions: Iterable[TopicPartition]) -> None:
    """Raise `ProtocolError` for what does not exist: a given offset needs no leader."""
    for each in partitions:
        try:
            cluster.partition(each)
        except ProtocolError as error:
            if error.code is not ErrorCode.LEADER_NOT_AVAILABLE:
                raise
