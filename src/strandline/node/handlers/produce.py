"""Produce: append record batches and answer when they are as safe as the client asked.

The validation of a batch belongs to the log and its order of checks to the replication
specification, 3.1. This file finds the partition, collects the outcome of each, and waits for the
high watermark where acks=all asks for it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from strandline.cluster.image import ClusterImage
from strandline.errors import ErrorCode, ProtocolError, StorageError
from strandline.node.handlers.produce_slices import ProduceSlices, keep_records
from strandline.node.leader_hints import MISDIRECTED, LeaderHints
from strandline.node.replica import Replica
from strandline.node.replica_host import ReplicaHost
from strandline.node.replicas import Replicas
from strandline.node.request import Request
from strandline.node.settings import Settings
from strandline.node.slices import Slices
from strandline.node.transaction_access import TransactionAccess
from strandline.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from strandline.records.produced_framing import (
    begins_with_transactional_batch,
    begins_with_zstd,
    whole_batch_size,
)
from strandline.records.record_checks import RecordsRejectedError
from strandline.storage.files import NoRoom
from strandline.storage.transaction_verification import NO_GUARD, Guard
from strandline.types import NO_OFFSET, NO_TIMESTAMP, Instant, Offset, TopicPartition

if TYPE_CHECKING:
    from strandline.node.handlers.produce_verification import ProduceVerification

log = logging.getLogger(__name__)

_ACKS_NONE: Final = 0
_ACKS_ALL: Final = -1
_TOPIC_IDS_SINCE: Final = 13
_ZSTD_SINCE: Final = 7
_HINTS_SINCE: Final = 10


class ProduceHandler:
    """Answers Produce, versions 3 to 13."""

    def __init__(
        self,
        replicas: Replicas,
        transactions: TransactionAccess,
        settings: Settings,
        slices: ProduceSlices,
    ) -> None:
        self._replicas = replicas
        self._transactions = transactions
        self._settings = settings
        self._slices = slices

    def handle(self, request: Request[ProduceRequest], now: Instant) -> None:
        """Append every partition's batch, then answer, wait, or stay silent (acks=0)."""
        body = request.body
        refusal = _refusal_of_all(body)
        if refusal is not None:
            self._refuse(request, refusal)
            return
        if body.transactional_id is None:
            self._append_all(request, None, now)
            return
        # Most brokers serve no transactions, and do without what these need.
        from strandline.node.handlers.produce_verification import ProduceVerification

        verification = ProduceVerification(request, self._replicas)
        must_ask = verification.begin(self._settings, now.wall_ms)
        verifier = self._transactions.verifier
        # Behind batches of its producer that wait for the coordinator, it waits for its turn.
        if not verifier.is_asking(verification.producer_id) and (
            not must_ask or verification.is_confirmed(verifier)
        ):
            self._append_all(request, verification, now)
            return

        def verified(outcomes: Mapping[TopicPartition, ErrorCode], at: Instant) -> None:
            verification.verified(outcomes)
            self._append_all(request, verification, at)

        verifier.ask(verification.question(), verified, now)
        if verification.is_over:
            return
        keep_records(body)  # the coordinator has not answered yet

    def _append_all(
        self,
        request: Request[ProduceRequest],
        verification: ProduceVerification | None,
        now: Instant,
    ) -> None:
        self._slices.begin(request, self._appends(request, verification), now)

    def _appends(
        self, request: Request[ProduceRequest], verification: ProduceVerification | None
    ) -> Slices:
        """Append every batch, and answer when that is decided."""
        now = yield
        slices = self._slices
        refusal: ProtocolError | None = None
        is_begun = False
        body = request.body
        response = ProduceResponse()
        waiting = _Waiting(request, response, self._replicas.host)
        by_id = request.version >= _TOPIC_IDS_SINCE
        for topic in body.topic_data:
            answers = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id)
            response.responses.append(answers)
            for data in topic.partition_data:
                if is_begun and refusal is None and slices.is_over():
                    refusal = slices.refusal()
                    if refusal is None:
                        now = yield
                is_begun = True
                answer = PartitionProduceResponse(index=data.index)
                answers.partition_responses.append(answer)
                try:
                    if refusal is not None:
                        raise refusal
                    if by_id:
                        replica = self._replicas.leader_by_id(topic.topic_id, data.index)
                    else:
                        replica = self._replicas.leader(topic.name, data.index)
                    at = replica.topic_partition
                    guard = NO_GUARD if verification is None else verification.guard(at)
                    required = self._append(request, replica, data, answer, guard, now)
                except (ProtocolError, StorageError) as error:
                    _refuse_partition(answer, error)
                    continue
                if body.acks == _ACKS_ALL:
                    waiting.add(replica, required, answer, now)
        waiting.settled()

    def _append(
        self,
        request: Request[ProduceRequest],
        replica: Replica,
        data: PartitionProduceData,
        answer: PartitionProduceResponse,
        guard: Guard,
        now: Instant,
    ) -> Offset:
        """Append one partition's records; returns the high watermark that commits them."""
        if data.records is None:
            raise ProtocolError(ErrorCode.INVALID_RECORD, "A partition without records was sent.")
        if request.version < _ZSTD_SINCE and begins_with_zstd(data.records):
            raise ProtocolError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                f"Produce version {request.version} may not use zstd; {_ZSTD_SINCE} may.",
            )
        if replica.topic_partition.topic in self._replicas.internal_topics:
            raise ProtocolError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is internal.")
        acks_all = request.body.acks == _ACKS_ALL
        leading = replica.check_leading()
        result = leading.append(data.records, now, acks_all=acks_all, guard=guard)
        answer.base_offset = result.base_offset
        answer.log_append_time_ms = result.log_append_time_ms
        answer.log_start_offset = replica.log.log_start_offset
        return Offset(result.last_offset + 1)

    def _refuse(self, request: Request[ProduceRequest], refusal: ProtocolError) -> None:
        """Answer every partition with the same error."""
        response = ProduceResponse()
        for topic in request.body.topic_data:
            answers = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id)
            response.responses.append(answers)
            for data in topic.partition_data:
                answer = PartitionProduceResponse(index=data.index)
                _refuse_partition(answer, refusal)
                answers.partition_responses.append(answer)
        answer_produce(request, response)


