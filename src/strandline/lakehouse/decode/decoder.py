"""Fetched or stored bytes of one partition as Arrow batches of a range of offsets.

This file knows which batches of the bytes a reader gets to see. It must not know where the bytes
came from. Aborted transactions come with the fetch, as the client's `AbortedFilter`; a
reader of everything passes none, and then no transaction costs a decision.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from strandline.client.aborted import AbortedFilter
from strandline.errors import CorruptRecords
from strandline.lakehouse.decode.assembly import Assembly
from strandline.lakehouse.reading.errors import EpochDiverged
from strandline.records.batch import HEADER_BYTES, BatchHeader, Buffer, check_crc, parse_header
from strandline.records.columns import BuilderLimits, new_builder
from strandline.records.record import read_records
from strandline.types import TopicPartition


class Decoder:
    """One pass over one partition, in the order of its offsets.

    `next_offset` is from where the next bytes are needed. Every batch of the range goes through
    `feed`; the rows that are left at the end come out of `finish`.
    """

    def __init__(self, partition: TopicPartition, limits: BuilderLimits) -> None:
        """`limits.leader_epoch_max` is the epoch in which the range was planned, if known."""
        self.next_offset = limits.start
        self._partition = partition
        self._limits = limits
        self._builder = new_builder(limits)
        self._assembly = Assembly(partition)

    @property
    def is_complete(self) -> bool:
        """Whether nothing of the range can follow any more."""
        return self.next_offset >= self._limits.end

    def feed(
        self, buffer: Buffer, aborted: AbortedFilter | None = None, position: int = 0
    ) -> Iterator[pa.RecordBatch]:
        """Take in the whole batches from `position` on; a last one that is cut off is left.

        Yields record batches as they fill up, and must be used up. Raises `CorruptRecords` with the
        partition and offset, and `EpochDiverged`.
        """
        builder = self._builder
        try:
            while True:
                position = builder.take_plain(
                    buffer, position, stops_at_transactions=aborted is not None
                )
                self._go_to(builder.next_offset)
                if builder.size_bytes >= self._limits.bytes_max:
                    yield self._assembly.record_batch(builder.columns())
                    continue
                header = self._left(buffer, position)
                if header is None:
                    return
                self._take(header, buffer, position, aborted)
                position += header.size_bytes
        except CorruptRecords as error:
            raise CorruptRecords(
                f"Partition {self._partition} cannot be read beyond offset {self.next_offset}: "
                f"{error}"
            ) from error

    def finish(self) -> Iterator[pa.RecordBatch]:
        """The rows that did not fill a batch."""
        if self._builder.rows:
            yield self._assembly.record_batch(self._builder.columns())

    def _left(self, buffer: Buffer, position: int) -> BatchHeader | None:
        """The header of the batch that the builder left to decide on; None at the end."""
        if len(buffer) - position < HEADER_BYTES:
            return None
        header = parse_header(buffer, position)
        if len(buffer) - position < header.size_bytes:
            return None
        if header.base_offset >= self._limits.end:
            self._go_to(header.base_offset)
            return None
        return header

    def _take(
        self, header: BatchHeader, buffer: Buffer, position: int, aborted: AbortedFilter | None
    ) -> None:
        limits = self._limits
        if header.next_offset > limits.start and header.leader_epoch > limits.leader_epoch_max:
            raise EpochDiverged(
                self._partition, header.base_offset, limits.leader_epoch_max, header.leader_epoch
            )
        if aborted is None or not (header.is_control or header.is_transactional):
            self._builder.take_batch(header, buffer, position)
        elif header.is_control:
            for record in read_records(buffer, position, check_crc=limits.checks_crc):
                aborted.pass_marker(header, record)
            self._builder.pass_batch(header)
        elif aborted.skips(header):
            if limits.checks_crc:  # a wrong end would take the table over records
                check_crc(buffer, position, header)
            self._builder.pass_batch(header)
        else:
            self._builder.take_batch(header, buffer, position)
        self._go_to(self._builder.next_offset)

    def _go_to(self, offset: int) -> None:
        self.next_offset = max(self.next_offset, offset)
