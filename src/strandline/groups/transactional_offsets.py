"""TxnOffsetCommit: offsets that count when the transaction of their producer commits (KIP-98, 447).

They are written at once and stay pending; the marker decides. A producer that says which member of
the group it works for is fenced with it, one that does not say is taken at its word.
"""

from __future__ import annotations

from collections.abc import Iterator

from strandline.errors import ErrorCode, ProtocolError
from strandline.groups.consumer.commits import check_transactional_commit
from strandline.groups.effects import TransactionalProducer
from strandline.groups.group import Group, GroupState
from strandline.groups.offset_records import OffsetRecord
from strandline.groups.offset_service import is_too_large
from strandline.groups.requests import NO_GENERATION, NO_MEMBER_ID, Call, refused
from strandline.groups.shard import Shard, coordinator_error
from strandline.protocol.messages.offsets_topic import OffsetCommitValue
from strandline.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from strandline.types import (
    NO_TOPIC_ID,
    Instant,
    ProducerEpoch,
    ProducerId,
    TopicId,
    TopicPartition,
)


class TransactionalOffsets:
    """Handles what producers ask about the offsets of one shard's groups."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard

    def commit(self, call: Call[TxnOffsetCommitRequest], now: Instant) -> None:
        """Handle TxnOffsetCommit, which is answered when the pending offsets are durable."""
        request = call.body
        group = self._shard.groups.get(request.group_id)
        consumers = self._shard.consumer_group(request.group_id)
        if consumers is not None:
            check_transactional_commit(
                consumers,
                request.member_id,
                request.group_instance_id,
                request.generation_id,
                self._partitions(request),
            )
        elif group is None:
            if request.generation_id > NO_GENERATION:
                raise ProtocolError(ErrorCode.ILLEGAL_GENERATION)
        else:
            _check_commit(request, group)
        response, records = self._decide(request, now)
        if not records:
            self._shard.reply(call.token, response)
            return
        if group is None and consumers is None:
            self._shard.groups[request.group_id] = Group(request.group_id, created_ms=now.wall_ms)

        def answer(error: ErrorCode | None, _at: Instant) -> None:
            told = response if error is None else refused(request, coordinator_error(error))
            self._shard.reply(call.token, told)

        producer = TransactionalProducer(
            ProducerId(request.producer_id), ProducerEpoch(request.producer_epoch), call.guard
        )
        self._shard.append(records, now, answer, producer=producer)

    def _partitions(self, request: TxnOffsetCommitRequest) -> Iterator[tuple[TopicId, int]]:
        for topic in request.topics:
            facts = self._shard.cluster.named(topic.name)
            for item in topic.partitions:
                yield NO_TOPIC_ID if facts is None else facts.topic_id, item.partition_index

    def _decide(
        self, request: TxnOffsetCommitRequest, now: Instant
    ) -> tuple[TxnOffsetCommitResponse, list[OffsetRecord]]:
        response = TxnOffsetCommitResponse()
        records: list[OffsetRecord] = []
        for topic in request.topics:
            outcomes = TxnOffsetCommitResponseTopic(name=topic.name)
            response.topics.append(outcomes)
            for item in topic.partitions:
                code, metadata = ErrorCode.NONE, item.committed_metadata or ""
                if is_too_large(metadata, self._shard.settings):
                    code = ErrorCode.OFFSET_METADATA_TOO_LARGE
                else:
                    value = OffsetCommitValue(
                        offset=item.committed_offset,
                        leader_epoch=item.committed_leader_epoch,
                        metadata=metadata,
                        commit_timestamp=now.wall_ms,
                    )
                    at = TopicPartition(topic.name, item.partition_index)
                    records.append(OffsetRecord(request.group_id, at, value))
                outcomes.partitions.append(
                    TxnOffsetCommitResponsePartition(
                        partition_index=item.partition_index, error_code=code
                    )
                )
        return response, records


def _check_commit(request: TxnOffsetCommitRequest, group: Group) -> None:
    if group.state is GroupState.DEAD:
        raise ProtocolError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if request.generation_id < 0 and group.state is GroupState.EMPTY:
        return  # by a consumer that manages its partitions itself, and may have a name all the same
    is_anonymous = request.member_id == NO_MEMBER_ID and request.group_instance_id is None
    if is_anonymous and request.generation_id <= NO_GENERATION:
        return
    group.check_member(request.member_id, request.group_instance_id)
    if request.generation_id != group.generation:
        raise ProtocolError(ErrorCode.ILLEGAL_GENERATION)
