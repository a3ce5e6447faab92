"""Loading a partition's log from disk, and recovering it when the last shutdown was not clean.

This file knows what may be trusted after which kind of shutdown, and in which order files are
repaired. It must not know why the process ended or what happens to the log afterwards. What lies in
the directory is the affair of `segment_opening`.

After a clean shutdown everything is trusted, and nothing but the end of the last segment is read.
Otherwise the segments below the recovery point are trusted, because they were synced, and of the
others every batch is read: indexes, producers and leader epochs are made anew from the batches, and
from the first batch on that is cut off, does not match its checksum or has a wrong offset,
everything goes, later segments included. What is kept is thus always a prefix of what was written.

Messages of the formats 0 and 1 are no damage: `OldFormat` is raised, and nothing is cut.

Later segments are removed, durably, before the bad one is cut: a crash in between finds the bad
batch again and comes to the same result (I-45).
"""

from __future__ import annotations

from collections.abc import Iterator

from strandline.errors import CorruptRecords
from strandline.records.batch import BatchHeader
from strandline.storage.abort_recovery import find_aborts
from strandline.storage.batch_scan import (
    SCAN_CHUNK_BYTES,
    DamagedSegment,
    OldFormat,
    headers_between,
    refuse_old_format,
)
from strandline.storage.index_file import DamagedIndex
from strandline.storage.leader_epochs import EpochEntry
from strandline.storage.log_parts import LogParts
from strandline.storage.log_roller import LogRoller, is_beyond_wide_gap
from strandline.storage.log_to_load import LogToLoad
from strandline.storage.open_transactions import CompletedTransaction
from strandline.storage.recovery_report import Cut, RecoveryReport
from strandline.storage.replay import replay_producers
from strandline.storage.segment import Segment
from strandline.storage.segment_opening import SegmentOpening
from strandline.storage.transaction_index import AbortedTransaction
from strandline.storage.verify.indexes import checked_aborts
from strandline.storage.verify.order import BatchOrder
from strandline.storage.verify.reading import checked_batches, is_reserved, is_unwritten
from strandline.types import Offset


