"""Keeps the runs of many tables going: one thread each, begun again after a failure.

Theory: a table's run already survives what passes by itself. What ends it is a verdict, or trouble
that lasts, and both concern this table alone; the answer is to say why, to wait longer each time,
and to try again, while the others go on. One verdict is final: if another run took the table over,
beginning again would take it back, and the two would go on so without end.

This file knows threads and errors. What a run is, it is given.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from strandline.errors import ProtocolError
from strandline.lakehouse.pipeline.events import Event, Notice, Stopped
from strandline.lakehouse.service.live import LiveTable, State, TableFacts
from strandline.lakehouse.service.restarting import FIRST_S, MOST_S, Backoff
from strandline.lakehouse.tables.errors import FencedWriter

if TYPE_CHECKING:
    from strandline.lakehouse.pipeline.runner import StopRequest

log = logging.getLogger(__name__)

_LOOK_S: Final = 0.2

Tell: TypeAlias = Callable[[Event], None]
Run: TypeAlias = "Callable[[Tell, StopRequest], Stopped]"
"""Runs a table until it is up to date, or until it is told to stop."""


class SupervisedTable(NamedTuple):
    """A table as the supervisor sees it."""

    name: str
    run: Run


@dataclass(slots=True)
class StopFlag:
    """Asks all runs to end after a last commit; once set, it stays so."""

    is_set: bool = False


@dataclass(frozen=True, slots=True)
class Policy:
    """How failures are met. `once` runs each table to the end of its topics, a single time."""

    first_s: float = FIRST_S
    most_s: float = MOST_S
    once: bool = False


@dataclass(slots=True)
class Supervisor:
    """See the module. `tell` gets each table's name and events, in the table's thread."""

    tables: Sequence[SupervisedTable]
    live: Mapping[str, LiveTable]
    tell: Callable[[str, Event], None]
    policy: Policy = field(default_factory=Policy)
    stop: StopFlag = field(default_factory=StopFlag)
    _threads: dict[str, threading.Thread] = field(default_factory=dict)

    def start(self) -> None:
        """Begin all runs."""
        for table in self.tables:
            thread = threading.Thread(
                target=self._keep_running, args=(table,), name=f"table-{table.name}", daemon=True
            )
            self._threads[table.name] = thread
            thread.start()

    def wait(self, stop: StopRequest) -> None:
        """Until every run has ended for good; `stop` is passed on to all of them."""
        for thread in self._threads.values():
            while thread.is_alive():
                self.stop.is_set = self.stop.is_set or stop.is_set
                thread.join(_LOOK_S)

    @property
    def lost(self) -> list[str]:
        """Tables whose thread is gone although their run did not end: a fault of this program."""
        ended = (State.STOPPED, State.YIELDED, State.FAILED if self.policy.once else None)
        return [
            name
            for name, thread in self._threads.items()
            if not thread.is_alive() and self.live[name].facts.state not in ended
        ]

    def facts(self) -> list[TableFacts]:
        """All tables, as they are now."""
        return [self.live[table.name].facts for table in self.tables]

    def _keep_running(self, table: SupervisedTable) -> None:
        backoff = Backoff(self.policy.first_s, self.policy.most_s)
        live = self.live[table.name]

        def tell(event: Event) -> None:
            live.tell(event)
            self.tell(table.name, event)

        while not self.stop.is_set:
            live.begins()
            before = live.facts.commits
            try:
                table.run(tell, self.stop)
            except FencedWriter as error:
                live.ends(State.YIELDED, str(error))
                self.tell(table.name, Notice(f"{error} It is left to that run."))
                return
            # The boundary: whatever ends one table's run must not end the others'.
            except Exception as error:
                log.debug("The run of %s failed", table.name, exc_info=error)
                reason = sentence_of(error)
                live.ends(State.FAILED, reason)
                if self.policy.once:
                    self.tell(table.name, Notice(reason))
                    return
                pause_s = backoff.after_failure(has_committed=live.facts.commits > before)
                self.tell(table.name, Notice(f"{reason} Beginning again in {pause_s:,.0f} s."))
                self._pause(pause_s)
            else:
                break
        live.ends(State.STOPPED, live.facts.reason)

    def _pause(self, seconds: float) -> None:
        slept_s = 0.0
        while not self.stop.is_set and slept_s < seconds:
            threading.Event().wait(min(_LOOK_S, seconds - slept_s))
            slept_s += _LOOK_S


def sentence_of(error: Exception) -> str:
    """Why a run ended, for people."""
    if isinstance(error, ProtocolError):
        return error.sentence
    text = str(error) or type(error).__name__
    return text if text.endswith(".") else f"{text}."
