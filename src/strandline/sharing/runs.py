"""Records in flight as runs of offsets that are in the same state.

    available ── acquired by a member ──> acquired ── accepted ──────────> acknowledged
        ^                                   │  │
        └── released, or the lock is over ──┘  └── rejected, or too often ──> archived

A share partition's window goes from its start to its end; its runs cover it without a gap, in
order. What lies before the start is done; what lies behind the end was not handed out yet.
This file knows offsets and states. It must not know what members may do, nor time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final, NamedTuple

from strandline.errors import InvariantViolated


class RecordState(IntEnum):
    """The states of a record, by Kafka's numbers; ACQUIRED is never stored."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4


DONE: Final = frozenset({RecordState.ACKNOWLEDGED, RecordState.ARCHIVED})
"""States that a record does not leave."""


class StateBatch(NamedTuple):
    """Records in the same state, as they are stored."""

    first: int
    last: int
    state: RecordState
    deliveries: int


@dataclass(frozen=True, slots=True)
class Held:
    """Who has acquired a run, and until when (monotonic ms)."""

    member_id: str
    until_ms: int


@dataclass(frozen=True, slots=True)
class Status:
    """What is the same for all records of a run."""

    state: RecordState = RecordState.AVAILABLE
    deliveries: int = 0
    """How often it was handed out."""
    held: Held | None = None
    """Of an acquired run; of one that `write` is about, whose it was before."""
    write: int = 0
    """The write that has to succeed for the state to count; 0: none. Nothing else may change the
    run meanwhile."""

    @property
    def is_available(self) -> bool:
        """Whether a member may have it."""
        return self.state is RecordState.AVAILABLE and not self.write

    @property
    def is_done(self) -> bool:
        """Whether it was handed out for the last time, for good."""
        return self.state in DONE and not self.write


NEW: Final = Status()


class Run(NamedTuple):
    """Offsets `first` to `last`, both included."""

    first: int
    last: int
    status: Status


class Runs:
    """The window of one share partition. `start` is its first offset, also when it is empty."""

    def __init__(self, start: int) -> None:
        self.start = start
        self._firsts: list[int] = []
        self._runs: list[Run] = []

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs)

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def end(self) -> int:
        """The last offset of the window; one before `start` if there is none."""
        return self._runs[-1].last if self._runs else self.start - 1

    @property
    def size(self) -> int:
        """How many offsets are in the window."""
        return self.end - self.start + 1

    def within(self, first: int, last: int) -> list[Run]:
        """The runs between two offsets, cut to them."""
        found = []
        for run in self._runs[max(0, bisect_right(self._firsts, first) - 1) :]:
            if run.first > last:
                break
            if run.last >= first:
                found.append(Run(max(run.first, first), min(run.last, last), run.status))
        return found

    def put(self, runs: Iterable[Run]) -> None:
        """Give ranges of offsets another status. One that begins behind the end begins right
        behind it, and makes the window longer; what is before the start is left out."""
        for run in runs:
            first = max(run.first, self.start)
            if first > run.last:
                continue
            if first > self.end + 1:
                raise InvariantViolated(f"Offset {first} leaves a gap behind {self.end}.")
            self._replace(Run(first, run.last, run.status))

    def _replace(self, new: Run) -> None:
        at = max(0, bisect_right(self._firsts, new.first) - 1)
        stop = bisect_right(self._firsts, new.last)
        touched = self._runs[at:stop]
        pieces = [
            *(
                Run(old.first, min(old.last, new.first - 1), old.status)
                for old in touched
                if old.first < new.first
            ),
            new,
            *(
                Run(max(old.first, new.last + 1), old.last, old.status)
                for old in touched
                if old.last > new.last
            ),
        ]
        # Neighbours on either side may be in the same state now.
        if at > 0:
            at -= 1
            pieces.insert(0, self._runs[at])
        if stop < len(self._runs):
            pieces.append(self._runs[stop])
            stop += 1
        merged = list(_merged(pieces))
        self._runs[at:stop] = merged
        self._firsts[at:stop] = [run.first for run in merged]

    def raise_start(self, start: int) -> None:
        """Forget all before an offset, in whatever state."""
        if start <= self.start:
            return
        self.start = start
        kept = [
            run if run.first >= start else Run(start, run.last, run.status)
            for run in self._runs
            if run.last >= start
        ]
        self._runs, self._firsts = kept, [run.first for run in kept]

    def check(self) -> None:
        """Verify that the window is covered without a gap."""
        expected = self.start
        for run, first in zip(self._runs, self._firsts, strict=True):
            if run.first != expected or first != expected or run.last < run.first:
                raise InvariantViolated(f"The window of records has a gap at {expected}.")
            expected = run.last + 1


def _merged(runs: Iterable[Run]) -> Iterator[Run]:
    current: Run | None = None
    for run in runs:
        if current is None:
            current = run
        elif run.status == current.status:
            current = Run(current.first, run.last, current.status)
        else:
            yield current
            current = run
    if current is not None:
        yield current


def restored(status: Status) -> Status:
    """The status before the write that did not succeed."""
    return replace(status, state=RecordState.ACQUIRED, write=0)
