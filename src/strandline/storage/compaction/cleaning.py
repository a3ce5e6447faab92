"""One round of compaction, carried out: read the keys, copy what stays, group by group.

This file knows the order of a round and when it is void. It must not know the log: it works on
files by their names, in any thread or process, with a `Files` of its own, and never touches a file
that the log uses except to read it. What a record's fate is, is `records.compacting`; of a
transaction's, `transactions`.

Memory: the key map, a buffer to read, one to write, and the largest batch, unpacked.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Final

from strandline.errors import CorruptRecords, StrandlineError
from strandline.records.batch import BatchHeader, parse_header
from strandline.records.compacting import FilterRules, Stop, kernel
from strandline.records.record import payload_of
from strandline.storage.batch_scan import DamagedSegment
from strandline.storage.compaction.copying import GroupCopier
from strandline.storage.compaction.grouping import SegmentSizes, group_segments
from strandline.storage.compaction.plan import (
    CleaningPlan,
    CleaningResult,
    CleaningStats,
    SegmentToClean,
)
from strandline.storage.compaction.segment_reader import (
    CleaningAborted,
    Pace,
    SegmentReader,
    check_batch,
)
from strandline.storage.compaction.segment_writer import OutgrownSegment, SegmentWriter
from strandline.storage.compaction.transactions import CleanedTransactions
from strandline.storage.files import Files, MissingFile
from strandline.storage.index_file import DamagedIndex
from strandline.storage.segment_names import (
    LOG,
    OFFSET_INDEX,
    TIME_INDEX,
    TRANSACTION_INDEX,
    segment_path,
)
from strandline.storage.transaction_index import AbortedTransaction, TransactionIndex
from strandline.types import Offset

__all__ = ["UNHURRIED", "CleaningAborted", "Pace", "Round", "Uncleanable", "carry_out"]


class Uncleanable(StrandlineError):
    """The records of a log cannot be compacted as they are: it is left alone from now on."""


class _Unhurried:
    def spend(self, byte_count: int) -> None:
        pass


UNHURRIED: Final[Pace] = _Unhurried()


def carry_out(
    plan: CleaningPlan, files: Files, pace: Pace = UNHURRIED
) -> Generator[CleaningResult, None, None]:
    """Do what the plan says; yields each new segment when it is whole and durable.

    The results belong to `Log.finish_cleaning`, in their order. `files` must be the caller's own
    where the log is used in another thread. Closing the iterator ends the round. Raises, when what
    it was writing is removed:

    - `CleaningAborted`: `pace` said so, or a segment was dropped meanwhile. Try again later.
    - `Uncleanable`: the data is damaged, or does not fit into segments.
    - `DiskFull`: nothing is wrong but that. Try again later.
    - `StorageError`: the disk fails.
    """
    with as_cleaning_errors(plan):
        yield from Round(plan, files, pace).run()


@contextmanager
def as_cleaning_errors(plan: CleaningPlan) -> Iterator[None]:
    """Say what an error means for the round."""
    try:
        yield
    except MissingFile as error:
        raise CleaningAborted(
            f"{plan.topic_partition} changed while it was compacted: {error}"
        ) from error
    except (CorruptRecords, DamagedSegment, DamagedIndex, OutgrownSegment) as error:
        raise Uncleanable(f"{plan.topic_partition} cannot be compacted: {error}") from error


class Round:
    """The state of one round; `run` once."""

    def __init__(
        self, plan: CleaningPlan, files: Files, pace: Pace, *, notes_gone: bool = False
    ) -> None:
        self._plan = plan
        self._files = files
        self._pace = pace
        self._reader = SegmentReader(plan, files, pace)
        key_map, batch_filter = kernel()
        settings = plan.settings
        self.keys = key_map(settings.dedupe_buffer_bytes, settings.load_factor, plan.secret)
        rules = FilterRules(
            now_ms=plan.now_ms,
            horizon_ms=plan.now_ms + plan.delete_retention_ms,
            producer_ids=tuple(producer.producer_id for producer in plan.producers),
            last_offsets=tuple(producer.last_offset for producer in plan.producers),
            index_interval_bytes=plan.index_interval_bytes,
            notes_gone=notes_gone,
        )
        self.filter = batch_filter(self.keys, rules)
        self._map_is_full = False
        self._bytes_mapped = 0
        self._bytes_read = 0
        self._bytes_written = 0

    def run(self) -> Iterator[CleaningResult]:
        """See `carry_out`; with the errors as they come."""
        self._sync_sources()
        groups = self.prepare()
        copier = self.copier()
        for group in groups:
            yield self._rewrite(copier, group, is_last=group is groups[-1])

    def prepare(self) -> list[list[SegmentToClean]]:
        """Fill the map; the groups of segments that the round copies."""
        aborted = self._aborted(self._plan.first_dirty)
        self._fill_map(CleanedTransactions(aborted))
        below = [s for s in self._plan.segments if s.base_offset < self.end_offset]
        groups = group_segments(
            [self._sizes(segment) for segment in below],
            segment_bytes_max=self._plan.segment_bytes_max,
            index_bytes_max=self._plan.index_bytes_max,
            upper_bound=self._plan.upper_bound,
        )
        return [[SegmentToClean(each.base_offset, each.log) for each in group] for group in groups]

    def copier(self) -> GroupCopier:
        """What copies one group after the other."""
        transactions = CleanedTransactions(self._aborted(Offset(0)))
        return GroupCopier(self._plan, self._reader, self.filter, transactions)

    @property
    def end_offset(self) -> Offset:
        """The first offset that the map does not cover."""
        return Offset(self.keys.latest_offset + 1)

    @property
    def stats(self) -> CleaningStats:
        return CleaningStats(
            bytes_mapped=self._bytes_mapped,
            bytes_read=self._bytes_read,
            bytes_written=self._bytes_written,
            records_mapped=self.keys.records_read,
            keys=self.keys.entries,
            map_is_full=self._map_is_full,
            records_read=self.filter.records_read,
            records_kept=self.filter.records_kept,
        )

    def _sync_sources(self) -> None:
        """Make every segment durable before the first of them is replaced.

        Groups change places one after the other. A power failure in between must not take the
        newer value of a key from a segment that was never synced, when the older one is gone.
        """
        for base_offset in self._plan.unsynced:
            file = self._files.open(segment_path(self._plan.directory, base_offset, LOG))
            try:
                file.sync()
            finally:
                file.close()

    # -- The map -----------------------------------------------------------------------------

    def _fill_map(self, transactions: CleanedTransactions) -> None:
        plan = self._plan
        ends = [segment.base_offset for segment in plan.segments[1:]] + [plan.upper_bound]
        for segment, end in zip(plan.segments, ends, strict=True):
            if end <= plan.first_dirty:
                continue
            with self._reader.open(segment) as cursor:
                while (chunk := cursor.read()) is not None:
                    used = self._map_chunk(chunk, transactions)
                    if self._map_is_full:
                        return
                    cursor.advance(used)
            # Also past offsets that an earlier round or an aborted transaction left empty.
            self.keys.advance_to(end - 1)

    def _map_chunk(self, chunk: bytes, transactions: CleanedTransactions) -> int:
        """Take the keys of the whole batches in the chunk; how many bytes they have."""
        first_dirty = self._plan.first_dirty
        position, stop = self.keys.add_batches(chunk, 0, len(chunk), first_dirty)
        while stop is Stop.SPECIAL:
            header = parse_header(chunk, position)
            if header.size_bytes > len(chunk) - position:
                break
            if self._map_special(header, chunk, position, transactions):
                stop = Stop.FULL
                break
            position += header.size_bytes
            position, stop = self.keys.add_batches(chunk, position, len(chunk), first_dirty)
        self._bytes_mapped += position
        self._map_is_full = stop is Stop.FULL
        return position

    def _map_special(
        self, header: BatchHeader, chunk: bytes, position: int, transactions: CleanedTransactions
    ) -> bool:
        """Take a batch that is compressed or belongs to a transaction; whether the map is full."""
        first_dirty = self._plan.first_dirty
        check_batch(header, chunk, position)
        if header.is_control:
            transactions.is_over(header, chunk[position : position + header.size_bytes])
        elif not transactions.is_aborted(header) and header.last_offset >= first_dirty:
            payload = payload_of(header, chunk, position)
            if self.keys.add_records(header, payload, first_dirty):
                return True
        if header.last_offset >= first_dirty:
            self.keys.advance_to(header.last_offset)
        return False

    # -- The copy ----------------------------------------------------------------------------

    def _rewrite(
        self, copier: GroupCopier, group: list[SegmentToClean], *, is_last: bool
    ) -> CleaningResult:
        plan = self._plan
        base_offset = group[0].base_offset
        writer = SegmentWriter(self._files, plan.directory, base_offset, plan.index_bytes_max)
        try:
            writer.start()
            for written in copier.copy(group):
                writer.append(*written)
                self._bytes_written += len(written[0])
                self._pace.spend(len(written[0]))
            writer.append_aborted(copier.take_aborted())
            writer.finish(self.filter.max_timestamp, self.filter.max_timestamp_offset)
        except BaseException:
            writer.discard()
            raise
        self._bytes_read += sum(segment.size_bytes for segment in group)
        return CleaningResult(
            topic_partition=plan.topic_partition,
            directory=plan.directory,
            truncations=plan.truncations,
            base_offset=base_offset,
            replaced=tuple(segment.base_offset for segment in group),
            size_bytes=writer.size_bytes,
            stats=self.stats,
            cleaned_to=self.end_offset if is_last else None,
        )

    # -- Facts about segments ----------------------------------------------------------------

    def _aborted(self, start: Offset) -> list[AbortedTransaction]:
        """The aborted transactions whose markers come in the segment of `start` or later."""
        plan = self._plan
        ends = [segment.base_offset for segment in plan.segments[1:]] + [plan.upper_bound]
        found: list[AbortedTransaction] = []
        for segment, end in zip(plan.segments, ends, strict=True):
            if end > start:
                path = segment_path(plan.directory, segment.base_offset, TRANSACTION_INDEX)
                index = TransactionIndex(self._files, path)
                try:
                    found += index.entries()
                finally:
                    index.close()
        return [*found, *plan.aborted_behind]

    def _sizes(self, segment: SegmentToClean) -> SegmentSizes:
        return SegmentSizes(
            segment.base_offset,
            segment.size_bytes,
            self._size_of(segment, OFFSET_INDEX),
            self._size_of(segment, TIME_INDEX),
        )

    def _size_of(self, segment: SegmentToClean, kind: str) -> int:
        path = segment_path(self._plan.directory, segment.base_offset, kind)
        # An index that is gone is made anew when it is needed.
        return self._files.size_of(path) if self._files.exists(path) else 0
