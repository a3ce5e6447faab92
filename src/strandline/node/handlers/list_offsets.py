"""ListOffsets and OffsetForLeaderEpoch: where in its log a partition begins, ends, or was then.

Only the leader answers, but for a tool that asks for a replica by itself (-2). A new leader may not
know yet how much is committed: until its high watermark reaches the start of its epoch, an end that
it told could lie before one that its predecessor told. It says OFFSET_NOT_AVAILABLE then (KIP-207).
Followers ask, too: they see the whole log.
"""

from __future__ import annotations

from typing import Final

from strandline.errors import ErrorCode, ProtocolError, StorageError
from strandline.node.replica import Replica
from strandline.node.replicas import Replicas
from strandline.node.request import Request
from strandline.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from strandline.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from strandline.types import NO_EPOCH, NO_OFFSET, NO_TIMESTAMP, Instant, LeaderEpoch, Offset

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
_EPOCHS_SINCE: Final = 4
_NOT_AVAILABLE_SINCE: Final = 5
_CONSUMER: Final = -1
_ANY_REPLICA: Final = -2
_SINCE: Final = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}


class ListOffsetsHandler:
    """Answers ListOffsets, versions 1 to 11."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas

    def handle(self, request: Request[ListOffsetsRequest], now: Instant) -> None:
        """Look every partition up."""
        del now
        response = ListOffsetsResponse()
        seen: set[tuple[str, int]] = set()
        twice: set[tuple[str, int]] = set()
        for topic in request.body.topics:
            for partition in topic.partitions:
                key = (topic.name, partition.partition_index)
                (twice if key in seen else seen).add(key)
        for topic in request.body.topics:
            answers = ListOffsetsTopicResponse(name=topic.name)
            response.topics.append(answers)
            for partition in topic.partitions:
                answer = ListOffsetsPartitionResponse(partition_index=partition.partition_index)
                answers.partitions.append(answer)
                if (topic.name, partition.partition_index) in twice:
                    answer.error_code = ErrorCode.INVALID_REQUEST
                    continue
                try:
                    replica = self._replicas.hosted(topic.name, partition.partition_index)
                    self._look_up(request, replica, partition, answer)
                except ProtocolError as error:
                    answer.error_code = error.code
                except StorageError as error:
                    replica.failed_to_read(error)
                    answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        request.reply(response)

    def _look_up(
        self,
        request: Request[ListOffsetsRequest],
        replica: Replica,
        partition: ListOffsetsPartition,
        answer: ListOffsetsPartitionResponse,
    ) -> None:
        timestamp = partition.timestamp
        if timestamp < 0 and request.version < _SINCE.get(timestamp, 0):
            raise ProtocolError(ErrorCode.UNSUPPORTED_VERSION)
        replica.check_epoch(partition.current_leader_epoch)
        if request.body.replica_id != _ANY_REPLICA:
            replica.check_leading()
        log = replica.log
        is_consumer = request.body.replica_id == _CONSUMER
        end = log.log_end_offset
        if is_consumer:
            end = replica.readable_end(request.body.isolation_level)
        found_at = NO_TIMESTAMP
        match timestamp:
            case -1:
                offset = end
            case -2 | -4:
                offset = log.log_start_offset
            case -5 | -6:
                # There is no second tier, so nothing was or will be moved to it.
                offset = NO_OFFSET
            case -3:
                newest = log.reader.max_timestamp_offset()
                offset, found_at = (newest.offset, newest.timestamp) if newest else (NO_OFFSET, -1)
            case _ if timestamp < 0:
                raise ProtocolError(ErrorCode.UNSUPPORTED_VERSION)
            case _:
                found = log.reader.offset_for_timestamp(timestamp)
                offset, found_at = (found.offset, found.timestamp) if found else (NO_OFFSET, -1)
        if _needs_the_end(timestamp, offset, end):
            if is_consumer and replica.is_end_unknown:
                old = request.version < _NOT_AVAILABLE_SINCE
                raise ProtocolError(
                    ErrorCode.LEADER_NOT_AVAILABLE if old else ErrorCode.OFFSET_NOT_AVAILABLE
                )
            if timestamp != LATEST:
                offset, found_at = NO_OFFSET, NO_TIMESTAMP
        answer.offset = offset
        answer.timestamp = found_at
        if offset != NO_OFFSET and request.version >= _EPOCHS_SINCE:
            answer.leader_epoch = (
                replica.leader_epoch
                if offset >= log.log_end_offset
                else log.leader_epochs.epoch_for_offset(Offset(offset))
            )


def _needs_the_end(timestamp: int, offset: int, end: int) -> bool:
    """Whether the answer would be another one if more of the log were known to be committed."""
    match timestamp:
        case -1:
            return True
        case -2 | -4 | -5 | -6:
            return False
        case _:
            return offset == NO_OFFSET or offset >= end


class OffsetForLeaderEpochHandler:
    """Answers OffsetForLeaderEpoch, versions 2 to 4 (KIP-101, KIP-320)."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas

    def handle(self, request: Request[OffsetForLeaderEpochRequest], now: Instant) -> None:
        """Tell where each epoch ended in each partition's log."""
        del now
        response = OffsetForLeaderEpochResponse()
        for topic in request.body.topics:
            answers = OffsetForLeaderTopicResult(topic=topic.topic)
            response.topics.append(answers)
            for partition in topic.partitions:
                answers.partitions.append(self._look_up(topic.topic, partition))
        request.reply(response)

    def _look_up(self, topic: str, partition: OffsetForLeaderPartition) -> EpochEndOffset:
        answer = EpochEndOffset(partition=partition.partition)
        try:
            replica = self._replicas.hosted(topic, partition.partition)
            replica.check_epoch(partition.current_leader_epoch)
            replica.check_leading()
            epoch, end = replica.log.reader.end_offset_for_epoch(
                LeaderEpoch(partition.leader_epoch)
            )
        except ProtocolError as error:
            answer.error_code = error.code
            return answer
        if epoch != NO_EPOCH:
            answer.leader_epoch, answer.end_offset = epoch, end
        return answer
