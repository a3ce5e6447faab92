"""Produce: append record batches and answer when they are as safe as the client asked.

The validation of a batch belongs to the log and its order of checks to the replication
specification, 3.1. This file finds the partition, collects the outcome of each, and waits for the
high watermark where acks=all asks for it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from strandline.errors import ErrorCode, ProtocolError, StorageError
from strandline.node.purgatory import Purgatory
from strandline.node.replica import Replica
from strandline.node.replicas import Replicas
from strandline.node.request import Request
from strandline.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from strandline.records.batch import CODEC_MASK
from strandline.records.codec import Codec
from strandline.records.record_checks import RecordsRejectedError
from strandline.types import NO_OFFSET, NO_TIMESTAMP, Instant

log = logging.getLogger(__name__)

_ACKS_NONE: Final = 0
_ACKS_ALL: Final = -1
_TOPIC_IDS_SINCE: Final = 13
_ZSTD_SINCE: Final = 7
_CODEC_AT: Final = 22
"""The low byte of a batch's attributes, with the codec in its lowest bits."""


class ProduceHandler:
    """Answers Produce, versions 3 to 13."""

    def __init__(self, replicas: Replicas, purgatory: Purgatory) -> None:
        self._replicas = replicas
        self._purgatory = purgatory

    def handle(self, request: Request[ProduceRequest], now: Instant) -> None:
        """Append every partition's batch, then answer, wait, or stay silent (acks=0)."""
        body = request.body
        if body.acks not in (_ACKS_NONE, 1, _ACKS_ALL):
            self._refuse(request, ErrorCode.INVALID_REQUIRED_ACKS)
            return
        if body.transactional_id is not None:
            self._refuse(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            return
        response = ProduceResponse()
        pending: list[_Pending] = []
        by_id = request.version >= _TOPIC_IDS_SINCE
        for topic in body.topic_data:
            answers = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id)
            response.responses.append(answers)
            for data in topic.partition_data:
                answer = PartitionProduceResponse(index=data.index)
                answers.partition_responses.append(answer)
                try:
                    if by_id:
                        replica = self._replicas.leader_by_id(topic.topic_id, data.index)
                    else:
                        replica = self._replicas.leader(topic.name, data.index)
                    required = self._append(request, replica, data, answer, now)
                except (ProtocolError, StorageError) as error:
                    _refuse_partition(answer, error)
                    continue
                pending.append(_Pending(replica, required, answer))
        if body.acks == _ACKS_ALL and pending:
            waiting = _Waiting(request, response, pending)
            self._purgatory.complete_or_park(
                waiting,
                [item.replica for item in pending],
                deadline_ms=now.monotonic_ms + max(0, body.timeout_ms),
                now=now,
            )
            return
        _answer(request, response)

    def _append(
        self,
        request: Request[ProduceRequest],
        replica: Replica,
        data: PartitionProduceData,
        answer: PartitionProduceResponse,
        now: Instant,
    ) -> int:
        """Append one partition's records; returns the high watermark that commits them."""
        if data.records is None:
            raise ProtocolError(ErrorCode.INVALID_RECORD, "A partition without records was sent.")
        if request.version < _ZSTD_SINCE and _uses_zstd(data.records):
            raise ProtocolError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                f"Produce version {request.version} may not use zstd; {_ZSTD_SINCE} may.",
            )
        if replica.topic_partition.topic in self._replicas.internal_topics:
            raise ProtocolError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is internal.")
        result = replica.append(data.records, now.wall_ms)
        answer.base_offset = result.base_offset
        answer.log_append_time_ms = result.log_append_time_ms
        answer.log_start_offset = replica.log.log_start_offset
        return result.last_offset + 1

    def _refuse(self, request: Request[ProduceRequest], code: ErrorCode) -> None:
        """Answer every partition with the same error."""
        response = ProduceResponse()
        for topic in request.body.topic_data:
            answers = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id)
            response.responses.append(answers)
            for data in topic.partition_data:
                answer = PartitionProduceResponse(index=data.index)
                _refuse_partition(answer, ProtocolError(code))
                answers.partition_responses.append(answer)
        _answer(request, response)


def _uses_zstd(records: memoryview) -> bool:
    return len(records) > _CODEC_AT and records[_CODEC_AT] & CODEC_MASK == Codec.ZSTD


def _refuse_partition(
    answer: PartitionProduceResponse, error: ProtocolError | StorageError
) -> None:
    answer.base_offset = NO_OFFSET
    answer.log_append_time_ms = NO_TIMESTAMP
    answer.log_start_offset = NO_OFFSET
    if isinstance(error, StorageError):
        answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        log.error("An append failed: %s", error)
        return
    answer.error_code = error.code
    answer.error_message = error.message or None
    if isinstance(error, RecordsRejectedError):
        answer.record_errors = [
            BatchIndexAndErrorMessage(
                batch_index=item.index, batch_index_error_message=item.message
            )
            for item in error.record_errors
        ]


def _answer(request: Request[ProduceRequest], response: ProduceResponse) -> None:
    if request.body.acks != _ACKS_NONE:
        request.reply(response)
        return
    for topic in response.responses:
        for answer in topic.partition_responses:
            if answer.error_code != ErrorCode.NONE:
                # The client does not listen to answers: only a closed connection tells it.
                code = ErrorCode(answer.error_code).name
                request.close(f"a produce with acks=0 failed with {code}")
                return
    request.no_reply()


@dataclass(slots=True)
class _Pending:
    """An appended batch that is committed once the high watermark reaches `required`."""

    replica: Replica
    required: int
    answer: PartitionProduceResponse


class _Waiting:
    """A produce with acks=all that is answered when all its partitions have committed it."""

    def __init__(
        self, request: Request[ProduceRequest], response: ProduceResponse, pending: list[_Pending]
    ) -> None:
        self.connection = request.connection
        self._request = request
        self._response = response
        self._pending = pending

    def try_complete(self, now: Instant) -> bool:
        """Answer once nothing is pending any more."""
        del now
        self._pending = [
            item for item in self._pending if item.replica.log.high_watermark < item.required
        ]
        if self._pending:
            return False
        _answer(self._request, self._response)
        return True

    def expire(self, now: Instant) -> None:
        """Tell the client that the outcome of what is still pending is unknown."""
        del now
        for item in self._pending:
            item.answer.error_code = ErrorCode.REQUEST_TIMED_OUT
        _answer(self._request, self._response)
