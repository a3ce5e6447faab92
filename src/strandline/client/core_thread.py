"""A thread that drives a sans-I/O core by blocking connections, for a program in another thread.

    program ── calls, wake ──> core <── answers ── thread
            <── changed ──────       ── requests ──>

Both share the core under one lock, which is never held while something is waited for. This file
must not know what the core is for: `group_thread` and `share_thread` do.
"""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Callable
from typing import Final, Protocol

from strandline.client.asking import Asking
from strandline.client.cluster import ClusterClient
from strandline.client.coordinator_client import Ask, Outcome

_ABANDONED_MS: Final = 3_000
"""How long brokers are waited for to hear a goodbye that no program waits for."""


class Core(Protocol):
    """What is driven. Times are milliseconds of the cluster client's clock."""

    @property
    def is_leaving(self) -> bool:
        """Whether a goodbye has no answer yet."""

    @property
    def wake_ms(self) -> int | None:
        """When `step` has something to do, if nothing happens before; None: never."""

    def step(self, now_ms: int) -> list[Ask]:
        """Do what is due; the requests to send, in this order."""

    def answered(self, ask: Ask, outcome: Outcome, now_ms: int) -> None:
        """What became of a request."""


class CoreThread:
    """See the module."""

    def __init__(
        self,
        core: Core,
        cluster: ClusterClient,
        name: str,
        *,
        leave: Callable[[int], None],
        turned: Callable[[], None] | None = None,
    ) -> None:
        """The connections of `cluster`, which is the thread's from now on, are used, and others
        for what brokers keep waiting. `leave` has the core leave, at a time, and `turned` is
        called after each step, both under the lock."""
        self.changed = threading.Condition()
        """Guards the core; notified after each turn of the thread."""
        self.failure: BaseException | None = None
        """Why the thread has ended."""
        self._core = core
        self._leave = leave
        self._is_abandoned = False
        self._turned = turned or _nothing
        self._cluster = cluster
        self._waiting = ClusterClient(
            cluster.bootstrap, cluster.settings, clock=cluster.clock, router=cluster.router
        )
        self._clock = cluster.clock
        self._closes_at_ms: int | None = None
        self._asking = Asking(cluster, self._answered, self._waiting)
        self._sleeper, self._waker = socket.socketpair()
        self._sleeper.setblocking(False)
        self._waker.setblocking(False)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    # -- The program -------------------------------------------------------------------------

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    @property
    def now_ms(self) -> int:
        """The time."""
        return self._clock.monotonic_ms()

    def raise_failure(self) -> None:
        """Raise what the thread has ended of, if it has."""
        if self.failure is not None:
            raise self.failure

    def wake(self) -> None:
        """The core may have something to do."""
        try:
            self._waker.send(b"\0")
        except BlockingIOError:
            return  # it has enough to wake up for

    def wait_for(self, condition: Callable[[], object], timeout_ms: int | None = None) -> None:
        """Wait until something holds, or the time is up; to be called under the lock. Raises what
        the thread has ended of."""
        timeout_s = None if timeout_ms is None else timeout_ms / 1000
        self.changed.wait_for(lambda: condition() or self.failure, timeout_s)
        self.raise_failure()

    def close(self, timeout_ms: int) -> None:
        """Have the core leave, and end the thread as soon as it has, or the time is up."""
        with self.changed:
            self._begin_to_end(timeout_ms)
        self.wake()
        self._thread.join()
        self._release()

    def abandon(self) -> None:
        """Leave and end without the program, which has dropped it. Takes no lock and waits for
        nothing: the garbage collector calls this amid whatever is done."""
        if self._thread.is_alive():
            self._is_abandoned = True
            self.wake()

    def _begin_to_end(self, timeout_ms: int) -> None:
        self._leave(self.now_ms)
        self._closes_at_ms = self.now_ms + timeout_ms

    def _release(self) -> None:
        self._cluster.close()
        self._waiting.close()
        self._sleeper.close()
        self._waker.close()

    # -- The thread --------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._turn():
                self._asking.take_arrived(self.now_ms)
        except BaseException as error:
            with self.changed:
                self.failure = error
                self.changed.notify_all()
            raise
        if self._is_abandoned:
            self._release()

    def _turn(self) -> bool:
        """Do what is due, then wait for what comes next; False when all is over."""
        while True:
            with self.changed:
                if self._is_abandoned and self._closes_at_ms is None:
                    self._begin_to_end(_ABANDONED_MS)
                asks = self._core.step(self.now_ms)
                self._turned()
                self.changed.notify_all()
                wake_ms, closes_at_ms = self._core.wake_ms, self._closes_at_ms
            if not asks:
                break
            for ask in asks:
                self._asking.send(ask)
        if closes_at_ms is not None and (
            # It has left: what is said to that is waited for, not for long.
            not self._core.is_leaving or self.now_ms >= closes_at_ms
        ):
            return False
        self._sleep(wake_ms, closes_at_ms)
        return True

    def _sleep(self, *until_ms: int | None) -> None:
        times = [each.pending.deadline for each in self._asking.in_flight]
        times.extend(each for each in until_ms if each is not None)
        poller = select.poll()
        poller.register(self._sleeper, select.POLLIN)
        for each in self._asking.in_flight:
            if each.pending.is_done or each.connection.closed:
                return
            poller.register(each.connection, select.POLLIN)
        if poller.poll(None if not times else max(0, min(times) - self.now_ms)):
            try:
                self._sleeper.recv(4096)
            except BlockingIOError:
                return  # an answer came

    def _answered(self, ask: Ask, outcome: Outcome) -> None:
        with self.changed:
            self._core.answered(ask, outcome, self.now_ms)


def _nothing() -> None:
    """There is nothing to do after a step."""
