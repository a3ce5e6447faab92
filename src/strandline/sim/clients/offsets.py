"""Questions about offsets, one request each: where a log begins and ends."""

from __future__ import annotations

from typing import Any, Final

from strandline.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from strandline.types import LeaderEpoch, TopicPartition

LATEST: Final = -1
EARLIEST: Final = -2
_CONSUMER: Final = -1
_TIMEOUT_MS: Final = 3_000


def list_offsets(
    at: TopicPartition, which: int, leader_epoch: LeaderEpoch, isolation: int
) -> ListOffsetsRequest:
    """Ask for `LATEST` or `EARLIEST` of one partition."""
    partition = ListOffsetsPartition(
        partition_index=at.partition, current_leader_epoch=leader_epoch, timestamp=which
    )
    return ListOffsetsRequest(
        replica_id=_CONSUMER,
        isolation_level=isolation,
        topics=[ListOffsetsTopic(name=at.topic, partitions=[partition])],
        timeout_ms=_TIMEOUT_MS,
    )


def only_partition(answer: Any) -> Any:
    """The one part of an answer to one of these; None if the answer lacks it."""
    for topic in answer.topics:
        for partition in topic.partitions:
            return partition
    return None
