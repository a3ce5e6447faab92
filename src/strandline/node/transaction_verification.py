"""Asking the coordinator whether a partition is part of a transaction, or to make it one (KIP-890).

The leader of a partition asks before a transaction's first batch there. A producer of version 1 has
told the coordinator itself, and the partition is only verified; one of version 2 leaves it to the
leader to add the partition. Questions about one producer are asked one after the other, so that its
batches are appended in the order in which they came. Batches about which there is nothing to ask
wait for their turn behind such as are asked about, too. When the last of them for a partition is
refused for good, the partition forgets the guard that they shared.

A partition that is to join while the markers of the producer's last transaction are being written
asks again: after 1 ms, 2 ms, and so on up to `add.partitions.to.txn.retry.backoff.ms`, since that
is mostly done within a few milliseconds (docs/design/0053-partitions-that-wait.md).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from functools import partial
from typing import Final

from strandline.cluster.topic_names import TRANSACTION_STATE
from strandline.errors import RETRIABLE, ErrorCode
from strandline.node.metadata import Metadata
from strandline.node.peers import Peers
from strandline.node.replicas import Replicas
from strandline.node.settings import Settings
from strandline.node.timers import Timers
from strandline.node.transaction_host import TransactionHost
from strandline.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from strandline.types import (
    NO_LEADER,
    BrokerId,
    Instant,
    ProducerEpoch,
    ProducerId,
    TopicPartition,
)

_VERSION: Final = 5
_CHANNEL: Final = "transactions"
_TIMEOUT_MS: Final = 30_000
_FIRST_PAUSE_MS: Final = 1

Verified = Callable[[Mapping[TopicPartition, ErrorCode], Instant], None]
"""Told once what the coordinator says of each partition."""

_UNREACHED: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked about one producer's transaction."""

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    partitions: frozenset[TopicPartition]
    adds: bool
    """Partitions join the transaction by being written to (version 2)."""
    knows_abortable: bool
    """The client knows the error TRANSACTION_ABORTABLE."""

    @property
    def verify_only(self) -> bool:
        """Partitions have joined before, or have not."""
        return not self.adds

    def request(self) -> AddPartitionsToTxnRequest:
        """The question as a message."""
        topics: dict[str, list[int]] = {}
        for topic, partition in sorted(self.partitions):
            topics.setdefault(topic, []).append(partition)
        return AddPartitionsToTxnRequest(
            transactions=[
                AddPartitionsToTxnTransaction(
                    transactional_id=self.transactional_id,
                    producer_id=self.producer_id,
                    producer_epoch=self.producer_epoch,
                    verify_only=self.verify_only,
                    topics=[
                        AddPartitionsToTxnTopic(name=topic, partitions=numbers)
                        for topic, numbers in topics.items()
                    ],
                )
            ]
        )

    def for_client(self, code: ErrorCode) -> ErrorCode:
        """What the producer is told: older ones would take some errors for the end of them."""
        if code is ErrorCode.PRODUCER_FENCED:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if code is ErrorCode.TRANSACTION_ABORTABLE and not self.knows_abortable:
            return ErrorCode.INVALID_TXN_STATE
        if code in _UNREACHED or (code is ErrorCode.CONCURRENT_TRANSACTIONS and not self.adds):
            return ErrorCode.NOT_ENOUGH_REPLICAS
        return code


