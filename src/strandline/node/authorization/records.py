"""Permissions of what touches records: Produce, Fetch, and questions about logs.

A topic is authorized by its name, before it is asked whether the topic exists: what may not be
seen does not differ from what is not there. An unknown topic id is told as such, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final
from uuid import UUID

from strandline.authorization.acls import Operation, ResourceType
from strandline.errors import ErrorCode, ProtocolError
from strandline.node.authorization.authority import Access
from strandline.node.authorization.rule import MESSAGES, Need, Rule, split, with_refused
from strandline.node.fetch_answer import FetchAnswer, PartitionAnswer, encode_fetch_answer
from strandline.node.handlers.produce import answer_produce
from strandline.node.request import Request
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages import (
    delete_records,
    describe_producers,
    list_offsets,
    offset_for_leader_epoch,
    produce,
)
from strandline.protocol.messages.fetch import FetchRequest
from strandline.records.produced_framing import begins_with_transactional_batch
from strandline.types import NO_OFFSET, NO_TIMESTAMP, NO_TOPIC_ID

_TOPIC: Final = ResourceType.TOPIC
_DENIED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_TRANSACTIONAL_ID_DENIED: Final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
_FETCH_TOPIC_IDS_SINCE: Final = 13


def name_of(access: Access, name: str | None, topic_id: UUID) -> str | None:
    """The topic that a request names, by name or by id; None for an id that is not known."""
    if topic_id == NO_TOPIC_ID:
        return name or ""
    return access.image.topic_names.get(topic_id)


def named(access: Access, operation: Operation) -> Callable[[Any], bool]:
    """Whether a topic of a request, with a name or an id, may be; unknown ids are let pass."""

    def is_allowed(topic: Any) -> bool:
        name = name_of(access, topic.name, topic.topic_id)
        return name is None or access.may(operation, _TOPIC, name)

    return is_allowed


def _produce(access: Access, request: Request[produce.ProduceRequest]) -> bool:
    body = request.body
    transactional_id = body.transactional_id
    if (
        transactional_id is not None
        and _is_transactional(body)
        and not access.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
    ):
        response = produce.ProduceResponse(
            responses=_refused_topics(body.topic_data, _TRANSACTIONAL_ID_DENIED)
        )
        body.topic_data = []  # of what is refused nothing is learnt, as a faster way to do it
        answer_produce(request, response)
        return False
    allowed, denied = split(body.topic_data, named(access, Operation.WRITE))
    if denied:
        body.topic_data = allowed
        refused = _refused_topics(denied, _DENIED)

        def amend(response: produce.ProduceResponse) -> None:
            response.responses += refused

        request.amend = amend
    return True


def _is_transactional(body: produce.ProduceRequest) -> bool:
    try:
        return any(
            data.records is not None and begins_with_transactional_batch(data.records)
            for topic in body.topic_data
            for data in topic.partition_data
        )
    except ProtocolError:
        return False  # the handler refuses it for what it is


def _refused_topics(
    topics: list[produce.TopicProduceData], code: ErrorCode
) -> list[produce.TopicProduceResponse]:
    return [
        produce.TopicProduceResponse(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_responses=[
                produce.PartitionProduceResponse(
                    index=data.index,
                    error_code=code,
                    error_message=MESSAGES[code],
                    base_offset=NO_OFFSET,
                    log_append_time_ms=NO_TIMESTAMP,
                    log_start_offset=NO_OFFSET,
                )
                for data in topic.partition_data
            ],
        )
        for topic in topics
    ]


def _fetch(access: Access, request: Request[FetchRequest]) -> bool:
    """A consumer's topics are asked for where they are read: its session may have named them long
    ago. A client that claims to be a broker is stopped here, before it gets a session."""
    body = request.body
    state = body.replica_state
    replica_id = body.replica_id if state is None else state.replica_id
    if replica_id < 0 or access.may_cluster(Operation.CLUSTER_ACTION):
        return True
    by_id = request.version >= _FETCH_TOPIC_IDS_SINCE
    answer = FetchAnswer()
    for topic in body.topics:
        for asked in topic.partitions:
            partition = PartitionAnswer(asked.partition)
            partition.refuse(_DENIED)
            answer.add(topic.topic_id if by_id else topic.topic, partition)
    if not body.topics:
        answer = FetchAnswer(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    request.reply_chunks(encode_fetch_answer(request, answer))
    return False


def _list_offsets(access: Access, request: Request[list_offsets.ListOffsetsRequest]) -> bool:
    body, may = request.body, access.topics(Operation.DESCRIBE)
    body.topics, denied = split(body.topics, lambda topic: may(topic.name))
    refused = [
        list_offsets.ListOffsetsTopicResponse(
            name=topic.name,
            partitions=[
                list_offsets.ListOffsetsPartitionResponse(
                    partition_index=item.partition_index, error_code=_DENIED
                )
                for item in topic.partitions
            ],
        )
        for topic in denied
    ]

    return with_refused(request, refused, lambda response: response.topics)


def _offset_for_leader_epoch(
    access: Access, request: Request[offset_for_leader_epoch.OffsetForLeaderEpochRequest]
) -> bool:
    if access.may_cluster(Operation.CLUSTER_ACTION, is_noted=False):
        return True
    body, may = request.body, access.topics(Operation.DESCRIBE)
    body.topics, denied = split(body.topics, lambda topic: may(topic.topic))
    refused = [
        offset_for_leader_epoch.OffsetForLeaderTopicResult(
            topic=topic.topic,
            partitions=[
                offset_for_leader_epoch.EpochEndOffset(partition=item.partition, error_code=_DENIED)
                for item in topic.partitions
            ],
        )
        for topic in denied
    ]

    return with_refused(request, refused, lambda response: response.topics)


def _delete_records(access: Access, request: Request[delete_records.DeleteRecordsRequest]) -> bool:
    body, may = request.body, access.topics(Operation.DELETE)
    body.topics, denied = split(body.topics, lambda topic: may(topic.name))
    refused = [
        delete_records.DeleteRecordsTopicResult(
            name=topic.name,
            partitions=[
                delete_records.DeleteRecordsPartitionResult(
                    partition_index=item.partition_index,
                    low_watermark=NO_OFFSET,
                    error_code=_DENIED,
                )
                for item in topic.partitions
            ],
        )
        for topic in denied
    ]

    return with_refused(request, refused, lambda response: response.topics)


def _describe_producers(
    access: Access, request: Request[describe_producers.DescribeProducersRequest]
) -> bool:
    body, may = request.body, access.topics(Operation.READ)
    body.topics, denied = split(body.topics, lambda topic: may(topic.name))
    refused = [
        describe_producers.TopicResponse(
            name=topic.name,
            partitions=[
                describe_producers.PartitionResponse(
                    partition_index=number, error_code=_DENIED, error_message=MESSAGES[_DENIED]
                )
                for number in topic.partition_indexes
            ],
        )
        for topic in denied
    ]

    return with_refused(request, refused, lambda response: response.topics)


RULES: Final[Mapping[ApiKey, Rule]] = {
    ApiKey.PRODUCE: Rule(
        _produce,
        (
            Need(
                Operation.WRITE,
                ResourceType.TRANSACTIONAL_ID,
                _TRANSACTIONAL_ID_DENIED,
                "of transactional records, for all partitions",
            ),
            Need(Operation.WRITE, _TOPIC, _DENIED),
        ),
    ),
    ApiKey.FETCH: Rule(
        _fetch,
        (
            Need(Operation.READ, _TOPIC, _DENIED, "of consumers"),
            Need(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, _DENIED, "of brokers"),
        ),
    ),
    ApiKey.LIST_OFFSETS: Rule(_list_offsets, (Need(Operation.DESCRIBE, _TOPIC, _DENIED),)),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Rule(
        _offset_for_leader_epoch,
        (
            Need(Operation.DESCRIBE, _TOPIC, _DENIED),
            Need(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, _DENIED, "is enough, too"),
        ),
    ),
    ApiKey.DELETE_RECORDS: Rule(_delete_records, (Need(Operation.DELETE, _TOPIC, _DENIED),)),
    ApiKey.DESCRIBE_PRODUCERS: Rule(_describe_producers, (Need(Operation.READ, _TOPIC, _DENIED),)),
}
