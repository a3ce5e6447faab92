"""What becomes of records that were given to a producer. Values and their bookkeeping only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from strandline.errors import ErrorCode, ProtocolError
from strandline.records.record import Record
from strandline.types import (
    NO_OFFSET,
    Offset,
    ProducerEpoch,
    ProducerId,
    TopicId,
    TopicPartition,
)


class Delivery:
    """One record on its way. Asking `result` before it `is_done` is an error: `flush` first."""

    __slots__ = ("batch", "index")

    def __init__(self, batch: Batch, index: int) -> None:
        self.batch = batch
        self.index = index

    @property
    def topic_partition(self) -> TopicPartition:
        """Where the record goes."""
        return self.batch.topic_partition

    @property
    def is_done(self) -> bool:
        """Whether the outcome is known."""
        return self.batch.is_done

    def result(self) -> Offset:
        """The record's offset. Raises the `ProtocolError` with which it failed.

        `NO_OFFSET` with acks 0, or for a repetition whose offset the broker no longer remembers.
        """
        batch = self.batch
        if batch.error is not None:
            raise batch.error
        if not batch.is_done:
            raise ProtocolError(
                ErrorCode.INVALID_REQUEST, "The record is still on its way; flush the producer."
            )
        if batch.base_offset == NO_OFFSET:
            return NO_OFFSET
        return Offset(batch.base_offset + self.index)


@dataclass(frozen=True, slots=True)
class Identity:
    """What makes a batch recognisable when it is sent twice (KIP-98)."""

    producer_id: ProducerId
    epoch: ProducerEpoch
    base_sequence: int
    is_transactional: bool = False


class Batch:
    """Records of one partition that travel together.

    `identity` and `encoded` are set together when it is sent first and stay: a repetition must be
    the same bytes. `maybe_written` says that an attempt may have succeeded without our knowing.
    `topic_id` is that of the topic it was first sent to, which may be deleted and made anew;
    `was_next` says whether nothing before it was in doubt when it was sent last, and `doubts`
    how often its number was refused all the same. `failed_ms` is when an attempt failed first.
    """

    __slots__ = (
        "base_offset",
        "created_ms",
        "deliveries",
        "doubts",
        "encoded",
        "error",
        "failed_ms",
        "identity",
        "is_done",
        "maybe_written",
        "records",
        "renewals",
        "size_bytes",
        "topic_id",
        "topic_partition",
        "was_next",
    )

    def __init__(self, topic_partition: TopicPartition, created_ms: int) -> None:
        self.topic_partition = topic_partition
        self.topic_id: TopicId | None = None
        self.was_next = False
        self.created_ms = created_ms
        self.records: list[Record] = []
        self.deliveries: list[Delivery] = []
        self.size_bytes = 0
        self.encoded: bytes | None = None
        self.identity: Identity | None = None
        self.maybe_written = False
        self.renewals = 0
        self.doubts = 0
        self.failed_ms: int | None = None
        self.is_done = False
        self.base_offset: Offset = NO_OFFSET
        self.error: ProtocolError | None = None

    def add(self, record: Record, size_bytes: int) -> Delivery:
        """Take a record in; `size_bytes` is what it adds at most."""
        delivery = Delivery(self, len(self.records))
        self.records.append(record)
        self.deliveries.append(delivery)
        self.size_bytes += size_bytes
        return delivery

    def finish(self, base_offset: Offset, error: ProtocolError | None) -> None:
        """Set the outcome and let the contents go."""
        self.base_offset = base_offset
        self.error = error
        self.is_done = True
        self.records.clear()
        self.deliveries.clear()
        self.encoded = None

    def split(self) -> tuple[Self, Self]:
        """Two halves in its place, for a batch that is too large. Deliveries move with them."""
        middle = len(self.records) // 2
        halves = []
        for start, end in ((0, middle), (middle, len(self.records))):
            half = type(self)(self.topic_partition, self.created_ms)
            half.records = self.records[start:end]
            half.deliveries = self.deliveries[start:end]
            for index, delivery in enumerate(half.deliveries):
                delivery.batch, delivery.index = half, index
            half.size_bytes = self.size_bytes * (end - start) // len(self.records)
            halves.append(half)
        halves[1].size_bytes = self.size_bytes - halves[0].size_bytes
        return halves[0], halves[1]


@dataclass(frozen=True, slots=True)
class FailedRecords:
    """Records of one partition that, for one reason, were not, or not certainly, written."""

    topic_partition: TopicPartition
    count: int
    error: ProtocolError
    maybe_written: bool
    """Whether they may be in the log all the same."""


@dataclass(frozen=True, slots=True)
class FlushResult:
    """Outcomes since the last flush."""

    delivered: int
    failed: tuple[FailedRecords, ...]

    def raise_failure(self) -> None:
        """Raise the first failure, if there is one."""
        if self.failed:
            raise self.failed[0].error


class Outcomes:
    """What became of records, counted until it is taken."""

    __slots__ = ("_delivered", "_failed", "held_bytes")

    def __init__(self) -> None:
        self.held_bytes = 0
        """Of everything without an outcome."""
        self._delivered = 0
        self._failed: dict[tuple[TopicPartition, ErrorCode], FailedRecords] = {}

    def take(self) -> FlushResult:
        """What became of records since this was asked last."""
        result = FlushResult(self._delivered, tuple(self._failed.values()))
        self._delivered, self._failed = 0, {}
        return result

    def add(self, batch: Batch, error: ProtocolError | None) -> None:
        """A batch has its outcome."""
        partition, count = batch.topic_partition, len(batch.records)
        self.held_bytes -= batch.size_bytes
        if error is None:
            self._delivered += count
            return
        before = self._failed.get((partition, error.code))
        self._failed[partition, error.code] = FailedRecords(
            partition,
            count + (before.count if before else 0),
            error,
            batch.maybe_written or (before is not None and before.maybe_written),
        )
