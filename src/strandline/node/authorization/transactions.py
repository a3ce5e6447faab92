"""Permissions of producers' identities and of transactions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from strandline.authorization.acls import Operation, ResourceType
from strandline.errors import ErrorCode
from strandline.groups.requests import refused as refused_group
from strandline.node.authorization.authority import Access
from strandline.node.authorization.rule import Need, Rule, split, with_refused
from strandline.node.request import Request
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages import add_partitions_to_txn as adding
from strandline.protocol.messages import write_txn_markers as markers
from strandline.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from strandline.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from strandline.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from strandline.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from strandline.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from strandline.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from strandline.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

_TOPIC, _GROUP, _ID = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID
_DENIED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_GROUP_DENIED: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED
_ID_DENIED: Final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
_CLUSTER_DENIED: Final = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
_BATCHED_SINCE: Final = 4


def _init_producer_id(access: Access, request: Request[InitProducerIdRequest]) -> bool:
    """An idempotent producer needs IDEMPOTENT_WRITE, or to write some topic (KIP-679)."""
    transactional_id = request.body.transactional_id
    if transactional_id is not None:
        if access.may(Operation.WRITE, _ID, transactional_id):
            return True
        code = _ID_DENIED
    else:
        if access.may_any(Operation.WRITE, _TOPIC) or access.may_cluster(
            Operation.IDEMPOTENT_WRITE
        ):
            return True
        code = _CLUSTER_DENIED
    request.reply(
        InitProducerIdResponse(
            error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH
        )
    )
    return False


def _add_partitions(access: Access, request: Request[adding.AddPartitionsToTxnRequest]) -> bool:
    body = request.body
    if request.version >= _BATCHED_SINCE:
        if access.may_cluster(Operation.CLUSTER_ACTION):
            return True
        request.reply(adding.AddPartitionsToTxnResponse(error_code=_CLUSTER_DENIED))
        return False
    topics = body.v3_and_below_topics
    codes: dict[str, ErrorCode]
    if not access.may(Operation.WRITE, _ID, body.v3_and_below_transactional_id):
        codes = {topic.name: _ID_DENIED for topic in topics}
    else:
        may_write = access.topics(Operation.WRITE)
        codes = {
            topic.name: ErrorCode.OPERATION_NOT_ATTEMPTED if may_write(topic.name) else _DENIED
            for topic in topics
        }
        if _DENIED not in codes.values():
            return True
    known = access.image.topics
    request.reply(
        adding.AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=[
                adding.AddPartitionsToTxnTopicResult(
                    name=topic.name,
                    results_by_partition=[
                        adding.AddPartitionsToTxnPartitionResult(
                            partition_index=number,
                            partition_error_code=_code_of(codes[topic.name], known, topic, number),
                        )
                        for number in topic.partitions
                    ],
                )
                for topic in topics
            ]
        )
    )
    return False


def _code_of(
    code: ErrorCode, known: Mapping[str, Any], topic: adding.AddPartitionsToTxnTopic, number: int
) -> ErrorCode:
    """A partition that only others keep from joining is told if it is missing."""
    if code is ErrorCode.OPERATION_NOT_ATTEMPTED:
        found = known.get(topic.name)
        if found is None or number not in found.partitions:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return code


def _add_offsets(access: Access, request: Request[AddOffsetsToTxnRequest]) -> bool:
    code = _refusal_of_group(access, request.body)
    if code is not None:
        request.reply(AddOffsetsToTxnResponse(error_code=code))
    return code is None


def _refusal_of_group(
    access: Access, body: AddOffsetsToTxnRequest | TxnOffsetCommitRequest
) -> ErrorCode | None:
    """Why a group may not be part of the transaction, if it may not."""
    if not access.may(Operation.WRITE, _ID, body.transactional_id):
        return _ID_DENIED
    return None if access.may(Operation.READ, _GROUP, body.group_id) else _GROUP_DENIED


def _end(access: Access, request: Request[EndTxnRequest]) -> bool:
    if access.may(Operation.WRITE, _ID, request.body.transactional_id):
        return True
    request.reply(EndTxnResponse(error_code=_ID_DENIED))
    return False


def _write_markers(access: Access, request: Request[markers.WriteTxnMarkersRequest]) -> bool:
    """ALTER of the cluster is enough: an administrator ends transactions that hang by markers."""
    if access.may_cluster(Operation.ALTER, is_noted=False) or access.may_cluster(
        Operation.CLUSTER_ACTION
    ):
        return True
    request.reply(
        markers.WriteTxnMarkersResponse(
            markers=[
                markers.WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=[
                        markers.WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=[
                                markers.WritableTxnMarkerPartitionResult(
                                    partition_index=number, error_code=_CLUSTER_DENIED
                                )
                                for number in topic.partition_indexes
                            ],
                        )
                        for topic in marker.topics
                    ],
                )
                for marker in request.body.markers
            ]
        )
    )
    return False


def _txn_offset_commit(access: Access, request: Request[TxnOffsetCommitRequest]) -> bool:
    body, may_read = request.body, access.topics(Operation.READ)
    code = _refusal_of_group(access, body)
    if code is not None:
        request.reply(refused_group(body, code))
        return False
    body.topics, denied = split(body.topics, lambda topic: may_read(topic.name))
    refused = [
        TxnOffsetCommitResponseTopic(
            name=topic.name,
            partitions=[
                TxnOffsetCommitResponsePartition(
                    partition_index=item.partition_index, error_code=_DENIED
                )
                for item in topic.partitions
            ],
        )
        for topic in denied
    ]

    return with_refused(request, refused, lambda response: response.topics)


def _describe(access: Access, request: Request[DescribeTransactionsRequest]) -> bool:
    body = request.body
    body.transactional_ids, denied = split(
        body.transactional_ids, lambda name: access.may(Operation.DESCRIBE, _ID, name)
    )
    refused = [TransactionState(transactional_id=name, error_code=_ID_DENIED) for name in denied]

    def amend(response: DescribeTransactionsResponse) -> None:
        may_see = access.topics(Operation.DESCRIBE, is_noted=False)
        for state in response.transaction_states:
            state.topics = [topic for topic in state.topics if may_see(topic.topic)]
        response.transaction_states += refused

    request.amend = amend
    return True


def _list(access: Access, request: Request[ListTransactionsRequest]) -> bool:
    def amend(response: ListTransactionsResponse) -> None:
        response.transaction_states = [
            state
            for state in response.transaction_states
            if access.may(Operation.DESCRIBE, _ID, state.transactional_id, is_noted=False)
        ]

    request.amend = amend
    return True


_WRITES_ID: Final = Need(Operation.WRITE, _ID, _ID_DENIED)

RULES: Final[Mapping[ApiKey, Rule]] = {
    ApiKey.INIT_PRODUCER_ID: Rule(
        _init_producer_id,
        (
            Need(Operation.WRITE, _ID, _ID_DENIED, "of a transactional producer"),
            Need(
                Operation.IDEMPOTENT_WRITE,
                ResourceType.CLUSTER,
                _CLUSTER_DENIED,
                "of an idempotent producer; Write of any topic is enough, too",
            ),
        ),
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: Rule(
        _add_partitions,
        (
            Need(Operation.WRITE, _ID, _ID_DENIED, "of clients (up to version 3)"),
            Need(Operation.WRITE, _TOPIC, _DENIED, "of clients; no partition joins without"),
            Need(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, _CLUSTER_DENIED, "of brokers"),
        ),
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: Rule(
        _add_offsets, (_WRITES_ID, Need(Operation.READ, _GROUP, _GROUP_DENIED))
    ),
    ApiKey.END_TXN: Rule(_end, (_WRITES_ID,)),
    ApiKey.WRITE_TXN_MARKERS: Rule(
        _write_markers,
        (
            Need(
                Operation.CLUSTER_ACTION,
                ResourceType.CLUSTER,
                _CLUSTER_DENIED,
                "or Alter of the cluster",
            ),
        ),
    ),
    ApiKey.TXN_OFFSET_COMMIT: Rule(
        _txn_offset_commit,
        (
            _WRITES_ID,
            Need(Operation.READ, _GROUP, _GROUP_DENIED, "for all partitions"),
            Need(Operation.READ, _TOPIC, _DENIED),
        ),
    ),
    ApiKey.DESCRIBE_TRANSACTIONS: Rule(
        _describe,
        (
            Need(Operation.DESCRIBE, _ID, _ID_DENIED),
            Need(Operation.DESCRIBE, _TOPIC, None, "to see that the transaction has it"),
        ),
    ),
    ApiKey.LIST_TRANSACTIONS: Rule(_list, (Need(Operation.DESCRIBE, _ID, None),)),
}
