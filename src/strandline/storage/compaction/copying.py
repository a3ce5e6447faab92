"""Copying a group of segments without what compaction drops.

This file knows what becomes of each kind of batch. It must not know files other than through the
reader, nor where the copy goes.

Batches that are neither compressed nor transactional are the filter's own business. A compressed
one is opened, filtered and, if it lost something, packed again with the codec it had.

Two kinds of batches stay as an empty header when all their records are gone: the last one of a live
producer (KAFKA-5490), because the producer's next sequence number is found by it when its state is
rebuilt; and the last one of a group, because the end of the new segment then says which old ones it
stands for. Recovery of a swap that was cut short goes by that. (Kafka keeps the last batch of a
round only: KAFKA-17076.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from strandline.records.batch import BatchHeader, Buffer, parse_header
from strandline.records.builder import join_batch, rebuild_batch
from strandline.records.compacting import BatchFilter, IndexEntry, Stop
from strandline.records.compression import compress
from strandline.records.record import payload_of, read_records
from strandline.storage.compaction.plan import CleaningPlan, SegmentToClean
from strandline.storage.compaction.segment_reader import SegmentReader, check_batch
from strandline.storage.compaction.transactions import CleanedTransactions
from strandline.storage.transaction_index import AbortedTransaction

NOWHERE: Final = -1


class Copied(NamedTuple):
    """A part of the new segment, and what its indexes must say of it."""

    batches: bytes
    entries: list[IndexEntry]


class GroupCopier:
    """Copies the groups of one round in the order of the log."""

    def __init__(
        self,
        plan: CleaningPlan,
        reader: SegmentReader,
        batch_filter: BatchFilter,
        transactions: CleanedTransactions,
    ) -> None:
        self._plan = plan
        self._reader = reader
        self._filter = batch_filter
        self._transactions = transactions
        self._epochs_without_records = {
            producer.producer_id: producer.epoch
            for producer in plan.producers
            if producer.last_offset < 0
        }
        self._output_bytes = max(1, plan.settings.io_buffer_bytes // 2)

    def copy(self, group: Sequence[SegmentToClean]) -> Iterator[Copied]:
        """What stays of the group, in parts. Raises `CorruptRecords`, `DamagedSegment`."""
        self._filter.start_segment(group[0].base_offset)
        last_filled = max((i for i, s in enumerate(group) if s.size_bytes), default=NOWHERE)
        for index, segment in enumerate(group):
            yield from self._copy_segment(segment, holds_last_batch=index == last_filled)
        if self._filter.waiting_bytes:
            yield Copied(*self._filter.take())

    def take_aborted(self) -> list[AbortedTransaction]:
        """The aborted transactions for the transaction index of the segment that was copied."""
        retained = self._transactions.retained
        self._transactions.retained = []
        return retained

    def _copy_segment(self, segment: SegmentToClean, *, holds_last_batch: bool) -> Iterator[Copied]:
        with self._reader.open(segment) as cursor:
            while (chunk := cursor.read()) is not None:
                last_end = cursor.chunk_end if holds_last_batch else NOWHERE
                cursor.advance(self._copy_chunk(chunk, last_end))
                if self._filter.waiting_bytes >= self._output_bytes:
                    yield Copied(*self._filter.take())

    def _copy_chunk(self, chunk: bytes, last_end: int) -> int:
        position, stop = self._filter.filter(chunk, 0, len(chunk), last_end)
        while stop is Stop.SPECIAL:
            header = parse_header(chunk, position)
            end = position + header.size_bytes
            if end > len(chunk):
                break
            check_batch(header, chunk, position)
            self._copy_special(header, chunk, position, is_last=end == last_end)
            position, stop = self._filter.filter(chunk, end, len(chunk), last_end)
        return position

    # -- Compressed and transactional batches, and markers -----------------------------------

    def _copy_special(
        self, header: BatchHeader, chunk: bytes, position: int, *, is_last: bool
    ) -> None:
        batch = memoryview(chunk)[position : position + header.size_bytes]
        kept: Buffer | None = None
        if header.is_control:
            kept = self._what_stays_of_marker(header, batch)
        elif self._transactions.is_aborted(header):
            self._filter.count_gone(header)
        else:
            kept = self._what_stays_of_data(header, chunk, position)
        if kept is not None:
            self._filter.emit(kept)
        elif is_last or self._must_stay_empty(header):
            self._filter.emit(rebuild_batch(header, ()))

    def _what_stays_of_data(
        self, header: BatchHeader, chunk: bytes, position: int
    ) -> Buffer | None:
        survivors = self._filter.survivors(header, payload_of(header, chunk, position))
        if survivors is None:
            return memoryview(chunk)[position : position + header.size_bytes]
        kept, payload = survivors
        if kept.record_count == 0:
            return None
        return join_batch(kept, compress(header.codec, payload))

    def _what_stays_of_marker(self, header: BatchHeader, batch: memoryview) -> Buffer | None:
        is_over = self._transactions.is_over(header, batch)
        horizon_ms = header.delete_horizon_ms
        if header.record_count == 0:
            return None
        if not is_over or (horizon_ms is not None and self._plan.now_ms < horizon_ms):
            self._filter.count_kept(header)
            return batch
        if horizon_ms is not None:
            self._filter.count_gone(header)
            return None
        self._filter.count_kept(header)
        horizon_ms = self._plan.now_ms + self._plan.delete_retention_ms
        return rebuild_batch(header, list(read_records(batch)), delete_horizon_ms=horizon_ms)

    def _must_stay_empty(self, header: BatchHeader) -> bool:
        """Whether this is the last that the log has of a live producer."""
        if header.is_control:
            return self._epochs_without_records.get(header.producer_id) == header.producer_epoch
        return self._filter.is_last_of_producer(header)
