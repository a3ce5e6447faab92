"""A copy of a log in another log directory of the broker, until it takes the place of that log.

This file knows how the copy follows its source, and what it must have before they change places. It
must not know directories, requests or when to copy.

The copy is a log of its own: it has its own segments, and its own indexes, epochs and producers are
made of the batches that are appended to it, as a follower's are. So it can be loaded after a crash
like any other, and whatever the source does meanwhile (appends, truncation, deletion of records) is
seen from its offsets. Only compaction must rest: the copy may have passed a record that a marker
behind it removes, and the marker may be gone when the copy gets there.

Two things cannot be made of batches, and are taken over in the end: where an epoch began whose
first records were compacted away, and producers whose records were all deleted.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Final

from strandline.errors import CorruptRecords, InvariantViolated, StorageError
from strandline.records.batch import iterate_headers
from strandline.storage.log import Log
from strandline.types import NO_EPOCH, Offset

BATCHES_MAX: Final = 256
"""As many are appended at once: each is a write of its own."""


OFFSET_MAX: Final = Offset(2**63 - 1)


class SourceUnreadable(StorageError):
    """The disk of the source is at fault; `cause` is what it said."""

    def __init__(self, cause: StorageError) -> None:
        super().__init__(str(cause))
        self.cause = cause


class LogCopy:
    """See the module. `save_lowered` writes down offsets of the copy that have fallen."""

    __slots__ = ("_caught_up_at", "_is_aligned", "_save_lowered", "_truncations", "log", "source")

    def __init__(self, source: Log, log: Log, save_lowered: Callable[[], None]) -> None:
        self.source = source
        self.log = log
        self._save_lowered = save_lowered
        self._is_aligned = False
        self._truncations = 0
        self._caught_up_at = OFFSET_MAX
        """Where the source ended when the copy had all of it for the first time."""

    @property
    def lag(self) -> int:
        """How many offsets the copy is behind; less than 0 if the source was cut."""
        return self.source.log_end_offset - self.log.log_end_offset

    @property
    def is_complete(self) -> bool:
        """Whether the copy has all that the source has."""
        return self.lag == 0 and self._is_in_line

    @property
    def is_as_durable(self) -> bool:
        """Whether a power failure would leave the copy as much as the source was promised to have,
        and all that the source had when the copy first caught up with it. The latter because a
        recovery point is the least: after a crash most of what lies below is on the disk as well.
        """
        needed = max(self.source.recovery_point, min(self._caught_up_at, self.log.log_end_offset))
        return self.log.recovery_point >= needed

    def advance(self, max_bytes: int, now_ms: int) -> int:
        """Take the next batches, about so many bytes of them; returns how many bytes.

        Raises `CorruptRecords` if the source is damaged there, `SourceUnreadable`, and another
        `StorageError` for the disk of the copy.
        """
        source, log = self.source, self.log
        if not self._is_in_line:
            self._align(now_ms)
        if log.log_end_offset < source.log_start_offset:
            return self._begin_anew(max_bytes, now_ms)
        if not self.lag:
            self._follow_offsets()
            self._note_complete()
            return 0
        found = self._read(log.log_end_offset, max_bytes)
        if log.is_empty and _first_offset(found) < log.log_end_offset:
            # It began inside a batch that the source has got since, after it was cut.
            return self._begin_anew(max_bytes, now_ms)
        log.appender.append_as_follower(found, now_ms)
        self._follow_offsets()
        self._note_complete()
        return len(found)

    def complete(self) -> None:
        """Take what is not in the batches over from the source. To be called when it `is_complete`,
        right before they change places. Raises `StorageError`."""
        source, log = self.source, self.log
        log.leader_epochs.replace(source.leader_epochs.entries)
        log.leader_epochs.flush()
        log.leader_epochs.flush_assigned()
        log.flusher.reschedule()
        self._follow_offsets()

    def take_place(self) -> None:
        """Let the source be what the copy was, and the copy what the source was: `source` is then
        the log that goes on, in the copy's directory, and `log` what is to be deleted."""
        source, log = self.source, self.log
        log.producers.take_over(source.producers)
        log.offsets.supersede(source.offsets)
        log.update_config(source.config)
        source.exchange(log)

    # -- Where they part ---------------------------------------------------------------------

    @property
    def _is_in_line(self) -> bool:
        return self._is_aligned and self._truncations == self.source.offsets.truncations

    def _align(self, now_ms: int) -> None:
        """Remove what the source does not have, by leader epochs, as a follower does (KIP-101)."""
        source, log = self.source, self.log
        while (latest := log.leader_epochs.latest_entry) is not None:
            epoch, end = source.reader.end_offset_for_epoch(latest.epoch)
            if epoch == latest.epoch:
                self._truncate(end, now_ms)
                break
            if epoch == NO_EPOCH:  # newer than all that the source has
                self._truncate(latest.start_offset, now_ms)
            else:
                _, own_end = log.reader.end_offset_for_epoch(epoch)
                self._truncate(min(end, own_end), now_ms)
            if log.leader_epochs.latest_entry == latest:
                raise InvariantViolated(
                    f"The copy of {log.topic_partition} cannot get rid of epoch {latest.epoch}."
                )
        self._truncate(source.log_end_offset, now_ms)
        self._is_aligned = True
        self._truncations = source.offsets.truncations

    def _truncate(self, offset: Offset, now_ms: int) -> None:
        self.log.truncation.truncate_to(min(offset, self.log.log_end_offset), now_ms)
        self._save()

    def _begin_anew(self, max_bytes: int, now_ms: int) -> int:
        """Begin where the source does, which may be inside a batch (see `FollowerRole`)."""
        source, log = self.source, self.log
        start = source.log_start_offset
        if start == source.log_end_offset:
            log.truncation.truncate_fully_and_start_at(start, now_ms)
            self._save()
            self._follow_offsets()
            return 0
        data = self._read(start, max_bytes)
        first = min(_first_offset(data), start)
        log.truncation.truncate_fully_and_start_at(first, now_ms, start)
        try:
            self._save()
            log.appender.append_as_follower(data, now_ms)
        except (CorruptRecords, StorageError):
            if log.failure is None:
                log.truncation.truncate_fully_and_start_at(start, now_ms)
                self._save()
            raise
        self._follow_offsets()
        return len(data)

    def _read(self, offset: Offset, max_bytes: int) -> bytes:
        source = self.source
        try:
            found = source.reader.read(
                offset, max_bytes, end_offset=source.log_end_offset, at_least_one_batch=True
            )
            data = None if found is None else _as_many_as_fit(found.read())
        except StorageError as error:
            raise SourceUnreadable(error) from error
        if data is None:
            raise InvariantViolated(
                f"{source.topic_partition} has no batch between {offset} and its end at "
                f"{source.log_end_offset}."
            )
        return data

    def _follow_offsets(self) -> None:
        source, log = self.source, self.log
        watermark = min(max(source.high_watermark, log.log_start_offset), log.log_end_offset)
        if watermark != log.high_watermark:
            log.restore_high_watermark(watermark)
        start = min(source.log_start_offset, log.high_watermark)
        if start > log.log_start_offset:
            log.retention.delete_records_to(start)

    def _note_complete(self) -> None:
        if not self.lag:
            self._caught_up_at = min(self._caught_up_at, self.log.log_end_offset)

    def _save(self) -> None:
        if self.log.offsets.needs_checkpoint:
            self._save_lowered()


def _first_offset(data: bytes) -> Offset:
    return next(iterate_headers(data))[1].base_offset


def _as_many_as_fit(data: bytes) -> bytes:
    """The first `BATCHES_MAX` batches."""
    beyond = next(islice(iterate_headers(data), BATCHES_MAX, None), None)
    return data if beyond is None else data[: beyond[0]]
