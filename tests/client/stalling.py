"""A way to a broker that can be held up: what clients send is not taken until it is let through."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from tests.client.between import Between
from tests.client.conftest import PATIENCE_S, BrokerThread


class Stalling(Between):
    """Passes bytes on in both directions."""

    receive_bytes = 64 * 1024  # so little is taken while nothing is let through

    def __init__(self) -> None:
        self._passes = threading.Event()
        self._passes.set()
        super().__init__()

    def hold(self) -> None:
        """Let nothing through any more, in either direction."""
        self._passes.clear()

    def release(self) -> None:
        """Let everything through."""
        self._passes.set()

    def close(self) -> None:
        """See `Between`; what is held up is let through."""
        self.release()
        super().close()

    def serve(self, near: socket.socket) -> None:
        """See `Between`."""
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
