"""Where a leader's logs start and end, for followers whose offset it does not have.

Two questions are asked together, for all partitions of one fetch answer, over the control channel:
the channel of the fetches may be occupied by one that waits. This file knows these requests only.
What follows from the offsets is decided in `replication.follower`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Final, TypeAlias

from strandline.errors import ErrorCode
from strandline.node.fetcher_partition import FetchedPartition, LogEnds
from strandline.node.peers import Peers
from strandline.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from strandline.types import BrokerId, Instant, Offset, TopicPartition

_VERSION: Final = 9
_LATEST: Final = -1
_EARLIEST: Final = -2

EndsFound: TypeAlias = Callable[[FetchedPartition, LogEnds | ErrorCode, Instant], None]
"""Told once per partition; NETWORK_EXCEPTION when the leader did not answer."""


@dataclass(slots=True)
class _Inquiry:
    """Partitions whose ends are asked for, and what has been answered so far, by timestamp."""

    partitions: Sequence[FetchedPartition]
    found: EndsFound
    answers: dict[int, dict[TopicPartition, int | ErrorCode]] = field(default_factory=dict)
    is_over: bool = False

    def answered(self, timestamp: int, answer: object, now: Instant) -> None:
        """One of the two answers has come, or will not come."""
        if self.is_over:
            return
        if not isinstance(answer, ListOffsetsResponse):
            self.is_over = True
            for partition in self.partitions:
                self.found(partition, ErrorCode.NETWORK_EXCEPTION, now)
            return
        self.answers[timestamp] = {
            TopicPartition(topic.name, item.partition_index): (
                ErrorCode(item.error_code) if item.error_code else item.offset
            )
            for topic in answer.topics
            for item in topic.partitions
        }
        if len(self.answers) == 2:
            self.is_over = True
            for partition in self.partitions:
                self.found(partition, self._ends(partition), now)

    def _ends(self, partition: FetchedPartition) -> LogEnds | ErrorCode:
        at = partition.replica.topic_partition
        end = self.answers[_LATEST].get(at, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        start = self.answers[_EARLIEST].get(at, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if isinstance(end, ErrorCode):
            return end
        if isinstance(start, ErrorCode):
            return start
        return LogEnds(Offset(start), Offset(end))


def ask_for_ends(
    peers: Peers,
    source: BrokerId,
    partitions: Sequence[FetchedPartition],
    found: EndsFound,
    now: Instant,
    *,
    own_id: BrokerId,
    timeout_ms: int,
) -> None:
    """Ask the leader where its logs of these partitions start and end; `found` is told later."""
    inquiry = _Inquiry(partitions, found)
    for timestamp in (_LATEST, _EARLIEST):
        request = ListOffsetsRequest(replica_id=own_id, topics=_topics(partitions, timestamp))
        answered = partial(inquiry.answered, timestamp)
        peers.ask(source, request, _VERSION, answered, now, timeout_ms=timeout_ms)


def _topics(partitions: Sequence[FetchedPartition], timestamp: int) -> list[ListOffsetsTopic]:
    def name_of(partition: FetchedPartition) -> str:
        return partition.replica.topic_partition.topic

    return [
        ListOffsetsTopic(
            name=name,
            partitions=[
                ListOffsetsPartition(
                    partition_index=each.replica.topic_partition.partition,
                    current_leader_epoch=each.replica.leader_epoch,
                    timestamp=timestamp,
                )
                for each in group
            ],
        )
        for name, group in groupby(sorted(partitions, key=name_of), key=name_of)
    ]
