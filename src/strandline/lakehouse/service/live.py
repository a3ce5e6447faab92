"""What is known of each table while a service runs: its state, and what its runs have done.

The thread that runs a table tells it what happens; others read copies. This file must know neither
threads' lives nor HTTP.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import assert_never

from strandline.lakehouse.pipeline.events import Committed, Event, Notice, Started, Stopped
from strandline.lakehouse.pipeline.lag import Lag


class State(Enum):
    """Of one table's run."""

    STARTING = "starting"
    RUNNING = "running"
    FAILED = "failed"
    """It ended with an error, and will be begun again."""
    YIELDED = "yielded"
    """Another run took the table over; this one is not begun again."""
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class TableFacts:
    """One table at a moment; totals are since the service began."""

    name: str
    state: State = State.STARTING
    reason: str | None = None
    """Why it failed or yielded."""
    restarts: int = 0
    commits: int = 0
    commit_seconds: float = 0.0
    """Of all commits together."""
    last_commit_ms: int | None = None
    rows: int = 0
    late_rows: int = 0
    dead_letters: int = 0
    dropped: int = 0
    lag: Lag | None = None
    held: tuple[tuple[str, int, int, int], ...] = ()
    """Of the table (`rows`) and each of its side tables: name, rows, files, bytes."""

    @property
    def is_ready(self) -> bool:
        """Whether it is being brought further, or was brought as far as asked."""
        return self.state in (State.RUNNING, State.STOPPED)


class LiveTable:
    """The facts of one table, for several threads."""

    def __init__(self, name: str, wall_ms: Callable[[], int]) -> None:
        self._lock = threading.Lock()
        self._facts = TableFacts(name)
        self._wall_ms = wall_ms

    @property
    def facts(self) -> TableFacts:
        """As they are now."""
        with self._lock:
            return self._facts

    def begins(self) -> None:
        """A run is about to begin; not for the first time if one failed before."""
        with self._lock:
            again = self._facts.state is State.FAILED
            self._facts = replace(
                self._facts, state=State.STARTING, restarts=self._facts.restarts + again
            )

    def ends(self, state: State, reason: str | None = None) -> None:
        """A run ended."""
        with self._lock:
            self._facts = replace(self._facts, state=state, reason=reason)

    def looked_at(self, lag: Lag | None, held: tuple[tuple[str, int, int, int], ...]) -> None:
        """The table and its topics were asked how far it is, and what it holds."""
        with self._lock:
            self._facts = replace(self._facts, lag=lag, held=held)

    def tell(self, event: Event) -> None:
        """Something happened in its run."""
        with self._lock:
            self._facts = self._after(self._facts, event)

    def _after(self, facts: TableFacts, event: Event) -> TableFacts:
        match event:
            case Started():
                return replace(facts, state=State.RUNNING, reason=None, lag=event.lag)
            case Committed():
                return replace(
                    facts,
                    commits=facts.commits + 1,
                    commit_seconds=facts.commit_seconds + event.seconds,
                    last_commit_ms=self._wall_ms(),
                    rows=facts.rows + event.rows,
                    late_rows=facts.late_rows + event.late_rows,
                    dead_letters=facts.dead_letters + event.dead_letters,
                    dropped=facts.dropped + event.dropped,
                    lag=event.lag or facts.lag,
                )
            case Notice():
                return facts
            case Stopped():
                return replace(facts, lag=event.lag or facts.lag)
            case _:
                assert_never(event)
