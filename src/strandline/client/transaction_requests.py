"""The requests of a transactional producer in all their versions, and the codes in their answers.

This file knows messages. It must not know when which one is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from strandline.client.arguments import by_partition
from strandline.client.group_requests import Committed, Membership
from strandline.client.producer_identity import ProducerIdentity
from strandline.client.transaction_settings import TransactionSettings
from strandline.errors import ErrorCode, ProtocolError
from strandline.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from strandline.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from strandline.protocol.messages.end_txn import EndTxnRequest
from strandline.protocol.messages.init_producer_id import InitProducerIdRequest
from strandline.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from strandline.types import TopicPartition

FEATURE: Final = "transaction.version"
VERSION_2: Final = 2
RENEWS_SINCE: Final = 3
"""The version of InitProducerId that raises the epoch of a producer which has one (KIP-360)."""
LAST_BY_CLIENTS: Final = 3
"""AddPartitionsToTxn in later versions is for brokers."""
LAST_PRODUCE_OF_VERSION_1: Final = 11
LAST_OF_VERSION_1: Final = 4
"""Of EndTxn and TxnOffsetCommit; with the next version a producer says that it uses version 2."""
_MEMBERS_SINCE: Final = 3


def init_request(
    settings: TransactionSettings, identity: ProducerIdentity, *, goes_on: bool
) -> Callable[[int], InitProducerIdRequest]:
    """Fence the producers before; or, as one that `goes_on`, get the next epoch."""

    def request(version: int) -> InitProducerIdRequest:
        asked = InitProducerIdRequest(
            transactional_id=settings.transactional_id,
            transaction_timeout_ms=settings.timeout_ms,
        )
        if goes_on:
            _need("InitProducerId", version, RENEWS_SINCE)
            asked.producer_id, asked.producer_epoch = identity.current
        return asked

    return request


def add_partitions_request(
    transactional_id: str, identity: ProducerIdentity, partitions: Iterable[TopicPartition]
) -> AddPartitionsToTxnRequest:
    """Partitions join the transaction, in a version for clients."""
    topics: dict[str, AddPartitionsToTxnTopic] = {}
    for name, number in partitions:
        topics.setdefault(name, AddPartitionsToTxnTopic(name=name)).partitions.append(number)
    producer_id, epoch = identity.current
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=list(topics.values()),
    )


def added_partitions_code(answer: Any) -> int:
    """The error of an answer, if any: that of the partition because of which others failed, too."""
    return _worst(
        each.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for each in topic.results_by_partition
    )


def add_offsets_request(
    transactional_id: str, identity: ProducerIdentity, group: str
) -> AddOffsetsToTxnRequest:
    """A group's offsets join the transaction."""
    producer_id, epoch = identity.current
    return AddOffsetsToTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=epoch,
        group_id=group,
    )


def commit_offsets_request(
    transactional_id: str,
    identity: ProducerIdentity,
    who: Membership,
    offsets: Mapping[TopicPartition, Committed],
) -> Callable[[int], TxnOffsetCommitRequest]:
    """Offsets to store with the transaction, if the group still gives them to this member."""

    def request(version: int) -> TxnOffsetCommitRequest:
        if who.member_id:
            _need("TxnOffsetCommit", version, _MEMBERS_SINCE)
        producer_id, epoch = identity.current
        topics: dict[str, TxnOffsetCommitRequestTopic] = {}
        for (name, number), stored in offsets.items():
            topics.setdefault(name, TxnOffsetCommitRequestTopic(name=name)).partitions.append(
                TxnOffsetCommitRequestPartition(
                    partition_index=number,
                    committed_offset=stored.offset,
                    committed_leader_epoch=stored.leader_epoch,
                    committed_metadata=stored.metadata,
                )
            )
        asked = TxnOffsetCommitRequest(
            transactional_id=transactional_id,
            group_id=who.group,
            producer_id=producer_id,
            producer_epoch=epoch,
            topics=list(topics.values()),
        )
        if version >= _MEMBERS_SINCE:
            asked.generation_id, asked.member_id = who.generation, who.member_id
            asked.group_instance_id = who.instance_id
        return asked

    return request


def offsets_of_group(
    offsets: Mapping[TopicPartition, int], group: Membership | str
) -> tuple[dict[TopicPartition, Committed], Membership]:
    """What a program gives, as it is sent. With a name alone the group checks no membership."""
    membership = Membership(group, None) if isinstance(group, str) else group
    return {at: Committed(each) for at, each in by_partition(offsets).items()}, membership


def committed_offsets_code(answer: Any) -> int:
    """The error of an answer, if any."""
    return _worst(each.error_code for topic in answer.topics for each in topic.partitions)


def end_request(
    transactional_id: str, identity: ProducerIdentity, *, commits: bool, version_2: bool
) -> Callable[[int], EndTxnRequest]:
    """Commit or abort."""

    def request(version: int) -> EndTxnRequest:
        if version_2:
            _need("EndTxn", version, LAST_OF_VERSION_1 + 1)
        producer_id, epoch = identity.current
        return EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=commits,
        )

    return request


def _worst(codes: Iterable[int]) -> int:
    """The code that says most: one that is no mere consequence of another."""
    found = [code for code in codes if code != ErrorCode.NONE]
    causes = [code for code in found if code != ErrorCode.OPERATION_NOT_ATTEMPTED]
    return next(iter(causes or found), ErrorCode.NONE)


def _need(api: str, version: int, least: int) -> None:
    if version < least:
        raise ProtocolError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"The broker serves {api} only up to version {version}; version {least} is needed.",
        )
