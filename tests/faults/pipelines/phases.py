"""Which phase of its work a run of a table is in, as it tells it while it runs (`told_run`).

Lines in a pipe: a monotonic time in nanoseconds, and the phase that begins. Their order is that in
which things happened, so that the last line of a process that was killed says what it was doing.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from statistics import median
from typing import BinaryIO, Final

STARTING: Final = "starting"
"""From the start of the process to its first batch."""
RETRYING: Final = "retrying"
"""The same of another attempt, after trouble."""
WAITING: Final = "waiting"
"""Between two batches."""
WRITING: Final = "writing"
"""Tasks read records and write files."""
CHECKING: Final = "checking"
"""A commit before its change: the table is read; rows are merged where they are upserted."""
CHANGING: Final = "changing"
"""The one atomic change of a table, or of one beside it."""
FOLLOWING: Final = "following"
"""A commit after its change: tables beside it follow."""
COMPACTING: Final = "compacting"

IN_ORDER: Final = (STARTING, RETRYING, WAITING, WRITING, CHECKING, CHANGING, FOLLOWING, COMPACTING)
COMMITTING: Final = "committing"
"""A stage of its own: stages are phases, but the three of a commit are one."""
_STAGES: Final = dict.fromkeys((CHECKING, CHANGING, FOLLOWING), COMMITTING)
_REMEMBERED: Final = 20


class Durations:
    """How long stages usually take, over all processes. Seconds."""

    def __init__(self) -> None:
        self._known: dict[str, deque[float]] = {}

    def took(self, stage: str, seconds: float) -> None:
        """One more."""
        self._known.setdefault(stage, deque(maxlen=_REMEMBERED)).append(seconds)

    def usual(self, stage: str, *, otherwise: float) -> float:
        """The median of the last ones."""
        known = self._known.get(stage)
        return median(known) if known else otherwise


class Phases:
    """What one process tells. Its own thread reads; `close` waits for the end of the pipe."""

    def __init__(self, pipe: BinaryIO, durations: Durations) -> None:
        self.now = STARTING
        self.has_told = False
        """Once it has, the command can be stopped in order."""
        self._stage = STARTING
        self._since_ns = time.monotonic_ns()
        self._stages = 0
        """How many began."""
        self._durations = durations
        self._pipe = pipe
        self._is_over = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._read, name="phases", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """After the process's end: `now` is then the phase that it ended in."""
        self._thread.join()

    def wait_for(self, stage: str, seconds: float) -> bool:
        """Wait until it begins; False if the process ends, or does not get there in time."""

        def has_begun() -> bool:
            return self._is_over or (self._stages > before and self._stage == stage)

        with self._changed:
            # The one that it is in now may be over at any moment: only a new one will do.
            before = self._stages
            self._changed.wait_for(has_begun, seconds)
            return self._stage == stage and self._stages > before

    def _read(self) -> None:
        with self._pipe:
            for line in self._pipe:
                at_ns, phase = line.decode().split()
                with self._changed:
                    self._take(int(at_ns), phase)
                    self._changed.notify_all()
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def _take(self, at_ns: int, phase: str) -> None:
        stage = _STAGES.get(phase, phase)
        if stage != self._stage:
            self._durations.took(self._stage, (at_ns - self._since_ns) / 1e9)
            self._stage, self._since_ns = stage, at_ns
            self._stages += 1
        self.now = phase
        self.has_told = True
