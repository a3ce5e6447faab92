"""Whether the batches of one produce request may open a transaction where they go (KIP-890).

A partition in which the transaction is open already has nothing to ask. For the others each gets a
guard from its log, the coordinator is asked about all of them at once, and the appends show the
guards: an end marker that comes in between has taken them back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from strandline.errors import ErrorCode, ProtocolError
from strandline.node.replica import Replica
from strandline.node.replicas import Replicas
from strandline.node.request import Request
from strandline.node.settings import Settings
from strandline.node.transaction_verification import Question, TransactionVerifier
from strandline.protocol.messages.produce import ProduceRequest
from strandline.records.batch import BatchHeader
from strandline.records.produced_framing import begins_with_transactional_batch, only_batch
from strandline.storage.transaction_verification import NO_GUARD, Guard
from strandline.types import ProducerEpoch, ProducerId, TopicPartition

_TOPIC_IDS_SINCE: Final = 13
_ADDS_SINCE: Final = 12
_ABORTABLE_SINCE: Final = 11


class _Producer(NamedTuple):
    producer_id: ProducerId
    epoch: ProducerEpoch


class ProduceVerification:
    """The transactional batches of one request. `outcomes` is what the coordinator has said."""

    def __init__(self, request: Request[ProduceRequest], replicas: Replicas) -> None:
        self._request = request
        self._replicas = replicas
        self._producers: dict[_Producer, None] = {}
        self._guards: dict[TopicPartition, Guard] = {}
        self._adds = request.version >= _ADDS_SINCE
        self.outcomes: Mapping[TopicPartition, ErrorCode] = {}
        self.is_over = False
        """Whether the coordinator has answered."""

    def begin(self, settings: Settings, now_ms: int) -> bool:
        """Get the guards; whether there is anything to ask. `now_ms` is wall-clock time."""
        if not (self._adds or settings.broker.transaction_partition_verification_enable):
            return False
        batches = list(self._batches())
        self._producers = dict.fromkeys(
            _Producer(header.producer_id, header.producer_epoch) for _, header in batches
        )
        if len(self._producers) > 1:
            code = ErrorCode.INVALID_PRODUCER_ID_MAPPING
            self.outcomes = {replica.topic_partition: code for replica, _ in batches}
            return False
        for replica, header in batches:
            try:
                guard = replica.log.producers.begin_verification(
                    header.producer_id,
                    header.producer_epoch,
                    header.base_sequence,
                    now_ms,
                    supports_epoch_bump=self._adds,
                )
            except ProtocolError as error:
                self.outcomes = {**self.outcomes, replica.topic_partition: error.code}
                continue
            if guard != NO_GUARD:
                self._guards[replica.topic_partition] = guard
        return bool(self._guards)

    @property
    def producer_id(self) -> ProducerId | None:
        """That of the transactional batches; None if there are none, or of several producers."""
        return next(iter(self._producers)).producer_id if len(self._producers) == 1 else None

    def is_confirmed(self, verifier: TransactionVerifier) -> bool:
        """Whether it is known without a question that the coordinator would confirm."""
        [producer] = self._producers
        return verifier.is_confirmed(self._transactional_id, *producer, self._guards.keys())

    @property
    def _transactional_id(self) -> str:
        return self._request.body.transactional_id or ""

    def question(self) -> Question:
        """What the coordinator is asked: nothing, if no partition needs a guard."""
        [producer] = self._producers
        return Question(
            transactional_id=self._transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            partitions=frozenset(self._guards),
            adds=self._adds,
            knows_abortable=self._request.version >= _ABORTABLE_SINCE,
        )

    def verified(self, outcomes: Mapping[TopicPartition, ErrorCode]) -> None:
        """The coordinator has answered."""
        self.is_over = True
        self.outcomes = {**self.outcomes, **outcomes}

    def guard(self, at: TopicPartition) -> Guard:
        """What the append to a partition shows. Raises `ProtocolError` if it may not be."""
        code = self.outcomes.get(at, ErrorCode.NONE)
        if code is not ErrorCode.NONE:
            raise ProtocolError(code, "The partition could not be verified to be in a transaction.")
        return self._guards.get(at, NO_GUARD)

    def _batches(self) -> Iterator[tuple[Replica, BatchHeader]]:
        """The transactional batches; what is wrong with others is told when they are appended."""
        by_id = self._request.version >= _TOPIC_IDS_SINCE
        for topic in self._request.body.topic_data:
            for data in topic.partition_data:
                try:
                    if data.records is None or not begins_with_transactional_batch(data.records):
                        continue
                    header = only_batch(data.records)
                    if by_id:
                        replica = self._replicas.leader_by_id(topic.topic_id, data.index)
                    else:
                        replica = self._replicas.leader(topic.name, data.index)
                except ProtocolError:
                    continue
                yield replica, header