def _refusal_of_all(body: ProduceRequest) -> ProtocolError | None:
    """Why no partition of a request is served, or None.

    As in Kafka (`KafkaApis.handleProduceRequest`), one transactional batch without a
    `transactional.id` is enough, whatever else is there: it would open a transaction that no
    coordinator knows. A batch without a possible frame refuses all partitions, too.
    """
    try:
        for topic in body.topic_data:
            for data in topic.partition_data:
                if data.records is None:
                    continue
                if body.transactional_id is not None:
                    whole_batch_size(data.records, 0)  # for its frame alone no checksum is made
                elif begins_with_transactional_batch(data.records):
                    return ProtocolError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    except ProtocolError as error:
        return error
    if body.acks not in (_ACKS_NONE, 1, _ACKS_ALL):
        return ProtocolError(ErrorCode.INVALID_REQUIRED_ACKS)
    return None


def _refuse_partition(
    answer: PartitionProduceResponse, error: ProtocolError | StorageError
) -> None:
    answer.base_offset = NO_OFFSET
    answer.log_append_time_ms = NO_TIMESTAMP
    answer.log_start_offset = NO_OFFSET
    if isinstance(error, StorageError):
        answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        if isinstance(error, NoRoom):
            answer.error_message = error.for_clients
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


def answer_produce(request: Request[ProduceRequest], response: ProduceResponse) -> None:
    """Reply; a client that wants no answer is told of an error by closing its connection."""
    if request.body.acks != _ACKS_NONE:
        request.reply(response)
        return
    if request.amend is not None:
        request.amend(response)
    if request.time is not None:
        request.time.answered(request)
    for topic in response.responses:
        for answer in topic.partition_responses:
            if answer.error_code != ErrorCode.NONE:
                # The client does not listen to answers: only a closed connection tells it.
                code = ErrorCode(answer.error_code)
                request.outbox.answers(request, response)
                request.close(f"a produce with acks=0 failed with {code.name}")
                return
    request.no_reply()


def _add_hints(
    request: Request[ProduceRequest], response: ProduceResponse, image: ClusterImage
) -> None:
    """Tell clients that asked the wrong broker whom to ask (KIP-951)."""
    if request.version < _HINTS_SINCE:
        return
    hints = LeaderHints(image, request.connection.listener)
    for topic in response.responses:
        for answer in topic.partition_responses:
            if answer.error_code not in MISDIRECTED:
                continue
            name = topic.name or image.topic_names.get(topic.topic_id, "")
            hint = hints.of(TopicPartition(name, answer.index))
            if hint is not None:
                answer.current_leader = LeaderIdAndEpoch(
                    leader_id=hint.leader_id, leader_epoch=hint.leader_epoch
                )
    response.node_endpoints = [
        NodeEndpoint(node_id=end.broker_id, host=end.host, port=end.port, rack=end.rack)
        for end in hints.endpoints.values()
    ]


class _Waiting:
    """A produce that is answered when all its partitions have committed what was appended."""

    __slots__ = ("_host", "_pending", "_request", "_response")

    def __init__(
        self, request: Request[ProduceRequest], response: ProduceResponse, host: ReplicaHost
    ) -> None:
        self._host = host
        self._request = request
        self._response = response
        self._pending = 1
        """Partitions that are waited for, and one more until all are appended."""

    def add(
        self, replica: Replica, required: Offset, answer: PartitionProduceResponse, now: Instant
    ) -> None:
        """Wait for one partition, if what became of the append is not known yet."""
        code = replica.commit_outcome(required)
        if code is not None:
            answer.error_code = code
            return
        self._pending += 1
        deadline_ms = now.monotonic_ms + max(0, self._request.body.timeout_ms)
        replica.await_commit(required, partial(self._decided, answer), deadline_ms=deadline_ms)

    def settled(self) -> None:
        """One partition is settled, or all are appended: answer with the last of that."""
        self._pending -= 1
        if not self._pending:
            _add_hints(self._request, self._response, self._host.metadata.image)
            answer_produce(self._request, self._response)

    def _decided(self, answer: PartitionProduceResponse, code: ErrorCode, now: Instant) -> None:
        del now
        answer.error_code = code
        self.settled()
