"""The producer id of an idempotent producer and its sequence numbers (KIP-98, KIP-360).

Theory: with one batch per partition on the way, the next sequence number moves on only when a batch
is known to be written. When it cannot be known what the broker last saw (a batch was given up after
an attempt that may have succeeded), numbering anew under a fresh id is the only safe way on.
"""

from __future__ import annotations

from strandline.client.cluster import ClusterClient
from strandline.client.delivery import Identity
from strandline.client.refusal import check
from strandline.errors import ErrorCode
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from strandline.records.batch import sequence_after
from strandline.types import ProducerEpoch, ProducerId, TopicPartition


class IdentitySource:
    """Hands out the identity of each batch."""

    __slots__ = ("_cluster", "_current", "_sequences")

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster
        self._current: tuple[ProducerId, ProducerEpoch] | None = None
        self._sequences: dict[TopicPartition, int] = {}

    def next_for(self, partition: TopicPartition) -> Identity:
        """The identity of the partition's next batch. May ask the cluster for a producer id."""
        if self._current is None:
            self._current = self._cluster.retry(self._ask)
        producer_id, epoch = self._current
        return Identity(producer_id, epoch, self._sequences.get(partition, 0))

    def written(self, partition: TopicPartition, identity: Identity, record_count: int) -> None:
        """Note that a batch is written. One that was numbered before a `renew` changes nothing."""
        if self._current == (identity.producer_id, identity.epoch):
            self._sequences[partition] = sequence_after(identity.base_sequence, record_count)

    def renew(self, identity: Identity) -> None:
        """Number anew from the next batch on, unless that was done since `identity` was given."""
        if self._current == (identity.producer_id, identity.epoch):
            self._current = None
            self._sequences.clear()

    def _ask(self) -> tuple[ProducerId, ProducerEpoch]:
        response = self._cluster.any_connection().call(
            ApiKey.INIT_PRODUCER_ID,
            InitProducerIdResponse,
            InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000),
        )
        message = None
        if response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            message = "The cluster grants no producer id yet: it cannot write its metadata."
        check(response.error_code, message, "the producer")
        return ProducerId(response.producer_id), ProducerEpoch(response.producer_epoch)
