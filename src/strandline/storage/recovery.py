"""Loading a partition's log from disk, and recovering it when the last shutdown was not clean.

This file knows what may be trusted after which kind of shutdown, and in which order files are
repaired. It must not know why the process ended or what happens to the log afterwards.

After a clean shutdown everything is trusted, and nothing but the end of the last segment is read.
Otherwise the segments below the recovery point are trusted, because they were synced, and of the
others every batch is read: indexes, producers and leader epochs are made anew from the batches, and
from the first batch on that is cut off, does not match its checksum or has a wrong offset,
everything goes, later segments included. What is kept is thus always a prefix of what was written.

Later segments are removed, durably, before the bad one is cut: a crash in between finds the bad
batch again and comes to the same result (I-45).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

from strandline.errors import CorruptRecords
from strandline.records.batch import BatchHeader
from strandline.storage.batch_scan import SCAN_CHUNK_BYTES, DamagedSegment, headers_between
from strandline.storage.files import join
from strandline.storage.index_file import DamagedIndex
from strandline.storage.indexed_segment import REBUILT
from strandline.storage.leader_epochs import FILE_NAME as LEADER_EPOCHS_NAME
from strandline.storage.leader_epochs import NEXT_SUFFIX, EpochEntry
from strandline.storage.log_directory import LogToLoad
from strandline.storage.log_parts import LogParts
from strandline.storage.log_roller import LogRoller
from strandline.storage.open_transactions import CompletedTransaction
from strandline.storage.recovery_report import Cut, RecoveryReport
from strandline.storage.replay import replay_producers
from strandline.storage.segment import Segment
from strandline.storage.segment_names import LOG, parse_segment_name, segment_path
from strandline.storage.swap_recovery import finish_interrupted_swaps
from strandline.storage.transaction_index import AbortedTransaction
from strandline.storage.verify.files import lonely_indexes
from strandline.storage.verify.indexes import checked_aborts
from strandline.storage.verify.order import BatchOrder
from strandline.storage.verify.reading import checked_batches, is_reserved
from strandline.types import NO_TOPIC_ID, Offset

LEADER_EPOCHS_NEXT: Final = LEADER_EPOCHS_NAME + NEXT_SUFFIX


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
        self._is_sparse = False
        """Whether records are missing between those of the segment that was recovered last."""

    def run(self) -> RecoveryReport:
        """Fill the log's segments, offsets, producers and leader epochs; what was done."""
        log, found = self._log, self._found
        self._clear_if_never_durable()
        self._notes += finish_interrupted_swaps(self._files, self._directory)
        for segment in self._open_segments():
            log.segments.add(segment)
        self._retire_deleted()
        self._remove_overlapping_empty()
        log.producers.remove_stray_snapshots([Offset(b) for b in log.segments.base_offsets])
        start = self._first_to_recover()
        if start is not None:
            self._recover_from(start)
        end = self._settle_end()
        start_offset = self._log_start()
        log.offsets.load(start_offset, end, self._recovery_point(end))
        log.leader_epochs.truncate_from_end(end)
        self._complete_leader_epochs(end)
        log.leader_epochs.truncate_from_start(start_offset)
        log.leader_epochs.flush()
        self._load_producers(end)
        log.producers.acknowledge_to(log.offsets.restore_high_watermark(found.high_watermark))
        return RecoveryReport(tuple(self._cuts), tuple(self._notes), self._recovered)

    def _log_start(self) -> Offset:
        """By the checkpoint, or where the first segment begins if that is later."""
        first = Offset(self._log.segments.first.base_offset)
        return max(self._found.log_start_offset, first)

    # -- What is there -----------------------------------------------------------------------

    def _clear_if_never_durable(self) -> None:
        """Drop what a power failure left of a directory that was not synced since it was made.

        Without its topic id its records may be those of a former topic of that name. They are not
        missed: the id is durable before a table of leader epochs is, and before the recovery point
        moves. Raises `DamagedCheckpoint` for an id that cannot be read in any other directory.
        """
        location, found = self._log.location, self._found
        if location.topic_id != NO_TOPIC_ID:
            return
        was_durable = found.recovery_point > 0 or self._log.leader_epochs.entries
        if found.needs_recovery and not was_durable:
            names = location.clear()
            if names:
                self._notes.append(
                    f"Removed {', '.join(names)} from {self._directory}: none of it was synced, "
                    "and the disk does not say to which topic it belongs."
                )
        elif location.damage is not None:
            raise location.damage

    def _open_segments(self) -> list[Segment]:
        """The segments on disk; removes index files that belong to none or are not whole."""
        names = self._files.list_directory(self._directory)
        parsed = [parse_segment_name(name) for name in names]
        bases = {p.base_offset for p in parsed if p is not None and p.kind == LOG}
        for base_offset, path in lonely_indexes(self._files, self._directory):
            self._check_missing(base_offset, bases)
            self._files.remove(path)
            self._notes.append(f"Removed {path}: it has no segment.")
        for name in names:
            if name == LEADER_EPOCHS_NEXT:
                self._files.remove(join(self._directory, name))
            elif name.endswith(REBUILT) and parse_segment_name(name.removesuffix(REBUILT)):
                self._files.remove(join(self._directory, name))
                self._notes.append(f"Removed {join(self._directory, name)}: it is not finished.")
        return [Segment.existing(self._files, self._directory, base) for base in sorted(bases)]

    def _check_missing(self, base_offset: int, bases: set[int]) -> None:
        """Raise `DamagedSegment` for indexes in the middle of the log whose segment is gone.

        Retention and truncation take segments from the ends only, and what a crash can take is at
        or above the recovery point. Readers and followers would pass over the hole unawares.
        """
        found = self._found
        start = max(found.log_start_offset, min(bases, default=0))
        end = found.recovery_point if found.needs_recovery else max(bases, default=0)
        following = min((base for base in bases if base > base_offset), default=base_offset)
        if start <= base_offset and following <= end and following > base_offset:
            path = segment_path(self._directory, base_offset, LOG)
            raise DamagedSegment(f"The segment {path} is gone, but there are newer ones.")

    def _retire_deleted(self) -> None:
        """Drop the segments wholly below the log start: their deletion may be half done."""
        log = self._log
        bases = log.segments.base_offsets
        count = bisect_right(bases, self._found.log_start_offset) - 1
        if count > 0:
            due_ms = self._now_ms + self._config.file_delete_delay_ms
            log.segments.retire(self._files, list(log.segments.all[:count]), due_ms)
            self._notes.append(f"Dropped {count} segments of {self._directory}: they were deleted.")

    def _remove_overlapping_empty(self) -> None:
        """Remove empty segments that a failed roll left inside the range of an older one."""
        segments = self._log.segments
        for index in range(len(segments) - 1, 0, -1):
            segment, before = segments.all[index], segments.all[index - 1]
            if segment.size == 0 and self._readable_end(before) > segment.base_offset:
                segments.forget([segment])
                segment.discard()
                self._notes.append(f"Removed {segment.log.path}: it is empty and inside another.")

    def _readable_end(self, segment: Segment) -> int:
        """The offset after the last batch that can be read, found by a short scan if possible."""
        end = segment.base_offset
        try:
            return segment.end_offset()
        except DamagedSegment:
            # The end is torn, so the index may be, too: recovery deals with that later.
            batches = headers_between(segment.log, 0, segment.size, SCAN_CHUNK_BYTES)
        try:
            for _, header in batches:
                end = header.next_offset
        except DamagedSegment:
            return end
        return end

    def _first_to_recover(self) -> int | None:
        """The base offset of the first segment that cannot be trusted."""
        segments, found = self._log.segments, self._found
        if not len(segments):
            return None
        suspects = [s.base_offset for s in segments.all if not self._has_sane_aborts(s)]
        if found.needs_recovery:
            suspects.append(segments.since(found.recovery_point)[0].base_offset)
        return min(suspects, default=None)

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

    # -- Recovering --------------------------------------------------------------------------

    def _recover_from(self, base_offset: int) -> None:
        log = self._log
        segments = log.segments
        log_start = self._log_start()
        start = Offset(max(base_offset, log_start))
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
        if self._is_sparse:
            # What compaction writes is synced as a whole: nothing of the segment before was lost.
            return None
        # Only compaction makes gaps. Without it, batches in front of this segment were lost
        # although they are older, as a disk may do that writes in its own order.
        return f"the segment starts at {segment.base_offset}, but {expected} is the next offset"

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
        self._is_sparse = order.is_sparse
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
        producers = self._log.producers
        if completed.is_abort:
            self._log.segments.index_abort(
                segment,
                AbortedTransaction(
                    completed.producer_id,
                    completed.first_offset,
                    completed.last_offset,
                    producers.last_stable_offset_after(completed),
                ),
            )
        producers.complete_transaction(completed)

    def _next_base(self, segment: Segment) -> int:
        above = self._log.segments.above(segment.base_offset)
        return above[0].base_offset if above else segment.last_offset_max + 1

    # -- Cutting -----------------------------------------------------------------------------

    def _cut_at(self, segment: Segment, position: int, end: Offset, reason: str) -> None:
        log = self._log
        self._remove_from(log.segments.above(segment.base_offset), end, reason)
        rest = segment.size - position
        if self._config.preallocate and is_reserved(segment.log, position):
            self._notes.append(f"Gave back {rest} reserved bytes of {segment.log.path}.")
        else:
            self._cuts.append(Cut(segment.log.path, end, rest, reason))
        segment.log.truncate(position)
        segment.size = position
        segment.log.sync()

    def _cut_before(self, segment: Segment, end: Offset, reason: str) -> None:
        self._remove_from(self._log.segments.since(segment.base_offset), end, reason)

    def _remove_from(self, segments: list[Segment], end: Offset, reason: str) -> None:
        """Remove segments, newest first, and make that durable."""
        log = self._log
        for segment in reversed(segments):
            self._cuts.append(Cut(segment.log.path, end, segment.size, reason))
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
                log.segments.last.open_for_append(self._config, end)
                self._roller.start_segment(log.segments.last, self._now_ms)
                return end
            # Files were removed behind our back: what is left was all deleted before.
            reason = f"everything is below the log start {found.log_start_offset}"
            self._remove_from(list(log.segments.all), found.log_start_offset, reason)
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
        """
        if not self._found.needs_recovery:
            return end
        return min(self._found.recovery_point, Offset(self._log.segments.last.base_offset))

    def _end_of_last(self) -> Offset:
        segments = self._log.segments
        try:
            return segments.last.end_offset()
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
