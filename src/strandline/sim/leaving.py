"""The clean shutdown of a simulated process: as `broker.running` and `broker.server` do it.

    leadership is given away ── what is under way ends ── logs are closed ── the session is closed

A crash may come at any step. This file knows the order, and when to wait no longer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from strandline.sim.cleaner_threads import CleanerThreads
from strandline.sim.connections import Connections
from strandline.sim.running_process import RunningProcess
from strandline.sim.sync_thread import SyncThread

_PATIENCE_US: Final = 60_000_000
_ROUNDS_MAX: Final = 100
"""Turns in which metadata writes and syncs may end: what they bring about may be more of them."""


class LeavingProcess(RunningProcess, Protocol):
    """A process that has a node, and all its parts."""

    connections: Connections
    sync_thread: SyncThread
    cleaners: CleanerThreads
    unanswered: int
    """Metadata writes whose outcome the node has not heard."""

    def want_turn(self) -> None:
        """End the turn when everything of this moment has happened."""


class Leaving:
    """See the module. Looks at every turn whether it can go on."""

    def __init__(self, process: LeavingProcess, then: Callable[[bool], None]) -> None:
        """`then` hears whether all logs were closed cleanly."""
        self._process = process
        self._then = then
        self._rounds = 0
        schedule = process.world.schedule
        self._until_us = schedule.now_us + _PATIENCE_US
        process.node.begin_shutdown(process.now)
        schedule.at(self._until_us, process.want_turn)

    def go_on(self, _: None) -> None:
        """A turn has ended."""
        process = self._process
        is_overdue = process.world.schedule.now_us >= self._until_us
        if not is_overdue and not process.node.is_shutdown_complete:
            return
        process.connections.stop_accepting()
        is_at_work = (
            process.unanswered or process.sync_thread.is_at_work or process.cleaners.is_at_work
        )
        if is_at_work and self._rounds < _ROUNDS_MAX:
            self._rounds += 1
            return
        process.connections.close_all()
        clean = process.node.stop(process.node.oldest_valid_broker_epoch)
        process.machine.stopped()
        self._then(clean)
