"""A way to a broker that can be held up: what clients send is not taken until it is let through."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from tests.client.conftest import PATIENCE_S, BrokerThread

_RECEIVE_BYTES = 64 * 1024
"""So little is taken while nothing is let through."""


class Stalling:
    """Passes bytes on in both directions."""

    def __init__(self) -> None:
        self.target = ("", 0)
        self._passes = threading.Event()
        self._passes.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BYTES)
        self.port = int(self._listener.getsockname()[1])
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def hold(self) -> None:
        """Let nothing through any more, in either direction."""
        self._passes.clear()

    def release(self) -> None:
        """Let everything through."""
        self._passes.set()

    def close(self) -> None:
        self.release()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(PATIENCE_S)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(near,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, near: socket.socket) -> None:
        with near, socket.create_connection(self.target) as far:
            back = threading.Thread(target=self._copy, args=(far, near))
            back.start()
            self._copy(near, far)
            back.join(PATIENCE_S)

    def _copy(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                self._passes.wait()
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            for each in (source, sink):  # one side has hung up: so does the other
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)


@contextmanager
def behind(start_broker_at: Callable[..., BrokerThread]) -> Iterator[tuple[Stalling, Any]]:
    """A broker that clients reach only through this; and the settings of such a client."""
    way = Stalling()
    try:
        broker = start_broker_at(f"advertised.listeners=PLAINTEXT://127.0.0.1:{way.port}")
        way.target = ("127.0.0.1", broker.port)
        yield way, {"bootstrap.servers": f"127.0.0.1:{way.port}", "retry.backoff.ms": 10}
    finally:
        way.close()
