"""Sending records: idempotent, in batches, in order, within bounded memory.

    with Producer(cluster) as producer:
        delivery = producer.send("orders", b"value", key=b"key")
        producer.flush().raise_failure()
        offset = delivery.result()

This file collects records into batches; `sending.py` gets the batches to their brokers. There is no
thread: `send` also sends what is full and takes in what was answered, and waits only while the
memory bound is reached. What is not full stays until `flush`, or for `linger_ms`: callers that
pause flush before it, or call `poll`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from strandline.client.cluster import ClusterClient
from strandline.client.delivery import Batch, Delivery, FlushResult, record_bytes_max
from strandline.client.metadata import TopicInfo
from strandline.client.partitioner import StickyChoice, partition_for_key
from strandline.client.produce_queues import ProducePolicy
from strandline.client.sending import Sender
from strandline.errors import ErrorCode, ProtocolError
from strandline.records.batch import HEADER_BYTES
from strandline.records.codec import Codec
from strandline.records.record import Record
from strandline.types import NO_OFFSET, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """Defaults are Java's where they mean the same; sizes in bytes before compression."""

    acks: int = -1
    """-1: all replicas in sync have it; 1: the leader has it; 0: nobody answers."""
    is_idempotent: bool = True
    """Whether a retry is recognised as such. Without effect unless acks is -1."""
    codec: Codec = Codec.NONE
    compression_level: int | None = None
    batch_bytes: int = 128 * 1024
    linger_ms: int | None = None
    """After so long a batch is sent that is not full; None: only by `flush`."""
    buffer_bytes_max: int = 32 * 1024 * 1024
    delivery_timeout_ms: int = 120_000
    """How long a record may wait and be retried before it counts as failed."""
    append_timeout_ms: int = 30_000
    """How long a broker may wait for its followers."""
    may_create_topics: bool = True


class Producer:
    """See the module. A context manager: leaving it without an error flushes."""

    def __init__(self, cluster: ClusterClient, settings: ProducerSettings | None = None) -> None:
        self._cluster = cluster
        self._settings = settings = settings or ProducerSettings()
        self._sender = Sender(
            cluster,
            ProducePolicy(
                acks=settings.acks,
                delivery_timeout_ms=settings.delivery_timeout_ms,
                topic_wait_ms=cluster.settings.topic_wait_ms,
                retry_backoff_ms=cluster.settings.retry_backoff_ms,
                retry_backoff_max_ms=cluster.settings.retry_backoff_max_ms,
            ),
            codec=(settings.codec, settings.compression_level),
            append_timeout_ms=settings.append_timeout_ms,
            is_idempotent=settings.is_idempotent and settings.acks == -1,
        )
        self._outcomes = self._sender.outcomes
        self._open: dict[TopicPartition, Batch] = {}
        self._sticky = StickyChoice(cluster.random, stay_bytes=settings.batch_bytes)

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is None:
            self.flush()

    @property
    def buffered_bytes(self) -> int:
        """What waits to be sent or answered."""
        return self._outcomes.held_bytes

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Delivery:
        """Give a record to the producer; it is sent with its batch.

        `timestamp` is in milliseconds, now by default. Raises `ProtocolError` when the topic or
        partition is not known, or no room became free in time.
        """
        if timestamp is None:
            timestamp = self._cluster.clock.wall_ms()
        record = Record(NO_OFFSET, timestamp, key, value, tuple(headers))
        size = record_bytes_max(record)
        if size + HEADER_BYTES > self._settings.buffer_bytes_max:
            raise ProtocolError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"A record of {size} bytes does not fit in the producer's buffer of "
                f"{self._settings.buffer_bytes_max} bytes.",
            )
        found = self._cluster.topic(topic, may_create=self._settings.may_create_topics)
        target = TopicPartition(topic, self._choose(found, key, partition, size))
        batch = self._open.get(target)
        if batch is not None and batch.size_bytes + size > self._settings.batch_bytes:
            self._close_batch(target)
            batch = None
        self._make_room(size + HEADER_BYTES)
        batch = self._open.get(target)
        if batch is None:
            batch = self._open[target] = Batch(target, self._cluster.clock.monotonic_ms())
            batch.size_bytes = HEADER_BYTES
            self._outcomes.held_bytes += HEADER_BYTES
        self._outcomes.held_bytes += size
        delivery = batch.add(record, size)
        if batch.size_bytes >= self._settings.batch_bytes:
            self._close_batch(target)
        self._close_lingering()
        return delivery

    def poll(self) -> None:
        """Send what has lingered, and take in what was answered. Does not wait for answers."""
        self._close_lingering()
        self._sender.pump(wait=False)

    def flush(self) -> FlushResult:
        """Send everything and wait for the outcomes; those since the last flush are returned."""
        for target in list(self._open):
            self._close_batch(target)
        while self._sender.has_work:
            self._sender.pump(wait=True)
        return self._outcomes.take()

    def _choose(
        self, topic: TopicInfo, key: bytes | None, partition: int | None, size_bytes: int
    ) -> int:
        if partition is not None:
            if partition not in topic.partitions:
                raise ProtocolError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"There is no partition {partition} of topic '{topic.name}'; it has the "
                    f"partitions 0 to {len(topic.partitions) - 1}.",
                )
            return partition
        if key is not None:
            return partition_for_key(key, len(topic.partitions))
        available = [each.partition for each in topic.partitions.values() if each.leader >= 0]
        return self._sticky.choose(topic.name, available or list(topic.partitions), size_bytes)

    def _close_lingering(self) -> None:
        """Send open batches that are old enough; the oldest are the first."""
        linger_ms = self._settings.linger_ms
        if linger_ms is None:
            return
        until_ms = self._cluster.clock.monotonic_ms() - linger_ms
        while self._open:
            target, batch = next(iter(self._open.items()))
            if batch.created_ms > until_ms:
                return
            self._close_batch(target)

    def _close_batch(self, target: TopicPartition) -> None:
        self._sender.enqueue(self._open.pop(target))
        self._sender.pump(wait=False)

    def _make_room(self, size_bytes: int) -> None:
        limit = self._settings.buffer_bytes_max
        if self._outcomes.held_bytes + size_bytes <= limit:
            return
        for target in list(self._open):
            self._close_batch(target)
        # Ends because every batch is delivered or given up within the delivery timeout.
        while self._outcomes.held_bytes and self._outcomes.held_bytes + size_bytes > limit:
            self._sender.pump(wait=True)
