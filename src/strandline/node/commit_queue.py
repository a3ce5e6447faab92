"""Who waits for the high watermark of one partition: produces with acks=all, group state.

One of these per waiting request is what replication costs a produce, so it is no parked operation
with its own timer but an entry in a queue: (required high watermark, deadline, whom to tell).
Appends go in ascending order, so that a risen high watermark takes entries from the front. One
timer per queue stands for all deadlines; it comes at the earliest of them and then looks at all.

This file knows order and deadlines. It must not know logs, leaders or answers.
"""

from __future__ import annotations

import logging
from bisect import insort_right
from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeAlias

from strandline.errors import ErrorCode, InvariantViolated
from strandline.node.timers import Callback, Timer, Timers
from strandline.types import Instant, Offset

log = logging.getLogger(__name__)

Decided: TypeAlias = Callable[[ErrorCode, Instant], None]
"""Told once what became of the append: NONE, or why that is not known or did not happen."""

_Entry: TypeAlias = tuple[int, int, Decided]


class CommitQueue:
    """The waiting appends of one partition, lowest required high watermark first.

    Bounded by the requests in flight of all connections.
    """

    __slots__ = ("_entries", "_failed", "_timer", "_timers", "_when_due")

    def __init__(self, timers: Timers, when_due: Callback) -> None:
        """`when_due` is called at the earliest deadline; it is to call `expire`."""
        self._timers = timers
        self._when_due = when_due
        self._entries: deque[_Entry] = deque()
        self._failed: list[tuple[ErrorCode, _Entry]] = []
        self._timer: Timer | None = None

    def __len__(self) -> int:
        return len(self._entries) + len(self._failed)

    def add(self, required: Offset, decided: Decided, deadline_ms: int) -> None:
        """Tell `decided` when the high watermark is `required` or more, or at the deadline."""
        entries = self._entries
        entry = (required, deadline_ms, decided)
        if entries and entries[-1][0] > required:
            # A producer repeats a batch that was appended before, but is not committed yet.
            ordered = list(entries)
            insort_right(ordered, entry, key=_required)
            entries.clear()
            entries.extend(ordered)
        else:
            entries.append(entry)
        timer = self._timer
        if timer is None or timer.at_ms > deadline_ms:
            self._set_timer(deadline_ms)

    def fail_all(self, code: ErrorCode) -> None:
        """Nothing that waits now will be decided by a high watermark: leadership is lost."""
        self._failed += ((code, entry) for entry in self._entries)
        self._entries.clear()

    def settle(self, high_watermark: Offset, code: ErrorCode, now: Instant) -> None:
        """Tell all that are failed, and all up to the high watermark, with `code`."""
        if self._failed:
            failed, self._failed = self._failed, []
            for reason, entry in failed:
                _tell(entry[2], reason, now)
        entries = self._entries
        while entries and entries[0][0] <= high_watermark:
            _tell(entries.popleft()[2], code, now)

    def check(self, high_watermark: Offset, *, is_leading: bool) -> None:
        """Raise `InvariantViolated` if an entry is decided, or waits without a limit (I-40). To be
        asked between two turns."""
        entries = self._entries
        problem = None
        if self._failed or (entries and not is_leading):
            problem = f"{len(self)} appends wait to be told that leadership was lost"
        elif entries and entries[0][0] <= high_watermark:
            problem = f"an append still waits for {entries[0][0]}"
        elif entries and (self._timer is None or self._timer.at_ms > _earliest(entries)):
            problem = f"{len(entries)} appends wait without a limit"
        if problem is not None:
            raise InvariantViolated(
                f"The high watermark is {high_watermark}, but {problem}.", invariant="I-40"
            )

    def expire(self, now: Instant) -> None:
        """Tell all whose time is up that their outcome is unknown."""
        self._timer = None
        due = [entry for entry in self._entries if entry[1] <= now.monotonic_ms]
        self._entries = deque(entry for entry in self._entries if entry[1] > now.monotonic_ms)
        if self._entries:
            self._set_timer(_earliest(self._entries))
        for entry in due:
            _tell(entry[2], ErrorCode.REQUEST_TIMED_OUT, now)

    def _set_timer(self, at_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._timers.schedule(at_ms, self._when_due)


def _required(entry: _Entry) -> int:
    return entry[0]


def _earliest(entries: Iterable[_Entry]) -> int:
    return min(entry[1] for entry in entries)


def _tell(decided: Decided, code: ErrorCode, now: Instant) -> None:
    try:
        decided(code, now)
    except Exception:
        # A bug of ours in one answer; the others in the queue are to be answered all the same.
        log.exception("What waited for a commit could not be told")
