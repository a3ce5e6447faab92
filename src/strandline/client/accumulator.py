"""Records of a producer until their batches are full, or old enough.

This file chooses partitions and fills batches. It has no socket, thread or clock, and must not know
how batches get to brokers, that is `produce_queues`.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from strandline.client.delivery import Batch, Delivery, Outcomes
from strandline.client.metadata import TopicInfo
from strandline.client.partitioner import StickyChoice, partition_for_key
from strandline.errors import ErrorCode, ProtocolError
from strandline.records.batch import HEADER_BYTES
from strandline.records.record import Record
from strandline.types import TopicPartition


class RecordAccumulator:
    """See the module. What it holds counts into `outcomes.held_bytes`."""

    def __init__(
        self,
        random: Random,
        outcomes: Outcomes,
        on_full: Callable[[Batch], None],
        *,
        batch_bytes: int,
        linger_ms: int | None,
    ) -> None:
        """`on_full` gets each batch that is to be sent. `linger_ms` None: only when it is full, or
        by `close_all`."""
        self._outcomes = outcomes
        self._on_full = on_full
        self._batch_bytes = batch_bytes
        self._linger_ms = linger_ms
        self._open: dict[TopicPartition, Batch] = {}
        self._sticky = StickyChoice(random, stay_bytes=batch_bytes)

    def choose(
        self, topic: TopicInfo, key: bytes | None, partition: int | None, size_bytes: int
    ) -> TopicPartition:
        """Where a record goes. Raises `ProtocolError` if there is no such partition."""
        if partition is None:
            if key is not None:
                return TopicPartition(topic.name, partition_for_key(key, len(topic.partitions)))
            led = [each.partition for each in topic.partitions.values() if each.leader >= 0]
            partition = self._sticky.choose(topic.name, led or list(topic.partitions), size_bytes)
        elif partition not in topic.partitions:
            raise ProtocolError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"There is no partition {partition} of topic '{topic.name}'; it has the "
                f"partitions 0 to {len(topic.partitions) - 1}.",
            )
        return TopicPartition(topic.name, partition)

    def close_unless_fits(self, target: TopicPartition, size_bytes: int) -> None:
        """End the partition's open batch if the record would make it too large."""
        batch = self._open.get(target)
        if batch is not None and batch.size_bytes + size_bytes > self._batch_bytes:
            self._close(target)

    def append(
        self, target: TopicPartition, record: Record, size_bytes: int, now_ms: Callable[[], int]
    ) -> Delivery:
        """Put a record into the partition's open batch; a new one is dated."""
        batch = self._open.get(target)
        outcomes = self._outcomes
        if batch is None:
            batch = self._open[target] = Batch(target, now_ms())
            batch.size_bytes = HEADER_BYTES
            outcomes.held_bytes += HEADER_BYTES
        outcomes.held_bytes += size_bytes
        delivery = batch.add(record, size_bytes)
        if batch.size_bytes >= self._batch_bytes:
            self._close(target)
        return delivery

    def lingers_until_ms(self) -> int | None:
        """When the oldest open batch is to be sent."""
        if self._linger_ms is None or not self._open:
            return None
        return next(iter(self._open.values())).created_ms + self._linger_ms

    def close_lingering(self, now_ms: int) -> None:
        """Have batches sent that are old enough; the oldest are the first."""
        while (until_ms := self.lingers_until_ms()) is not None and until_ms <= now_ms:
            self._close(next(iter(self._open)))

    def close_all(self) -> None:
        """Have everything sent."""
        for target in list(self._open):
            self._close(target)

    def _close(self, target: TopicPartition) -> None:
        self._on_full(self._open.pop(target))
