"""Appending to a log: as leader, as coordinator, as follower.

This file knows the order in which an append happens, which is its contract: judge everything that
can be refused, make room (epoch entry, segment), write once, and only then change what is in
memory. A refused or failed append therefore leaves the log as it was. It must not know acks,
replicas or requests.

`append_as_leader` is the hot path of the broker: one look at the header, one checksum, one write.
It uses header fields by position and keeps attributes in locals on purpose.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from strandline.errors import CorruptRecords, ErrorCode, ProtocolError, StorageError
from strandline.records.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    LOG_OVERHEAD,
    OFFSET_LENGTH_EPOCH,
    BatchHeader,
    Buffer,
    TimestampType,
    WritableBuffer,
    iterate_headers,
    verify_crc,
)
from strandline.records.own_batch import OwnBatch
from strandline.records.validation import validate_client_batch
from strandline.storage.end_marker import EndMarker, read_end_marker
from strandline.storage.files import NoRoom
from strandline.storage.log_flusher import LogFlusher
from strandline.storage.log_parts import LogParts
from strandline.storage.log_roller import LogRoller
from strandline.storage.open_transactions import CompletedTransaction
from strandline.storage.origin import AppendOrigin
from strandline.storage.producer_entry import CompletedBatch
from strandline.storage.producer_recall import recall_batches
from strandline.storage.segment import Segment
from strandline.storage.transaction_index import AbortedTransaction
from strandline.storage.transaction_verification import NO_GUARD, Guard
from strandline.types import NO_OFFSET, NO_TIMESTAMP, LeaderEpoch, Offset

_CLIENT = AppendOrigin.CLIENT


class UnexpectedOffset(CorruptRecords):
    """Records from a leader do not continue this log: it must be truncated or fetched again."""


class AppendResult(NamedTuple):
    """What an append did. For a duplicate: what the first append of that batch did."""

    base_offset: Offset
    last_offset: Offset
    log_append_time_ms: int
    """-1 on a topic with CreateTime, and for a follower."""
    is_duplicate: bool
    size_bytes: int


class LogAppender:
    """Appends to a log.

    Offsets of batches are contiguous for a leader and increase for a follower (I-02), leader epochs
    never decrease (I-03), and no producer's batch is there twice (I-30). Holds nothing of its own:
    the parts of the log change only after the write, and all of them.
    """

    __slots__ = (
        "_flusher",
        "_health",
        "_leader_epochs",
        "_location",
        "_offsets",
        "_producers",
        "_roller",
        "_segments",
        "_settings",
    )

    def __init__(self, parts: LogParts, roller: LogRoller, flusher: LogFlusher) -> None:
        self._location = parts.location
        self._settings = parts.settings
        self._health = parts.health
        self._offsets = parts.offsets
        self._segments = parts.segments
        self._leader_epochs = parts.leader_epochs
        self._producers = parts.producers
        self._roller = roller
        self._flusher = flusher

    def append_as_leader(
        self,
        records: WritableBuffer,
        *,
        leader_epoch: LeaderEpoch,
        now_ms: int,
        guard: Guard = NO_GUARD,
    ) -> AppendResult:
        """Append the one batch that a client sent; `records` is patched in place.

        Raises `ProtocolError` with Kafka's code when the batch is refused, and `StorageError` when
        it could not be written; the log is unchanged in both cases.
        """
        health = self._health
        if health.failure is not None or health.closed:
            health.check_usable()
        rules = self._settings.client_rules
        try:
            batch, header, append_time_ms, _ = validate_client_batch(records, rules, now_ms)
            known = self._check_producer(header, guard) if header[9] >= 0 else None
        except MemoryError as error:
            raise NoRoom(
                f"There is no memory to check a batch for {self._location.topic_partition}."
            ) from error
        if known is not None:
            return AppendResult(known.first_offset, known.last_offset, known.timestamp, True, 0)
        base_offset = self.append_validated(batch, header, leader_epoch, now_ms)
        return AppendResult(
            base_offset,
            Offset(base_offset + header[6]),
            append_time_ms,
            False,
            header[1] + LOG_OVERHEAD,
        )

    def append_validated(
        self,
        batch: WritableBuffer,
        header: BatchHeader,
        leader_epoch: LeaderEpoch,
        now_ms: int,
        marker: EndMarker | None = None,
    ) -> Offset:
        """Append a batch that is known to be valid and new; returns its base offset.

        `marker` is what it says if it is a control batch. Raises `StorageError`; the log is
        unchanged then, or has failed.
        """
        offsets = self._offsets
        base_offset = offsets.log_end_offset
        size = header[1] + LOG_OVERHEAD
        last_offset = base_offset + header[6]
        max_timestamp = header[8]
        segment = self._segments.active
        try:
            if (
                segment.size + size > self._settings.segment_bytes
                or max_timestamp > segment.roll_at_timestamp
                or now_ms > segment.roll_at_ms
                or segment.indexes_full
                or last_offset > segment.last_offset_max
                or base_offset < segment.base_offset
            ):
                segment = self._roller.roll_before_append(base_offset, Offset(last_offset), now_ms)
            if leader_epoch != self._leader_epochs.latest:
                self._flusher.begin_epoch(leader_epoch, base_offset)
            # The length between offset and epoch is written over with itself: one call for both.
            OFFSET_LENGTH_EPOCH.pack_into(batch, 0, base_offset, header[1], leader_epoch)
            try:
                segment.append_batch(batch, size, last_offset, max_timestamp)
            except StorageError:
                self._note_failed_write(segment)
                raise
            end = Offset(last_offset + 1)
            offsets.advance_end_to(end)
            if marker is not None:
                completed = self._producers.update_marker(header, marker, base_offset)
                self._finish(segment, completed)
            elif header[9] >= 0 and not header[5] & CONTROL_BIT:
                self._producers.update(header, base_offset, max_timestamp, now_ms)
            if end >= self._flusher.flush_at_offset:
                self._flusher.request_flush()
        except MemoryError as error:
            raise self._broken_off() from error
        return base_offset

    def append_own(
        self,
        own: OwnBatch,
        *,
        leader_epoch: LeaderEpoch,
        now_ms: int,
        transaction_version: int = 0,
        guard: Guard = NO_GUARD,
    ) -> Offset:
        """Append a batch that this process has put together; returns its base offset.

        As `append_as_coordinator`, which is asked where the topic wants another batch than what
        came, or none so large. Else there is nothing to be found in the bytes.
        """
        batch, header, said = own
        rules = self._settings.coordinator_rules
        keeps_codec = rules.codec is None or said or header.attributes & CODEC_MASK == rules.codec
        if (
            not keeps_codec
            or rules.timestamp_type is not TimestampType.CREATE_TIME
            or len(batch) > rules.max_message_bytes
            or len(batch) > rules.segment_bytes
        ):
            return self.append_as_coordinator(
                batch,
                leader_epoch=leader_epoch,
                now_ms=now_ms,
                transaction_version=transaction_version,
                guard=guard,
            ).base_offset
        health = self._health
        if health.failure is not None or health.closed:
            health.check_usable()
        marker: EndMarker | None = None
        if said is not None:
            marker = EndMarker(not said.commits, said.coordinator_epoch, header.max_timestamp)
        self._judge_own_batch(header, marker, transaction_version, guard)
        return self.append_validated(batch, header, leader_epoch, now_ms, marker)

    def append_as_coordinator(
        self,
        records: WritableBuffer,
        *,
        leader_epoch: LeaderEpoch,
        now_ms: int,
        transaction_version: int = 0,
        guard: Guard = NO_GUARD,
    ) -> AppendResult:
        """Append bytes that a broker wrote itself: coordinator state or an end marker.

        As `append_as_leader`, but sequence numbers are not checked and control batches are taken.
        """
        self._health.check_usable()
        validated = validate_client_batch(records, self._settings.coordinator_rules, now_ms)
        batch, header, append_time_ms, _ = validated
        if header.last_offset_delta < 0:
            raise ProtocolError(ErrorCode.INVALID_RECORD, "The batch ends before its first offset.")
        is_marker = header.producer_id >= 0 and header.is_control
        marker = read_end_marker(validated.buffer) if is_marker else None
        self._judge_own_batch(header, marker, transaction_version, guard)
        base_offset = self.append_validated(batch, header, leader_epoch, now_ms, marker)
        last_offset = Offset(base_offset + header.last_offset_delta)
        return AppendResult(base_offset, last_offset, append_time_ms, False, header.size_bytes)

    def append_as_follower(
        self, records: Buffer, now_ms: int, *, leader_epoch: LeaderEpoch | None = None
    ) -> AppendResult:
        """Append whole batches as the leader has them; a batch that is cut off at the end is left.

        All checksums and offsets are checked before anything is written. Batches with an epoch
        above `leader_epoch`, the one that this replica follows, and all behind them are left, too:
        they come from a leader that this replica does not know yet. `base_offset` of the result
        is -1 when nothing was appended. Raises `CorruptRecords`, its subclass `UnexpectedOffset`
        when the batches do not continue this log, and `StorageError`; only after the latter may
        some batches have been appended.
        """
        self._health.check_usable()
        batches = list(self._checked(records, leader_epoch))
        view = memoryview(records)
        with self._whole():
            for position, header in batches:
                batch = view[position : position + header.size_bytes]
                segment = self._roller.room_for(
                    header.size_bytes,
                    header.last_offset,
                    header.max_timestamp,
                    header.base_offset,
                    now_ms,
                )
                if header.leader_epoch >= 0 and header.leader_epoch != self._leader_epochs.latest:
                    self._flusher.begin_epoch(header.leader_epoch, header.base_offset)
                self._write(segment, batch, header)
                if header.producer_id >= 0:
                    self._finish(segment, self._producers.replay(header, batch, now_ms))
        if not batches:
            return AppendResult(NO_OFFSET, NO_OFFSET, NO_TIMESTAMP, False, 0)
        first, last = batches[0], batches[-1]
        return AppendResult(
            first[1].base_offset,
            last[1].last_offset,
            NO_TIMESTAMP,
            False,
            last[0] + last[1].size_bytes,
        )

    def _check_producer(self, header: BatchHeader, guard: Guard) -> CompletedBatch | None:
        """Judge a client's batch, by what the log knows of its producer if memory does not."""
        producers = self._producers
        if producers.is_next(header):
            return None
        partial = producers.partial_entry(header)
        if partial is not None:
            recall_batches(partial, self._segments, self._offsets.log_start_offset)
        return producers.check(header, _CLIENT, guard)

    def _judge_own_batch(
        self, header: BatchHeader, marker: EndMarker | None, transaction_version: int, guard: Guard
    ) -> None:
        """Check a coordinator's batch against the producers; `marker` is what it says if it ends a
        transaction."""
        if marker is not None:
            self._producers.check_marker(
                header, marker, AppendOrigin.COORDINATOR, transaction_version
            )
        elif header.producer_id >= 0 and not header.attributes & CONTROL_BIT:
            self._producers.check(header, AppendOrigin.COORDINATOR, guard)

    def _checked(
        self, records: Buffer, leader_epoch: LeaderEpoch | None
    ) -> Iterator[tuple[int, BatchHeader]]:
        """The whole batches that may be appended, each with its position."""
        partition = self._location.topic_partition
        expected: int = self._offsets.log_end_offset
        newest_epoch: int = self._leader_epochs.latest
        for position, header in iterate_headers(records):
            if leader_epoch is not None and header.leader_epoch > leader_epoch:
                return
            if header.base_offset < expected or header.last_offset_delta < 0:
                raise UnexpectedOffset(
                    f"A batch for {partition} has the offsets {header.base_offset} to "
                    f"{header.last_offset}, but the next one must start at {expected} or later."
                )
            if header.leader_epoch < newest_epoch:
                raise UnexpectedOffset(
                    f"The batch at {header.base_offset} of {partition} has leader epoch "
                    f"{header.leader_epoch}, but the log before it has {newest_epoch}."
                )
            if not verify_crc(records, position, header.size_bytes):
                raise CorruptRecords(
                    f"The batch at {header.base_offset} of {partition} does not match its checksum."
                )
            if header.producer_id >= 0 and header.is_control:
                # Read now what `replay` reads after the write: it must not fail then.
                read_end_marker(memoryview(records)[position : position + header.size_bytes])
            expected = header.next_offset
            newest_epoch = header.leader_epoch
            yield position, header

    def _write(self, segment: Segment, batch: Buffer, header: BatchHeader) -> None:
        try:
            segment.append_batch(batch, len(batch), header.last_offset, header.max_timestamp)
        except StorageError:
            self._note_failed_write(segment)
            raise
        end = header.next_offset
        self._offsets.advance_end_to(end)
        if end >= self._flusher.flush_at_offset:
            self._flusher.request_flush()

    def _finish(self, segment: Segment, completed: CompletedTransaction | None) -> None:
        """Index an aborted transaction before readers may get beyond its marker."""
        if completed is None:
            return
        if completed.is_abort:
            stable = self._producers.transactions.last_stable_offset_after(completed)
            try:
                self._segments.index_abort(segment, AbortedTransaction.of(completed, stable))
            except StorageError as error:
                # The marker is in the log and cannot be taken back; readers who go on would get
                # aborted records. Recovery rebuilds the index.
                self._health.fail(f"An abort could not be indexed: {error}", error)
                raise
        self._producers.transactions.complete(completed)

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """An append that happens altogether, or leaves a log that has failed."""
        try:
            yield
        except MemoryError as error:
            raise self._broken_off() from error

    def _broken_off(self) -> NoRoom:
        """Memory ran out between the write and what memory says of it: the log is to be loaded
        again, as after a crash."""
        partition = self._location.topic_partition
        shortage = NoRoom(f"There was no memory to finish an append to {partition}.")
        self._health.fail(str(shortage), shortage)
        return shortage

    def _note_failed_write(self, segment: Segment) -> None:
        if segment.log.failed:
            self._health.fail(
                f"A write to {segment.log.path}, or a sync of it, could not be taken back."
            )
