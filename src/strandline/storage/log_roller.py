"""How one segment ends and the next begins.

This file knows when a batch needs a new segment and in which order files change then. It must not
know batches.
"""

from __future__ import annotations

from random import Random
from typing import Final

from strandline.errors import InvariantViolated, StorageError
from strandline.storage.log_flusher import LogFlusher
from strandline.storage.log_parts import LogParts
from strandline.storage.offset_index import RELATIVE_OFFSET_MAX
from strandline.storage.segment import Segment
from strandline.types import Offset

GAP_MAX: Final = 2**30
"""How far in front of its first batch a segment may begin: offsets in it have 31 bits."""


def is_beyond_wide_gap(base_offset: Offset, last_offset: Offset, end: Offset) -> bool:
    """Whether a batch with these offsets is too far behind the log's end for a segment that begins
    there: compaction has left a gap in front of it in the leader's log."""
    return base_offset - end > GAP_MAX or last_offset - end > RELATIVE_OFFSET_MAX


class LogRoller:
    """Begins segments. The active segment is always the last one; a new one is empty and starts at
    or behind the log's end. A roll that fails leaves the log as it was."""

    __slots__ = (
        "_flusher",
        "_health",
        "_location",
        "_offsets",
        "_producers",
        "_random",
        "_segments",
        "_settings",
    )

    def __init__(self, parts: LogParts, flusher: LogFlusher, random: Random) -> None:
        """`random` spreads the rolls of many logs in time (`segment.jitter.ms`)."""
        self._location = parts.location
        self._settings = parts.settings
        self._health = parts.health
        self._offsets = parts.offsets
        self._segments = parts.segments
        self._producers = parts.producers
        self._flusher = flusher
        self._random = random

    def roll(self, now_ms: int, base_offset: Offset | None = None) -> Segment:
        """Close the active segment and begin a new one; returns the active segment.

        An empty active segment that starts where the new one would stays; another one goes, as
        after a crash it would tell of a loss in front of the new one. After a `StorageError`
        everything is as before, or the log has failed.
        """
        old = self._segments.active
        config = self._settings.config
        end = self._offsets.log_end_offset
        base = end if base_offset is None else base_offset
        if old.size == 0 and old.base_offset == base:
            return old
        if base < end:
            raise InvariantViolated(
                f"{self._location.topic_partition}: a segment cannot start at {base}, the log ends "
                f"at {end}."
            )
        if not old.synced_names:
            # A disk that keeps names in any order must not keep the new one and lose this one.
            self._location.sync()
            old.synced_names = True
        gave_back = old.trim_reserved()
        if (gave_back and self._offsets.recovery_point >= end) or (base > end and old.size):
            # Once the recovery point is here no flush comes back to what was given back, and no
            # recovery looks for it. And the gap in front of a new segment must not hide a loss.
            old.log.sync()
        new = Segment.create(self._location.files, self._location.path, base, config)
        try:
            if old.size == 0:
                self._location.sync()  # the new name is there before the old one goes
            snapshot = self._producers.take_snapshot(base, sync=False)
            old.close_indexes()
        except StorageError:
            old.reopen_indexes(config)
            self._discard(new)
            raise
        old.become_closed()
        if old.size == 0:
            self._segments.forget([old])
        self._segments.add(new)
        self.start_segment(new, now_ms)
        self._flusher.segment_closed(snapshot)
        if old.size == 0:
            self._discard(old)
            self._health.check_usable()
        return new

    def roll_if_time_due(self, now_ms: int) -> bool:
        """Close the active segment if its first record is older than `segment.ms`, and the segment
        as well: a log that is filled with old records would get a new one with each call.

        Kafka does this only with the next append; a log that is not written to would keep its
        last segment from compaction and retention for ever.
        """
        active = self._segments.active
        due_ms = max(
            min(active.roll_at_timestamp, active.roll_at_ms),
            active.created_ms + active.roll_after_ms,
        )
        if self._health.failure is not None or active.size == 0 or now_ms <= due_ms:
            return False
        self.roll(now_ms)
        return True

    def room_for(
        self, size: int, last_offset: Offset, max_timestamp: int, base_offset: Offset, now_ms: int
    ) -> Segment:
        """The active segment, or a new one when the batch must not go to the active one."""
        active = self._segments.active
        if (
            active.size + size > self._settings.segment_bytes
            or max_timestamp > active.roll_at_timestamp
            or now_ms > active.roll_at_ms
            or active.indexes_full
            or last_offset > active.last_offset_max
            or base_offset < active.base_offset
        ):
            return self.roll_before_append(base_offset, last_offset, now_ms)
        return active

    def roll_before_append(self, base_offset: Offset, last_offset: Offset, now_ms: int) -> Segment:
        """The segment that a batch with these offsets goes to when the active one is to be closed,
        or the batch does not fit into it."""
        active, end = self._segments.active, self._offsets.log_end_offset
        if is_beyond_wide_gap(base_offset, last_offset, end):
            return self.roll(now_ms, base_offset)
        if active.size == 0 and active.base_offset <= base_offset <= last_offset <= (
            active.last_offset_max
        ):
            # Full indexes or a limit below one batch: a new empty segment would be no better.
            return active
        # Where compaction left a gap in the leader's log, the new segment begins in front of it:
        # after a crash, a gap between segments means that something was lost.
        return self.roll(now_ms)

    def start_segment(self, segment: Segment, now_ms: int) -> None:
        """Make the last segment the active one."""
        config = self._settings.config
        jitter_max = min(config.segment_jitter_ms, config.segment_ms)
        jitter_ms = self._random.randrange(jitter_max) if jitter_max > 0 else 0
        segment.start_clock(config, now_ms, jitter_ms)
        self._segments.activate(segment)

    def draw_secret(self, size: int) -> bytes:
        """Random bytes for who compacts the log."""
        return self._random.randbytes(size)

    def _discard(self, segment: Segment) -> None:
        try:
            segment.discard()
        except StorageError as error:
            # Its name stands for offsets that the old segment would go on to fill.
            self._health.fail(str(error), error)
