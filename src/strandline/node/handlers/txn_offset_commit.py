"""TxnOffsetCommit: the offsets of a group as part of a transaction (KIP-98, 447, 890)."""

from __future__ import annotations

from typing import Any, Final

from strandline.cluster.topic_names import CONSUMER_OFFSETS
from strandline.errors import ErrorCode, ProtocolError
from strandline.groups.requests import refused
from strandline.groups.shard import coordinator_error
from strandline.node.group_host import GroupHost
from strandline.node.metadata import Metadata
from strandline.node.replicas import Replicas
from strandline.node.request import Request
from strandline.node.settings import Settings
from strandline.node.transaction_verification import Question, TransactionVerifier
from strandline.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from strandline.storage.transaction_verification import NO_GUARD, Guard
from strandline.types import NO_SEQUENCE, Instant, ProducerEpoch, ProducerId, TopicPartition

_ABORTABLE_SINCE: Final = 4
_ADDS_SINCE: Final = 5


class TxnOffsetCommitHandler:
    """Answers TxnOffsetCommit, versions 0 to 5."""

    def __init__(
        self,
        groups: GroupHost,
        metadata: Metadata,
        replicas: Replicas,
        verifier: TransactionVerifier,
        settings: Settings,
    ) -> None:
        self._groups = groups
        self._metadata = metadata
        self._replicas = replicas
        self._verifier = verifier
        self._settings = settings

    def handle(self, request: Request[TxnOffsetCommitRequest], now: Instant) -> None:
        """Write pending offsets of partitions that exist; refuse the others one by one."""
        body = request.body
        early = self._take_unknown(body)
        if not body.topics:
            request.reply(TxnOffsetCommitResponse(topics=early))
            return

        def commit(guard: Guard, at: Instant) -> None:
            self._groups.ask(
                request, at, complete=lambda response: _joined(early, response), guard=guard
            )

        partition = self._groups.partition_for(body.group_id)
        producer_id, epoch = ProducerId(body.producer_id), ProducerEpoch(body.producer_epoch)
        adds = request.version >= _ADDS_SINCE
        try:
            _check_producer(producer_id, epoch)
            guard = NO_GUARD
            if adds or self._settings.broker.transaction_partition_verification_enable:
                replica = self._replicas.leader(CONSUMER_OFFSETS, partition)
                replica.check_leading()
                guard = replica.log.producers.begin_verification(
                    producer_id, epoch, NO_SEQUENCE, now.wall_ms, supports_epoch_bump=adds
                )
        except ProtocolError as error:
            request.reply(_joined(early, refused(body, coordinator_error(error.code))))
            return
        if guard == NO_GUARD:
            commit(NO_GUARD, now)
            return
        at_offsets = TopicPartition(CONSUMER_OFFSETS, partition)
        self._verifier.ask(
            Question(
                transactional_id=body.transactional_id,
                producer_id=producer_id,
                producer_epoch=epoch,
                partitions=frozenset({at_offsets}),
                adds=adds,
                knows_abortable=request.version >= _ABORTABLE_SINCE,
            ),
            lambda outcomes, at: (
                commit(guard, at)
                if outcomes[at_offsets] is ErrorCode.NONE
                else request.reply(
                    _joined(early, refused(body, coordinator_error(outcomes[at_offsets])))
                )
            ),
            now,
        )

    def _take_unknown(self, body: TxnOffsetCommitRequest) -> list[TxnOffsetCommitResponseTopic]:
        """Leave out what does not exist, and say so."""
        early: list[TxnOffsetCommitResponseTopic] = []
        known_topics: list[TxnOffsetCommitRequestTopic] = []
        for asked in body.topics:
            topic = self._metadata.image.topics.get(asked.name)
            known = frozenset() if topic is None else topic.partitions.keys()
            unknown = [
                TxnOffsetCommitResponsePartition(
                    partition_index=item.partition_index,
                    error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                )
                for item in asked.partitions
                if item.partition_index not in known
            ]
            if unknown:
                early.append(TxnOffsetCommitResponseTopic(name=asked.name, partitions=unknown))
            asked.partitions = [item for item in asked.partitions if item.partition_index in known]
            if asked.partitions:
                known_topics.append(asked)
        body.topics = known_topics
        return early


def _check_producer(producer_id: ProducerId, epoch: ProducerEpoch) -> None:
    """Refuse, as the coordinator would, which is not always asked: offsets that are pending under
    no producer would be so for ever, since no marker can name it."""
    if producer_id < 0:
        raise ProtocolError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if epoch < 0:
        raise ProtocolError(ErrorCode.INVALID_PRODUCER_EPOCH)


def _joined(early: list[TxnOffsetCommitResponseTopic], response: Any) -> TxnOffsetCommitResponse:
    """Each topic once: clients read the answer by topic."""
    by_name: dict[str, TxnOffsetCommitResponseTopic] = {}
    for topic in [*early, *response.topics]:
        found = by_name.setdefault(topic.name, TxnOffsetCommitResponseTopic(name=topic.name))
        found.partitions += topic.partitions
    return TxnOffsetCommitResponse(topics=list(by_name.values()))