class TransactionVerifier:
    """The questions of all partitions that this node leads."""

    def __init__(
        self,
        metadata: Metadata,
        settings: Settings,
        replicas: Replicas,
        peers: Peers,
        timers: Timers,
        host: Callable[[], TransactionHost],
    ) -> None:
        """`host` gives this node's own coordinator."""
        self._metadata = metadata
        self._settings = settings
        self._replicas = replicas
        self._peers = peers
        self._timers = timers
        self._host = host
        self._broker_id = BrokerId(settings.broker.node_id)
        self._queues: dict[ProducerId, deque[tuple[Question, Verified]]] = {}

    def is_asking(self, producer_id: ProducerId | None) -> bool:
        """Whether batches of the producer wait, which later ones must not overtake."""
        return producer_id in self._queues

    def is_confirmed(
        self,
        transactional_id: str,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        partitions: Set[TopicPartition],
    ) -> bool:
        """Whether the coordinator is this node's own and would confirm at once: no need to ask."""
        is_here = self._coordinator_of(transactional_id) == self._broker_id
        return is_here and self._host().confirms(
            transactional_id, producer_id, producer_epoch, partitions
        )

    def _coordinator_of(self, transactional_id: str) -> BrokerId:
        """The broker that coordinates the id, NO_LEADER if there is none."""
        number = self._host().partition_for(transactional_id)
        state = self._metadata.image.partition(TopicPartition(TRANSACTION_STATE, number))
        return NO_LEADER if state is None else state.leader

    def ask(self, question: Question, verified: Verified, now: Instant) -> None:
        """Ask; the errors told are those for the client. A question about no partition is not
        sent: only its turn is waited for."""
        queue = self._queues.get(question.producer_id)
        if queue is not None:
            queue.append((question, verified))
            return
        self._queues[question.producer_id] = deque()
        self._begin(question, verified, now)

    def _begin(self, question: Question, verified: Verified, now: Instant) -> None:
        if not question.partitions:
            self._tell(question, {}, verified, now)
            return
        patience_ms = self._settings.broker.add_partitions_to_txn_retry_backoff_max_ms
        give_up_ms = now.monotonic_ms + (patience_ms if question.adds else 0)
        self._send(question, verified, give_up_ms, _FIRST_PAUSE_MS, now)

    def _send(
        self, question: Question, verified: Verified, give_up_ms: int, pause_ms: int, now: Instant
    ) -> None:
        answered = partial(self._answered, question, verified, give_up_ms, pause_ms)
        coordinator = self._coordinator_of(question.transactional_id)
        if coordinator < 0:
            answered(None, now)
        elif coordinator == self._broker_id:
            self._host().join(question, question.partitions, answered, now)
        else:
            self._peers.ask(
                coordinator,
                question.request(),
                _VERSION,
                answered,
                now,
                timeout_ms=_TIMEOUT_MS,
                channel=_CHANNEL,
            )

    def _answered(
        self,
        question: Question,
        verified: Verified,
        give_up_ms: int,
        pause_ms: int,
        answer: object,
        now: Instant,
    ) -> None:
        codes = dict.fromkeys(question.partitions, ErrorCode.NETWORK_EXCEPTION)
        if isinstance(answer, AddPartitionsToTxnResponse):
            for transaction in answer.results_by_transaction:
                for topic in transaction.topic_results:
                    for item in topic.results_by_partition:
                        at = TopicPartition(topic.name, item.partition_index)
                        codes[at] = ErrorCode(item.partition_error_code)
        elif isinstance(answer, Mapping):  # of this node's own coordinator
            codes.update(answer)
        pause_ms = min(pause_ms, self._settings.broker.add_partitions_to_txn_retry_backoff_ms)
        is_busy = ErrorCode.CONCURRENT_TRANSACTIONS in codes.values()
        if is_busy and now.monotonic_ms + pause_ms <= give_up_ms:
            # The transaction before this one is still being ended: mostly that is done in a moment.
            self._timers.schedule(
                now.monotonic_ms + pause_ms,
                lambda at: self._send(question, verified, give_up_ms, 2 * pause_ms, at),
            )
            return
        told = {at: question.for_client(code) for at, code in codes.items()}
        self._tell(question, told, verified, now)

    def _tell(
        self,
        question: Question,
        codes: Mapping[TopicPartition, ErrorCode],
        verified: Verified,
        now: Instant,
    ) -> None:
        try:
            verified(codes, now)
        finally:
            self._forget_refused(question.producer_id, codes)
            self._next(question.producer_id, now)

    def _forget_refused(
        self, producer_id: ProducerId, codes: Mapping[TopicPartition, ErrorCode]
    ) -> None:
        refused = {
            at for at, code in codes.items() if code is not ErrorCode.NONE and code not in RETRIABLE
        }
        for waiting, _ in self._queues[producer_id]:
            if not refused:
                return
            refused -= waiting.partitions  # its batch will show the same guard
        for at in refused:
            replica = self._replicas.find(at)
            if replica is not None:
                replica.log.producers.verifications.forget(producer_id)

    def _next(self, producer_id: ProducerId, now: Instant) -> None:
        queue = self._queues[producer_id]
        if not queue:
            del self._queues[producer_id]
            return
        question, verified = queue.popleft()
        # Not inside this call: answers of this node's own coordinator would pile up.
        self._timers.schedule(now.monotonic_ms, lambda at: self._begin(question, verified, at))
