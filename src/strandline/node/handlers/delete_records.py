"""DeleteRecords: raise the log start offset of partitions, for good."""

from __future__ import annotations

from typing import Final

from strandline.errors import ErrorCode, ProtocolError, StorageError
from strandline.node.replicas import Replicas
from strandline.node.request import Request
from strandline.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from strandline.types import NO_OFFSET, Instant, Offset

_TO_HIGH_WATERMARK: Final = -1


class DeleteRecordsHandler:
    """Answers DeleteRecords, versions 0 to 2.

    With one replica the low watermark is its own log start offset, so nothing has to be waited for.
    """

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas

    def handle(self, request: Request[DeleteRecordsRequest], now: Instant) -> None:
        """Delete up to each offset, or tell why not."""
        del now
        response = DeleteRecordsResponse()
        for topic in request.body.topics:
            answers = DeleteRecordsTopicResult(name=topic.name)
            response.topics.append(answers)
            for partition in topic.partitions:
                answer = DeleteRecordsPartitionResult(partition_index=partition.partition_index)
                answers.partitions.append(answer)
                try:
                    answer.low_watermark = self._delete(
                        topic.name, partition.partition_index, partition.offset
                    )
                except ProtocolError as error:
                    answer.low_watermark, answer.error_code = NO_OFFSET, error.code
                except StorageError:
                    answer.low_watermark = NO_OFFSET
                    answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        request.reply(response)

    def _delete(self, topic: str, number: int, offset: int) -> int:
        if topic in self._replicas.internal_topics:
            raise ProtocolError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        replica = self._replicas.leader(topic, number)
        log = replica.log
        if not log.config.deletes_old_segments:
            raise ProtocolError(ErrorCode.POLICY_VIOLATION)
        target = log.high_watermark if offset == _TO_HIGH_WATERMARK else offset
        if target < 0 or target > log.high_watermark:
            raise ProtocolError(ErrorCode.OFFSET_OUT_OF_RANGE)
        log.delete_records_to(Offset(target))
        replica.changed()
        return log.log_start_offset
