"""Where logs end, also those that other brokers lead: what is behind a share group's start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from strandline.errors import ErrorCode, ProtocolError
from strandline.node.metadata import Metadata
from strandline.node.peers import Peers
from strandline.node.replicas import Replicas
from strandline.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from strandline.types import NO_LEADER, Instant, TopicId, TopicPartition

_VERSION: Final = 6
_LATEST: Final = -1
_TIMEOUT_MS: Final = 5_000

Told = Callable[[int | None, Instant], None]
"""Gets the high watermark, None if no leader told it in time."""


class LogEnds:
    """Asks leaders for their high watermarks."""

    def __init__(self, metadata: Metadata, replicas: Replicas, peers: Peers) -> None:
        self._metadata = metadata
        self._replicas = replicas
        self._peers = peers

    def ask(self, topic_id: TopicId, partition: int, told: Told, now: Instant) -> None:
        """Ask for one partition; one that is led here is told at once."""
        image = self._metadata.image
        at = TopicPartition(image.topic_names.get(topic_id, ""), partition)
        try:
            told(self._replicas.leader_by_id(topic_id, partition).log.high_watermark, now)
            return
        except ProtocolError:
            state = image.partition(at)
        if state is None or state.leader == NO_LEADER:
            told(None, now)
            return
        item = ListOffsetsPartition(partition_index=partition, timestamp=_LATEST)
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=at.topic, partitions=[item])]
        )

        def answered(answer: Any, then: Instant) -> None:
            found = [each for topic in getattr(answer, "topics", ()) for each in topic.partitions]
            is_told = len(found) == 1 and found[0].error_code == ErrorCode.NONE
            told(found[0].offset if is_told else None, then)

        self._peers.ask(state.leader, request, _VERSION, answered, now, timeout_ms=_TIMEOUT_MS)
