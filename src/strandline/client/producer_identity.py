"""The producer id of an idempotent producer and its sequence numbers (KIP-98, KIP-360).

This file knows which number a batch gets. It has no connection: a driver sends `request` to any
broker and brings the answer. It must not know what became of batches, that is `produce_queues`.

Theory: a broker takes the next number of a partition only. So numbers go out in the order of the
batches, and one that is not used can be taken back only while it is the last. When it cannot be
known what the broker last saw, numbering anew under a fresh id is the only safe way on. Batches
that were numbered before keep their numbers.
"""

from __future__ import annotations

from typing import Final

from strandline.client.delivery import Identity
from strandline.client.refusal import check
from strandline.errors import ErrorCode, InvariantViolated
from strandline.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from strandline.records.batch import sequence_after
from strandline.types import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    ProducerEpoch,
    ProducerId,
    TopicPartition,
)

_TRANSACTION_TIMEOUT_MS: Final = 60_000


class ProducerIdentity:
    """See the module. That of a transactional producer is asked for by `transaction_manager`."""

    request: Final = InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS
    )

    __slots__ = ("_current", "_sequences", "is_transactional")

    def __init__(self, *, is_transactional: bool = False) -> None:
        self.is_transactional = is_transactional
        self._current: tuple[ProducerId, ProducerEpoch] | None = None
        self._sequences: dict[TopicPartition, int] = {}

    @property
    def is_known(self) -> bool:
        """Whether batches can be numbered; otherwise a broker is to be asked."""
        return self._current is not None

    def learn(self, response: InitProducerIdResponse) -> None:
        """Take the answer to `request` in. Raises the `ProtocolError` that it is."""
        message = None
        if response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            message = "The cluster grants no producer id yet: it cannot write its metadata."
        check(response.error_code, message, "the producer")
        self.become(ProducerId(response.producer_id), ProducerEpoch(response.producer_epoch))

    @property
    def current(self) -> tuple[ProducerId, ProducerEpoch]:
        """The present id and epoch; -1 both while there are none."""
        return self._current or (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)

    def become(self, producer_id: ProducerId, epoch: ProducerEpoch) -> bool:
        """Number under this id and epoch, from the first number on if they are new ones; whether
        they are."""
        is_new = self._current != (producer_id, epoch)
        if is_new:
            self._sequences.clear()
        self._current = producer_id, epoch
        return is_new

    def is_current(self, identity: Identity) -> bool:
        """Whether a batch was numbered under the present id."""
        return self._current == (identity.producer_id, identity.epoch)

    def number(self, partition: TopicPartition, record_count: int) -> Identity:
        """The identity of the partition's next batch."""
        if self._current is None:
            raise InvariantViolated("A batch was numbered without a producer id.")
        base_sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = sequence_after(base_sequence, record_count)
        return Identity(*self._current, base_sequence, self.is_transactional)

    def take_back(self, partition: TopicPartition, identity: Identity, record_count: int) -> bool:
        """A batch is not written and never will be: whether the next one can have its numbers."""
        next_sequence = sequence_after(identity.base_sequence, record_count)
        if not self.is_current(identity) or self._sequences.get(partition) != next_sequence:
            return False
        self._sequences[partition] = identity.base_sequence
        return True

    def renew(self) -> None:
        """Number anew from the next batch on, under another id."""
        self._current = None
        self._sequences.clear()
