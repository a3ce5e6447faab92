"""TLS handshakes under way, of clients and of links: limited in number and time.

Each step of a handshake is milliseconds of arithmetic, so it is done in one of a few threads; the
loop waits for the socket in between and serves others. A handshake that stalls is given up after
its time. When there are too many, the one that has waited longest of the address with the most
makes room: a client that opens connections and says nothing pushes out its own.

    begin ──> the loop waits ──> step in a thread ── wants bytes ──> the loop waits ──> step ...
                                     ├── done ──> done(None)
                                     └── failed, timed out, pushed out ──> done(the error); the
                                         socket is closed

What the loop does for a handshake is done among the newcomers: floods of them wait for each other,
not those who are served already. A client speaks first, so that one which says nothing costs no
step.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from strandline.broker.newcomers import Newcomers
from strandline.broker.tls_socket import TlsSocket
from strandline.broker.worker import Worker
from strandline.errors import StorageError

HANDSHAKES_MAX: Final = 256
_THREADS: Final = 2
_DRAINED_BYTES: Final = 64 * 1024

Done = Callable[[OSError | None], None]


class Handshake:
    """One handshake. `host` is the address that it counts for."""

    __slots__ = ("done", "host", "is_over", "sock", "timer")

    def __init__(self, sock: TlsSocket, host: str, done: Done) -> None:
        self.sock = sock
        self.host = host
        self.done = done
        self.is_over = False
        self.timer: asyncio.TimerHandle | None = None


class Handshakes:
    """See the module. All methods belong to the event loop on which it is made."""

    def __init__(self, newcomers: Newcomers, handshakes_max: int = HANDSHAKES_MAX) -> None:
        self._loop = asyncio.get_running_loop()
        self._newcomers = newcomers
        self._max = handshakes_max
        self._threads: deque[Worker] = deque()
        self._under_way: dict[Handshake, None] = {}
        """In the order in which they began."""
        self._stepping: set[Handshake] = set()
        """Those at which a thread is, which must come back before the socket may be closed."""

    def __len__(self) -> int:
        return len(self._under_way)

    def begin(self, sock: TlsSocket, host: str, timeout_s: float, done: Done) -> Handshake:
        """Do the handshake of a socket that does not block; `done` is called later, once."""
        if len(self._under_way) >= self._max:
            self._fail(self._victim(), TimeoutError("it made room for others"))
        handshake = Handshake(sock, host, done)
        self._under_way[handshake] = None
        handshake.timer = self._loop.call_later(
            timeout_s, self._fail, handshake, TimeoutError("it took too long")
        )
        if sock.tls.server_side:
            self._newcomers.add_reader(sock.fileno(), self._step, handshake)
        else:
            self._step(handshake)
        return handshake

    def give_up(self, handshake: Handshake) -> None:
        """End one, unless it has ended (`close` ends all); its `done` is not called."""
        if not handshake.is_over:
            self._end(handshake)
            self._close(handshake)

    def close(self) -> None:
        """End all of them, also what the threads are at; no `done` is called."""
        for handshake in list(self._under_way):
            self.give_up(handshake)
        for thread in self._threads:
            # Milliseconds: no step waits for its socket. The loop may end before it hears of them.
            thread.shutdown(wait=True)
        for handshake in list(self._stepping):
            handshake.sock.close()

    def _victim(self) -> Handshake:
        counts = Counter(each.host for each in self._under_way)
        host, _ = counts.most_common(1)[0]
        return next(each for each in self._under_way if each.host == host)

    # -- Steps -------------------------------------------------------------------------------

    def _step(self, handshake: Handshake) -> None:
        self._newcomers.remove_reader(handshake.sock.fileno())
        self._newcomers.remove_writer(handshake.sock.fileno())
        try:
            thread = self._next_thread()
        except StorageError as error:
            self._newcomers.later(partial(self._stepped, handshake, error))
            return
        self._stepping.add(handshake)
        future = self._loop.run_in_executor(thread, handshake.sock.do_handshake)
        future.add_done_callback(partial(self._came_back, handshake))

    def _next_thread(self) -> Worker:
        """They begin with the first steps, and take turns. Raises `StorageError` if the system has
        none left. (A pool of several would keep the step, and do it at a socket that is closed.)
        """
        if len(self._threads) < _THREADS:
            try:
                self._threads.append(Worker("strandline-tls"))
            except StorageError:
                if not self._threads:
                    raise
        self._threads.rotate()
        return self._threads[0]

    def _came_back(self, handshake: Handshake, future: asyncio.Future[None]) -> None:
        self._stepping.discard(handshake)
        error = None if future.cancelled() else future.exception()
        if handshake.is_over:
            handshake.sock.close()
        else:
            self._newcomers.later(partial(self._stepped, handshake, error))

    def _stepped(self, handshake: Handshake, error: BaseException | None) -> None:
        if handshake.is_over:
            return
        if isinstance(error, ssl.SSLWantReadError):
            self._newcomers.add_reader(handshake.sock.fileno(), self._step, handshake)
        elif isinstance(error, ssl.SSLWantWriteError):
            self._newcomers.add_writer(handshake.sock.fileno(), self._step, handshake)
        elif error is None:
            self._end(handshake)
            handshake.done(None)
        else:
            failed = error if isinstance(error, OSError) else OSError(str(error))
            self._fail(handshake, failed)

    # -- Ends --------------------------------------------------------------------------------

    def _fail(self, handshake: Handshake, error: OSError) -> None:
        self._end(handshake)
        handshake.done(error)
        self._close(handshake)

    def _end(self, handshake: Handshake) -> None:
        handshake.is_over = True
        self._under_way.pop(handshake, None)
        if handshake.timer is not None:
            handshake.timer.cancel()
        if handshake not in self._stepping:
            self._newcomers.remove_reader(handshake.sock.fileno())
            self._newcomers.remove_writer(handshake.sock.fileno())

    def _close(self, handshake: Handshake) -> None:
        if handshake in self._stepping:
            return
        # A socket that is closed with unread input is reset, and the alert that says why is lost.
        with suppress(OSError):
            handshake.sock.raw.shutdown(socket.SHUT_WR)
            handshake.sock.raw.recv(_DRAINED_BYTES)
        handshake.sock.close()


def reason_of(error: OSError) -> str:
    """What OpenSSL or the system says of a failure."""
    reason = getattr(error, "reason", None)
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verify failed: {error.verify_message}"
    if reason:
        return str(reason).replace("_", " ").lower()  # OpenSSL's constants
    return str(error.strerror or error)