class Recovery:
    """Loads one log: fills its parts. `run` once."""

    def __init__(self, log: LogParts, roller: LogRoller, found: LogToLoad, now_ms: int) -> None:
        self._log = log
        self._roller = roller
        self._files = log.location.files
        self._directory = log.location.path
        self._config = log.settings.config
        self._found = found
        self._now_ms = now_ms
        self._cuts: list[Cut] = []
        self._notes: list[str] = []
        self._recovered = 0
        self._anew_from: Offset | None = None
        """Where the first segment begins whose indexes were made anew, and are to be synced."""

    def run(self) -> RecoveryReport:
        """Fill the log's segments, offsets, producers and leader epochs; what was done.

        Raises `OldFormat` for a log that is to be left as it is, and other `StorageError`.
        """
        log, found = self._log, self._found
        opening = SegmentOpening(log, found, self._now_ms)
        self._notes += opening.run()
        bases = [Offset(base) for base in log.segments.base_offsets]
        log.producers.remove_stray_snapshots(bases, opening.names)
        start = self._first_to_recover()
        if self._mend_aborts_below(start) and start is not None:
            self._recover_from(start)
        end = self._settle_end()
        start_offset = self._log_start()
        log.offsets.load(start_offset, end, self._recovery_point(end))
        log.leader_epochs.truncate_from_end(end)
        self._complete_leader_epochs(end)
        log.leader_epochs.truncate_from_start(start_offset)
        log.leader_epochs.flush()
        self._load_producers(end)
        high_watermark = log.offsets.restore_high_watermark(found.high_watermark)
        log.producers.transactions.acknowledge_to(high_watermark)
        return RecoveryReport(tuple(self._cuts), tuple(self._notes), self._recovered)

    def _log_start(self) -> Offset:
        """By the checkpoint, or where the first segment begins if that is later."""
        first = Offset(self._log.segments.first.base_offset)
        return max(self._found.log_start_offset, first)

    # -- Recovering --------------------------------------------------------------------------

    def _first_to_recover(self) -> int | None:
        """The base offset of the first segment that cannot be trusted."""
        segments, found = self._log.segments, self._found
        if not len(segments) or not found.needs_recovery:
            return None
        return segments.since(found.recovery_point)[0].base_offset

    def _mend_aborts_below(self, limit: int | None) -> bool:
        """Make transaction indexes of trusted segments anew that cannot be believed; false if the
        log had to be cut for it.

        Each on its own, aside and durably. Not by recovering from there on: below the recovery
        point nothing is recovered again after a crash, nor synced.
        """
        for segment in list(self._log.segments.all):
            is_trusted = limit is None or segment.base_offset < limit
            if self._has_sane_aborts(segment) or not is_trusted:
                continue
            found = find_aborts(self._log, segment, self._log_start(), self._now_ms)
            if found.damage is not None:
                # First the end: where the index is still damaged, the next start comes here again.
                self._made_anew_from(segment)
                self._cut_at(segment, found.valid_bytes, found.end_offset, found.damage)
            segment.transaction_index.replace(found.transactions)
            if found.damage is not None:
                return False
        return True

    def _has_sane_aborts(self, segment: Segment) -> bool:
        index = segment.transaction_index
        try:
            faults = [fault for _, fault in checked_aborts(index, segment.base_offset) if fault]
        except DamagedIndex as damage:
            self._notes.append(f"{damage} It is made anew.")
            return False
        if faults:
            self._notes.append(f"{index.path}: {faults[0].sentence} It is made anew.")
        return not faults

    def _recover_from(self, base_offset: int) -> None:
        log = self._log
        segments = log.segments
        log_start = self._log_start()
        start = Offset(max(base_offset, log_start))
        self._made_anew_from(segments.since(base_offset)[0])
        reload = log.producers.truncate_and_reload(log_start, start, self._now_ms)
        self._notes += reload.damaged_snapshots
        replay_producers(
            log.producers, segments, reload.scan_from, Offset(base_offset), self._now_ms
        )
        expected: Offset | None = None
        for segment in list(segments.since(base_offset)):
            if expected is not None:
                reason = self._gap(segment, expected)
                if reason is not None:
                    self._cut_before(segment, expected, reason)
                    return
            log.producers.take_snapshot(Offset(segment.base_offset), sync=False)
            valid_bytes, expected, reason = self._recover_segment(segment)
            self._recovered += 1
            if reason is not None:
                self._cut_at(segment, valid_bytes, expected, reason)
            segment.close_indexes()
            if reason is not None:
                break
        self._sync_last()

    def _made_anew_from(self, segment: Segment) -> None:
        """Indexes are being made anew, from this segment on: not durably."""
        first = Offset(segment.base_offset)
        self._anew_from = first if self._anew_from is None else min(self._anew_from, first)

    def _sync_last(self) -> None:
        """Make the end of the log durable as it is found.

        The process may have ended between cutting the last segment and syncing the cut. What was
        cut would come back with a power failure, between batches of an epoch that began since.
        """
        if len(self._log.segments):
            self._log.segments.last.log.sync()

    def _gap(self, segment: Segment, expected: Offset) -> str | None:
        if segment.base_offset == expected or segment.base_offset <= self._found.cleaned_to:
            return None
        if self._begins_behind_wide_gap(segment, expected):
            return None
        # Compaction leaves none: the last batch in front of a segment stays, and a segment of a
        # follower begins where the last one ended. So batches in front of this segment were lost
        # although they are older, as a disk may do that writes in its own order.
        return f"the segment starts at {segment.base_offset}, but {expected} is the next offset"

    @staticmethod
    def _begins_behind_wide_gap(segment: Segment, expected: Offset) -> bool:
        """Whether it was begun for its first batch, and not where the log ended. A roll that does
        so syncs the segment before it: nothing of that was lost."""
        try:
            _, first, _ = next(checked_batches(segment.log, 0, segment.size))
        except (CorruptRecords, StopIteration):
            return False
        base_offset = Offset(segment.base_offset)
        return is_beyond_wide_gap(base_offset, first.last_offset, expected)

    def _recover_segment(self, segment: Segment) -> tuple[int, Offset, str | None]:
        """Where the valid part ends (position, offset), and why that is not the whole segment."""
        segment.start_recovery(self._config)
        epochs = self._log.leader_epochs
        limit = min(segment.last_offset_max, self._next_base(segment) - 1)
        order = BatchOrder(Offset(segment.base_offset), limit)
        valid_bytes, reason = 0, None
        try:
            for position, header, batch in checked_batches(segment.log, 0, segment.size):
                fault = order.offset_fault(header)
                if fault:
                    reason = f"At position {position}: {fault}."
                    break
                if header.leader_epoch < epochs.epoch_for_offset(header.base_offset):
                    # Truncated, but the process ended before that was synced; the offsets were
                    # given to a newer leader, whose records the power failure took.
                    reason = f"The batch at {header.base_offset} was replaced by a newer leader's."
                    break
                self._take(segment, header, position, batch)
                order.follow(header)
                valid_bytes = position + header.size_bytes
        except CorruptRecords as error:
            reason = str(error)
        if reason is not None and self._is_complete(segment, valid_bytes, order.next_offset):
            self._give_back(segment, valid_bytes)
            reason = None
        self._log.producers.advance_to(order.next_offset)
        return valid_bytes, order.next_offset, reason

    def _take(
        self, segment: Segment, header: BatchHeader, position: int, batch: memoryview
    ) -> None:
        """Note a valid batch in the state of the log. Raises `CorruptRecords` before it does."""
        log = self._log
        if header.producer_id >= 0:
            completed = log.producers.replay(header, batch, self._now_ms)
            if completed is not None:
                self._finish(segment, completed)
        segment.note_batch(header, position)
        if header.leader_epoch > log.leader_epochs.latest:
            log.leader_epochs.assign(header.leader_epoch, header.base_offset)

    def _finish(self, segment: Segment, completed: CompletedTransaction) -> None:
        transactions = self._log.producers.transactions
        if completed.is_abort:
            stable = transactions.last_stable_offset_after(completed)
            self._log.segments.index_abort(segment, AbortedTransaction.of(completed, stable))
        transactions.complete(completed)

    def _next_base(self, segment: Segment) -> int:
        above = self._log.segments.above(segment.base_offset)
        return above[0].base_offset if above else segment.last_offset_max + 1

    # -- Cutting -----------------------------------------------------------------------------

    def _is_complete(self, segment: Segment, position: int, end: Offset) -> bool:
        """Whether all batches lie in front of `position`, and behind it the reserved room that a
        roll gave back, but not durably: the next segment begins where they end."""
        return self._next_base(segment) == end and is_unwritten(segment.log, position)

    def _cut_at(self, segment: Segment, position: int, end: Offset, reason: str) -> None:
        log = self._log
        refuse_old_format(segment.log, position)
        self._remove_from(log.segments.above(segment.base_offset), end, reason)
        if self._config.preallocate and is_reserved(segment.log, position):
            self._give_back(segment, position)
        else:
            self._cuts.append(Cut(segment.log.path, end, segment.size - position, reason))
            segment.size = position
            segment.trim_log()
        segment.log.sync()

    def _give_back(self, segment: Segment, position: int) -> None:
        rest = segment.size - position
        self._notes.append(f"Gave back {rest} reserved bytes of {segment.log.path}.")
        segment.size = position
        segment.trim_log()

    def _cut_before(self, segment: Segment, end: Offset, reason: str) -> None:
        self._remove_from(self._log.segments.since(segment.base_offset), end, reason)

    def _remove_from(
        self, segments: list[Segment], end: Offset, reason: str, *, was_deleted: bool = False
    ) -> None:
        """Remove segments, newest first, and make that durable."""
        log = self._log
        for segment in reversed(segments):
            self._cuts.append(Cut(segment.log.path, end, segment.size, reason, was_deleted))
            log.segments.forget([segment])
            segment.discard()
        if segments:
            self._files.sync_directory(self._directory)

    # -- The end of the log ------------------------------------------------------------------

    def _settle_end(self) -> Offset:
        """Open the last segment for appending, or make the first one; returns the log's end."""
        log, found = self._log, self._found
        if len(log.segments):
            end = self._end_of_last()
            if end >= found.log_start_offset:
                last = log.segments.last
                last.open_for_append(self._config, end)
                # Its age counts from the last write, not from this start: there may be one a day.
                written_ms = self._files.modified_ms(last.log.path)
                self._roller.start_segment(last, min(written_ms, self._now_ms))
                return end
            # Files were removed behind our back: what is left was all deleted before.
            reason = f"everything is below the log start {found.log_start_offset}"
            everything = list(log.segments.all)
            self._remove_from(everything, found.log_start_offset, reason, was_deleted=True)
            log.leader_epochs.clear()
            log.producers.truncate_fully_and_start_at(found.log_start_offset)
        start = found.log_start_offset
        log.segments.add(Segment.create(self._files, self._directory, start, self._config))
        self._roller.start_segment(log.segments.last, self._now_ms)
        return start

    def _recovery_point(self, end: Offset) -> Offset:
        """Up to where the log is certainly on the disk.

        After an unclean shutdown that is never known of the last segment: the process may have
        ended between cutting it and syncing the cut. Batches would come back with a power failure,
        below segments that were synced since.

        Nor is it known of a segment whose indexes were made anew in place: short ones would come
        back, and pass for whole ones.
        """
        if self._found.needs_recovery:
            end = min(self._found.recovery_point, Offset(self._log.segments.last.base_offset))
        return end if self._anew_from is None else min(end, self._anew_from)

    def _end_of_last(self) -> Offset:
        segments = self._log.segments
        try:
            return segments.last.end_offset()
        except OldFormat:
            raise
        except DamagedSegment as damage:
            # The shutdown was clean, but the file was changed since.
            self._notes.append(f"{damage} The segment is recovered.")
            self._recover_from(segments.last.base_offset)
            return segments.last.end_offset()

    def _complete_leader_epochs(self, end: Offset) -> None:
        """Name the epochs of batches in front of the table's first entry.

        Records were deleted and the table forgot their epochs, then the log start fell back to an
        older checkpoint, or the table was lost. Without the entries the log would answer for an
        epoch with an end that is too far (I-21).
        """
        log = self._log
        known = log.leader_epochs.entries
        known_from = known[0].start_offset if known else end
        start = log.offsets.log_start_offset
        if start >= known_from:
            return
        missing: list[EpochEntry] = []
        try:
            for header in self._headers(start, known_from):
                if header.leader_epoch < 0:
                    break  # From before there were epochs: then none are missing.
                if not missing or header.leader_epoch != missing[-1].epoch:
                    missing.append(EpochEntry(header.leader_epoch, max(header.base_offset, start)))
        except DamagedSegment as damage:
            self._notes.append(f"{damage} Leader epochs may be missing.")
        log.leader_epochs.put_in_front(missing)

    def _headers(self, start: Offset, end: Offset) -> Iterator[BatchHeader]:
        """The headers of the batches that have records in `[start, end)`."""
        for segment in self._log.segments.since(start):
            if segment.base_offset >= end:
                return
            position = segment.floor_position(start).position
            for _, header in headers_between(segment.log, position, segment.size, SCAN_CHUNK_BYTES):
                if header.base_offset >= end:
                    return
                if header.next_offset > start:
                    yield header

    def _load_producers(self, end: Offset) -> None:
        log = self._log
        if not self._found.needs_recovery and not log.producers.snapshots.offsets:
            # As Kafka: a clean shutdown without a snapshot means that there were no producers.
            log.producers.advance_to(end)
            return
        reload = log.producers.truncate_and_reload(log.offsets.log_start_offset, end, self._now_ms)
        self._notes += reload.damaged_snapshots
        replay_producers(log.producers, log.segments, reload.scan_from, end, self._now_ms)
