"""Truncation: dropping records at the end of a log. (`retention` drops at the start.)

This file knows what may be dropped and in which order files change, so that a crash at any moment
leaves a log that recovery understands. It must not know why a follower diverged.

Truncation syncs what it cut before it returns. Otherwise a power loss could bring removed batches
back under offsets for which the epoch table, which is synced at each assignment, names another
leader; the log would then answer for an epoch with records of another (I-21).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from strandline.errors import InvariantViolated, StorageError
from strandline.storage.files import NoRoom
from strandline.storage.log_flusher import LogFlusher
from strandline.storage.log_parts import LogParts
from strandline.storage.log_roller import LogRoller
from strandline.storage.replay import replay_producers
from strandline.storage.segment import Segment
from strandline.types import Offset


class Truncation:
    """Drops records at the end of a log.

    Epochs, producers and offsets follow the end that the segments have (I-03, I-05), and what was
    cut is durably gone when it returns (I-21). A truncation that fails on the way fails the log.
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

    def truncate_to(self, offset: Offset, now_ms: int) -> bool:
        """Remove every batch that ends at or after `offset`; returns whether any was.

        Batches are kept whole or not at all, so the log may end below `offset`. A follower that
        truncates to `offset` fetches next from `log_end_offset`.
        """
        if offset < 0:
            raise InvariantViolated(
                f"{self._location.topic_partition} cannot be truncated to {offset}."
            )
        self._health.check_usable()
        if offset >= self._offsets.log_end_offset:
            self._leader_epochs.truncate_from_end(self._offsets.log_end_offset)
            self._leader_epochs.flush()
            self._flusher.reschedule()
            return False
        if offset < self._segments.first.base_offset:
            self.truncate_fully_and_start_at(offset, now_ms)
            return True
        self._offsets.begin_truncation()
        with self._whole(f"The truncation to offset {offset}"):
            self._drop_segments(self._segments.above(offset), now_ms)
            self._end_at(self._cut_last_segment(offset, now_ms), now_ms)
        return True

    def truncate_fully_and_start_at(
        self, offset: Offset, now_ms: int, log_start_offset: Offset | None = None
    ) -> None:
        """Remove everything and go on with an empty log at `offset`.

        If that breaks off, some of the files are gone. A log that is loaded again from what is left
        (`LogHealth.may_reload`) must not pass for one that ends there: it begins where it was to,
        as everything in front of that was given up.
        """
        self._health.check_usable()
        offsets = self._offsets
        start = offset if log_start_offset is None else log_start_offset
        offsets.begin_truncation()
        try:
            with self._whole("The truncation of everything"):
                self._drop_segments(self._segments.all, now_ms)
                new = Segment.create(
                    self._location.files, self._location.path, offset, self._settings.config
                )
                self._location.sync()
                self._segments.add(new)
                self._roller.start_segment(new, now_ms)
                self._leader_epochs.clear()
                self._leader_epochs.flush()
                self._producers.truncate_fully_and_start_at(offset)
        except StorageError:
            offsets.move_start_to(max(start, offsets.log_start_offset))
            raise
        new.synced_names = True
        offsets.move_start_to(start)
        offsets.lower_high_watermark_to(
            min(max(offsets.high_watermark, offsets.log_start_offset), offset)
        )
        offsets.end_at(offset)
        self._flusher.reschedule()

    @contextmanager
    def _whole(self, what: str) -> Iterator[None]:
        """A truncation that happens altogether, or leaves a log that has failed: memory and disk
        may differ then, and a restart recovers what is there."""
        try:
            yield
        except StorageError as error:
            self._health.fail(f"{what} failed: {error}", error)
            raise
        except MemoryError as error:
            shortage = NoRoom(f"There was no memory to cut {self._location.topic_partition}.")
            self._health.fail(f"{what} failed: {shortage}", shortage)
            raise shortage from error

    def _cut_last_segment(self, offset: Offset, now_ms: int) -> Offset:
        last = self._segments.last
        end = last.truncate_to(offset)
        last.open_for_append(self._settings.config, end)
        if last is not self._segments.active or last.size == 0:
            self._roller.start_segment(last, now_ms)
        last.log.sync()
        aborted = last.transaction_index.file
        if aborted is not None:
            # Entries that came back would hide committed records from readers.
            aborted.sync()
        return end

    def _end_at(self, end: Offset, now_ms: int) -> None:
        """Make memory agree with a log that now ends at `end`; producers first (KAFKA-12153)."""
        self._leader_epochs.truncate_from_end(end)
        self._leader_epochs.flush()
        offsets = self._offsets
        offsets.move_start_to(min(offsets.log_start_offset, end))
        offsets.lower_high_watermark_to(min(offsets.high_watermark, end))
        self._producers.advance_to(offsets.log_end_offset)
        reload = self._producers.truncate_and_reload(offsets.log_start_offset, end, now_ms)
        replay_producers(self._producers, self._segments, reload.scan_from, end, now_ms)
        self._producers.transactions.acknowledge_to(offsets.high_watermark)
        offsets.end_at(end)
        self._flusher.reschedule()

    def _drop_segments(self, segments: Sequence[Segment], now_ms: int) -> None:
        """Retire segments at the end of the log, and make that durable before anything else.

        The newest first, and each durably before the next: the disk may keep renames in any order,
        and what a power failure leaves must have no hole.
        """
        due_ms = now_ms + self._settings.config.file_delete_delay_ms
        for segment in list(reversed(segments)):
            self._segments.retire(self._location.files, [segment], due_ms)
            self._location.sync()
