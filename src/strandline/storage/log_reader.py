"""Finding things in a log: batches for an offset, offsets for a time, aborted transactions.

This file knows how a question is answered from segments. It must not know who may see what: the
caller gives the offset up to which it may read (high watermark, last stable offset or log end).

A read gives no bytes but a range of a file, which a driver sends with sendfile. The range always
consists of whole batches. The batch that holds the wanted offset comes whole, so it may begin below
that offset; clients skip what they did not ask for.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from strandline.errors import CorruptRecords, ErrorCode, ProtocolError, StorageError
from strandline.records.batch import BatchHeader, check_crc
from strandline.records.record import Record, iterate_payload, payload_of
from strandline.records.time_lookup import first_at_least
from strandline.storage.batch_scan import damaged, header_at, headers_between
from strandline.storage.bookmarks import READ_BYTES_MAX, Bookmark, Bookmarks, Cut, Run
from strandline.storage.files import File
from strandline.storage.log_parts import LogParts
from strandline.storage.segment import Segment
from strandline.storage.transaction_index import AbortedTransaction
from strandline.types import LeaderEpoch, Offset


class LogSlice(NamedTuple):
    """Whole batches in `[position, position + length)` of a file.

    The file may be cut or removed later; `File.fileno` says how a driver keeps its hold of it.
    """

    file: File
    position: int
    length: int
    segment_base_offset: Offset
    upper_offset: Offset
    """Greater than every offset in the slice: the bound for `aborted_transactions`."""

    def read(self) -> bytes:
        """The bytes of the range, all of them or `StorageError`."""
        data = self.file.read_at(self.position, self.length)
        if len(data) != self.length:
            raise StorageError(f"{self.file.path} ends before the range that was to be sent.")
        return data


class TimestampedOffset(NamedTuple):
    """A record found by time."""

    timestamp: int
    offset: Offset
    leader_epoch: LeaderEpoch


def _slice(segment: Segment, position: int, end: int, upper: int) -> LogSlice | None:
    if end <= position:
        return None
    base_offset = Offset(segment.base_offset)
    return LogSlice(segment.log, position, end - position, base_offset, Offset(upper))


class LogReader:
    """Finds things in a log."""

    __slots__ = ("_bookmarks", "_leader_epochs", "_location", "_offsets", "_segments")

    def __init__(self, parts: LogParts) -> None:
        self._location = parts.location
        self._offsets = parts.offsets
        self._segments = parts.segments
        self._leader_epochs = parts.leader_epochs
        self._bookmarks = Bookmarks()

    def read(
        self, offset: Offset, max_bytes: int, *, end_offset: Offset, at_least_one_batch: bool
    ) -> LogSlice | None:
        """Batches from `offset` on that lie wholly below `end_offset`; None when there are none.

        At most `max_bytes`, except that with `at_least_one_batch` the first batch comes whatever
        its size. All of it is from one segment. Raises `ProtocolError` OFFSET_OUT_OF_RANGE when
        `offset` is below the log start or beyond the log end.
        """
        offsets = self._offsets
        if not offsets.log_start_offset <= offset <= offsets.log_end_offset:
            raise ProtocolError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Offset {offset} of {self._location.topic_partition} is not in the log, which has "
                f"the offsets {offsets.log_start_offset} to {offsets.log_end_offset}.",
            )
        active = self._segments.active
        if offset >= active.tail.start_offset:
            found = active.tail.find(
                offset, max_bytes, end_offset, active.size, at_least_one=at_least_one_batch
            )
            if found is None:
                return None
            return LogSlice(
                active.log, found[0], found[1], Offset(active.base_offset), Offset(found[2])
            )
        return self._read_from_disk(offset, max_bytes, end_offset, at_least_one_batch)

    def _read_from_disk(
        self, offset: Offset, max_bytes: int, end_offset: Offset, at_least_one_batch: bool
    ) -> LogSlice | None:
        segments = self._segments.all
        for index in range(self._segments.index_of(offset), len(segments)):
            segment = segments[index]
            if segment.base_offset >= end_offset:
                return None
            following = self._base_offset_after(index)
            mark = self._bookmarks.find(offset, segment, self._offsets.truncations)
            if mark is None:
                found = segment.find(offset)
                if found is None:
                    continue
                position = found[0]
            else:
                position = mark.position
                if max_bytes <= READ_BYTES_MAX and not mark.is_dense:
                    upper = min(end_offset, following)
                    ahead = self._read_ahead(mark, max_bytes, end_offset, upper, at_least_one_batch)
                    if ahead is not None:
                        return _slice(segment, position, ahead.end, ahead.upper_offset)
            end, upper = segment.size, following
            if end_offset < following:
                limit = segment.find(end_offset)
                end, upper = (limit[0] if limit else segment.size), end_offset
            if end <= position:
                return None
            if end - position > max_bytes:
                end, upper = segment.boundary_below(position, position + max_bytes)
                if end == position:
                    if not at_least_one_batch:
                        return None
                    header = header_at(segment.log, position)
                    end, upper = position + header.size_bytes, header.next_offset
            truncations = self._offsets.truncations
            # Only a reader that came by a bookmark has shown that it goes on, and how it reads.
            is_dense = mark is not None and max_bytes <= READ_BYTES_MAX
            self._bookmarks.put(upper, Bookmark(segment, end, truncations, is_dense=is_dense))
            return _slice(segment, position, end, upper)
        return None

    def _read_ahead(
        self, mark: Bookmark, max_bytes: int, end_offset: int, upper: int, at_least_one: bool
    ) -> Cut | None:
        """What follows a bookmark, by the headers that were read ahead or are now; None if these
        are too few for the reader."""
        segment, position, truncations, run, first, _ = mark
        cut = None
        if run is not None:
            cut = run.cut(
                first, max_bytes, end_offset, upper, segment.size, at_least_one=at_least_one
            )
        if cut is None:
            run, first = Run(segment, position), 0
            cut = run.cut(
                first, max_bytes, end_offset, upper, segment.size, at_least_one=at_least_one
            )
        if run is not None and cut is not None and cut.stop > first:
            following = Bookmark(segment, cut.end, truncations, run, cut.stop)
            self._bookmarks.put(run.lasts[cut.stop - 1] + 1, following)
        return cut

    def forget_positions(self) -> None:
        """Segments were replaced: batches lie elsewhere now."""
        self._bookmarks.clear()

    def position_of(self, offset: Offset) -> tuple[Offset, int]:
        """Base offset of the segment and position in it where `offset` is or will be."""
        index = self._segments.index_of(offset)
        segment = self._segments.all[index]
        if offset >= self._offsets.log_end_offset:
            return Offset(self._segments.active.base_offset), self._segments.active.size
        found = segment.find(offset)
        return Offset(segment.base_offset), segment.size if found is None else found[0]

    def offset_for_timestamp(self, timestamp: int) -> TimestampedOffset | None:
        """The first record that is at least as new as `timestamp`; None when all are older."""
        for segment in self._segments.all:
            if segment.largest_timestamp().timestamp >= timestamp:
                found = self._first_at_least(segment, timestamp)
                if found is not None:
                    return found
        return None

    def max_timestamp_offset(self) -> TimestampedOffset | None:
        """The first record with the largest timestamp in the log; None when there is none."""
        # The newest segment first, of several the oldest: its record is nearly always the one.
        segments = sorted(
            self._segments.all, key=lambda each: each.largest_timestamp().timestamp, reverse=True
        )
        best: TimestampedOffset | None = None
        for segment in segments:
            least = 0
            if best is not None:
                # Only in front of it an equal timestamp is better.
                least = best.timestamp + (segment.base_offset > best.offset)
            if segment.largest_timestamp().timestamp < least:
                break
            best = self._newest_in(segment, least) or best
        return best

    def _newest_in(self, segment: Segment, least: int) -> TimestampedOffset | None:
        """The first record with the largest timestamp that is not below the log start; None if that
        is smaller than `least`."""
        found = self._first_at_least(segment, segment.largest_timestamp().timestamp)
        if found is not None:
            return found
        # The record with it was deleted, or compacted away, and its batch stays for its producer's
        # sake: of those that are left another one is the newest.
        log_start, newest = self._offsets.log_start_offset, least - 1
        start = segment.floor_position(max(log_start, segment.base_offset)).position
        for position, header in headers_between(segment.log, start, segment.size):
            if header.max_timestamp <= newest or header.last_offset < log_start:
                continue
            if header.base_offset >= log_start and header.record_count:
                newest = header.max_timestamp
                continue
            for record in _records_at(segment, position, header):
                if record.offset >= log_start:
                    newest = max(newest, record.timestamp)
        return None if newest < least else self._first_at_least(segment, newest)

    def end_offset_for_epoch(self, epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset]:
        """The largest epoch up to `epoch` that this log has, and where it ends (KIP-101)."""
        return self._leader_epochs.end_offset_for(epoch, self._offsets.log_end_offset)

    def aborted_transactions(
        self, offset: Offset, upper_offset: Offset
    ) -> list[AbortedTransaction]:
        """The aborted transactions that touch `[offset, upper_offset)`, for `read_committed`."""
        found: list[AbortedTransaction] = []
        # An abort may be written down far behind the records that it is about.
        for segment in self._segments.with_aborts_since(offset):
            search = segment.transaction_index.collect_aborted(offset, upper_offset)
            found.extend(search.transactions)
            if search.complete:
                break
        return found

    def _base_offset_after(self, index: int) -> int:
        """Where the segment at `index` ends: the base of the next one, or the log's end."""
        if index + 1 < len(self._segments):
            return self._segments.base_offsets[index + 1]
        return self._offsets.log_end_offset

    def _first_at_least(self, segment: Segment, timestamp: int) -> TimestampedOffset | None:
        """The first record in the segment, not below the log start, with that timestamp or more."""
        # An entry at the timestamp itself would be too far: such records may stand in front of it.
        low = segment.with_indexes(lambda: segment.time_index.lookup(timestamp - 1)).offset
        log_start = self._offsets.log_start_offset
        start = segment.floor_position(max(low, log_start)).position
        for position, header in headers_between(segment.log, start, segment.size):
            if header.max_timestamp < timestamp or header.last_offset < log_start:
                continue
            with _damage_at(segment, position):
                payload = _payload_at(segment, position, header)
                found = first_at_least(header, payload, timestamp, log_start)
            if found is not None:
                offset, its_timestamp = found
                return TimestampedOffset(its_timestamp, Offset(offset), header.leader_epoch)
        return None


def _records_at(segment: Segment, position: int, header: BatchHeader) -> Iterator[Record]:
    """The records of the batch there. Raises `DamagedSegment` where they do not parse."""
    with _damage_at(segment, position):
        yield from iterate_payload(header, _payload_at(segment, position, header))


def _payload_at(segment: Segment, position: int, header: BatchHeader) -> bytes:
    """What stands behind the header there, decompressed. Raises `CorruptRecords`."""
    data = segment.log.read_at(position, header.size_bytes)
    check_crc(data, 0, header)
    return payload_of(header, data)


@contextmanager
def _damage_at(segment: Segment, position: int) -> Iterator[None]:
    """Say of records that do not parse where they lie. Raises `DamagedSegment`."""
    try:
        yield
    except CorruptRecords as error:
        raise damaged(segment.log, position, str(error)) from error
