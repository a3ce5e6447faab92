"""The threads that compact: each carries out one round, and the node hears of what comes of it.

A round runs in a thread of its own with files of its own; the hot loops let go of the interpreter
(`records._kernels.compact`). All rounds share one throttle. This file knows threads and waiting; it
decides nothing about a log.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from threading import Event, Lock
from typing import Final

from strandline.errors import StorageError, StrandlineError
from strandline.node.effects import CleanLog, ExamineLog
from strandline.node.node import Node
from strandline.storage.compaction.cleaning import CleaningAborted, Uncleanable, carry_out
from strandline.storage.compaction.dry_run import DryRun, dry_run
from strandline.storage.compaction.throttle import Throttle
from strandline.storage.files import NoRoom
from strandline.storage.real_files import RealFiles
from strandline.types import Instant

log = logging.getLogger(__name__)

THREADS_MAX: Final = 32
_OPEN_HANDLES_MAX: Final = 64
_UNTHROTTLED: Final = 1e15
"""Bytes per second that no disk reaches."""

Tell = Callable[[Callable[[Instant], None]], None]


class Cleaners:
    """See the module. All methods are called from the loop's thread."""

    def __init__(self, node: Node, tell: Tell) -> None:
        """`tell` hands an event to the node, in the loop's thread."""
        self._node = node
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        self._threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="strandline-cleaner")
        self._paces: dict[int, _Pace] = {}
        self._running: set[asyncio.Future[None]] = set()
        self._limit = _Limit()

    def clean(self, effect: CleanLog) -> None:
        """Begin a round."""
        pace = self._paces[effect.token] = _Pace(self._limit)
        try:
            self._run(partial(self._clean, effect, pace))
        except RuntimeError as error:
            self._not_started(pace, partial(self._ended, effect.token, _no_thread(error)))

    def examine(self, effect: ExamineLog) -> None:
        """Begin a dry run."""
        pace = self._paces[effect.token] = _Pace(self._limit)
        try:
            self._run(partial(self._examine, effect, pace))
        except RuntimeError as error:
            self._not_started(pace, partial(self._examined, effect.token, _no_thread(error)))

    def stop_round(self, token: int) -> None:
        """Have a round end soon, if it still runs."""
        pace = self._paces.get(token)
        if pace is not None:
            pace.stop.set()

    def set_pace(self, bytes_per_second: float) -> None:
        """All rounds together read and write at most so much from now on."""
        self._limit.change(bytes_per_second)

    async def close(self) -> None:
        """End all rounds, and wait until they have."""
        for pace in self._paces.values():
            pace.stop.set()
        while self._running:
            await asyncio.wait(self._running)
        self._threads.shutdown()  # at once, since nothing runs; another thread may not be had

    def abandon(self) -> None:
        """End all rounds without waiting."""
        for pace in self._paces.values():
            pace.stop.set()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def ended(self) -> None:
        """Wait for the rounds that were abandoned."""
        if self._running:
            await asyncio.wait(self._running)

    # -- In a thread -------------------------------------------------------------------------

    def _run(self, work: Callable[[], None]) -> None:
        running = self._loop.run_in_executor(self._threads, work)
        self._running.add(running)
        running.add_done_callback(self._running.discard)

    def _clean(self, effect: CleanLog, pace: _Pace) -> None:
        error: StrandlineError | None = None
        try:
            for result in carry_out(effect.plan, RealFiles(_OPEN_HANDLES_MAX), pace):
                self._say(partial(self._node.log_cleaned, effect.token, result))
        except (CleaningAborted, Uncleanable, StorageError) as ended:
            error = ended
        except Exception as bug:
            log.exception("%s could not be compacted", effect.plan.topic_partition)
            error = Uncleanable(f"{effect.plan.topic_partition} cannot be compacted: {bug}")
        self._say(partial(self._ended, effect.token, error))

    def _examine(self, effect: ExamineLog, pace: _Pace) -> None:
        outcome: DryRun | StrandlineError
        try:
            outcome = dry_run(effect.plan, RealFiles(_OPEN_HANDLES_MAX), pace)
        except (CleaningAborted, Uncleanable, StorageError) as error:
            outcome = error
        except Exception as bug:
            log.exception("%s could not be examined", effect.plan.topic_partition)
            outcome = Uncleanable(f"{effect.plan.topic_partition} cannot be examined: {bug}")
        self._say(partial(self._examined, effect.token, outcome))

    def _say(self, event: Callable[[Instant], None]) -> None:
        # The event loop has ended: the next start of the broker clears up.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._tell, event)

    # -- In the loop's thread again ----------------------------------------------------------

    def _not_started(self, pace: _Pace, event: Callable[[Instant], None]) -> None:
        """There is no thread for a round. The pool may do it nevertheless when one is free; then it
        ends at once, and the node has heard of its end before."""
        pace.stop.set()
        self._loop.call_soon(self._tell, event)

    def _ended(self, token: int, error: StrandlineError | None, now: Instant) -> None:
        if self._paces.pop(token, None) is None:
            return
        self._node.cleaning_ended(token, error, now)

    def _examined(self, token: int, outcome: DryRun | StrandlineError, now: Instant) -> None:
        if self._paces.pop(token, None) is None:
            return
        self._node.log_examined(token, outcome, now)


def _no_thread(error: RuntimeError) -> NoRoom:
    return NoRoom(f"There is no thread to compact in: {error}.")


class _Limit:
    """One throttle for all threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._throttle: Throttle | None = None

    def change(self, bytes_per_second: float) -> None:
        with self._lock:
            self._throttle = (
                None if bytes_per_second >= _UNTHROTTLED else Throttle(bytes_per_second)
            )

    def delay_ms(self, byte_count: int) -> int:
        """How long who has read or written so much has to wait."""
        if self._throttle is None:
            return 0
        with self._lock:
            throttle = self._throttle
            now_ms = time.monotonic_ns() // 1_000_000
            return 0 if throttle is None else throttle.delay_ms(byte_count, now_ms)


class _Pace:
    """The pace of one round."""

    def __init__(self, limit: _Limit) -> None:
        self.stop = Event()
        self._limit = limit

    def spend(self, byte_count: int) -> None:
        """See `Pace`: waits as long as it must, and ends the round when it is to stop."""
        delay_ms = self._limit.delay_ms(byte_count)
        if self.stop.wait(delay_ms / 1000) if delay_ms > 0 else self.stop.is_set():
            raise CleaningAborted("The broker asked it to stop.")
