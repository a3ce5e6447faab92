"""A TCP proxy in a thread, to take the network between a client and one server away.

`cut` lets connections hang: bytes are neither read nor sent, and new connections are accepted by
no server. `drop` breaks the connections that there are. `swallow_replies` lets requests through and
loses everything that comes back, so that a client cannot know whether its write happened.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType
from typing import Final

_CHUNK: Final = 65536
_PATIENCE_S: Final = 60.0


class TcpProxy:
    """Forwards connections of `address` to a target. Started when made; `close` it."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._begin(socket.create_server(("127.0.0.1", 0)))
        self.host, self.port = self._listener.getsockname()[:2]

    def _dial(self) -> socket.socket:
        return socket.create_connection(self._target, timeout=_PATIENCE_S)

    def _begin(self, listener: socket.socket) -> None:
        self._listener = listener
        self._selector = selectors.DefaultSelector()
        self._peer: dict[socket.socket, socket.socket] = {}
        self._servers: set[socket.socket] = set()
        self._is_cut = False
        self._loses_replies = False
        self.lost_bytes = 0
        self._waker, self._wake = socket.socketpair()
        self._calls: list[tuple[Callable[[], None], Future[None]]] = []
        self._is_closed = False
        self._selector.register(self._waker, selectors.EVENT_READ)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="tcp-proxy", daemon=True)
        self._thread.start()

    def __enter__(self) -> TcpProxy:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def address(self) -> str:
        """Where clients connect instead."""
        return f"{self.host}:{self.port}"

    def cut(self) -> None:
        """Let everything hang until `heal`."""
        self._call(lambda: self._set_cut(True))

    def heal(self) -> None:
        """End `cut` and `swallow_replies`; connections whose replies were lost are broken."""
        self._call(self._heal)

    def drop(self) -> None:
        """Break all connections; new ones are welcome."""
        self._call(self._drop)

    def swallow_replies(self) -> None:
        """Lose what the server sends, from now on; `lost_bytes` counts it."""
        self._call(self._start_losing)

    def close(self) -> None:
        """Break everything and stop."""
        if not self._is_closed:
            self._call(self._close)
            self._thread.join(_PATIENCE_S)

    # -- in the proxy's thread ---------------------------------------------------------------

    def _call(self, function: Callable[[], None]) -> None:
        done: Future[None] = Future()
        self._calls.append((function, done))
        self._wake.send(b"x")
        done.result(_PATIENCE_S)

    def _run(self) -> None:
        while not self._is_closed:
            for key, _ in self._selector.select():
                if key.fileobj is self._waker:
                    self._waker.recv(_CHUNK)
                    self._carry_out_calls()
                    break  # what was ready may be closed or not be watched any more
                if key.fileobj is self._listener:
                    self._accept()
                elif isinstance(key.fileobj, socket.socket) and key.fileobj in self._peer:
                    self._forward(key.fileobj)

    def _carry_out_calls(self) -> None:
        while self._calls:
            function, done = self._calls.pop(0)
            try:
                function()
            except OSError as error:
                done.set_exception(error)
            else:
                done.set_result(None)

    def _accept(self) -> None:
        if self._is_cut:
            return
        client, _ = self._listener.accept()
        try:
            server = self._dial()
        except OSError:
            client.close()
            return
        self._servers.add(server)
        for one, other in ((client, server), (server, client)):
            self._peer[one] = other
            self._selector.register(one, selectors.EVENT_READ)

    def _forward(self, source: socket.socket) -> None:
        try:
            data = source.recv(_CHUNK)
            if data and self._loses_replies and source in self._servers:
                self.lost_bytes += len(data)
                return
            if data:
                self._peer[source].sendall(data)
                return
        except OSError:
            pass  # Either end is gone: so is the connection.
        self._break(source)

    def _break(self, one: socket.socket) -> None:
        other = self._peer.pop(one)
        del self._peer[other]
        self._servers -= {one, other}
        for end in (one, other):
            with contextlib.suppress(KeyError):  # it is not watched during a cut
                self._selector.unregister(end)
            end.close()

    def _set_cut(self, is_cut: bool) -> None:
        if is_cut == self._is_cut:
            return
        self._is_cut = is_cut
        for end in (self._listener, *self._peer):
            if is_cut:
                self._selector.unregister(end)
            else:
                self._selector.register(end, selectors.EVENT_READ)

    def _start_losing(self) -> None:
        self._loses_replies = True

    def _heal(self) -> None:
        if self._loses_replies:
            self._drop()
        self._loses_replies = False
        self._set_cut(False)

    def _drop(self) -> None:
        while self._peer:
            self._break(next(iter(self._peer)))

    def _close(self) -> None:
        self._drop()
        self._is_closed = True
        for end in (self._listener, self._waker, self._wake):
            end.close()
        self._selector.close()


class UnixProxy(TcpProxy):
    """The same between two Unix sockets: of the server, and one that it makes."""

    def __init__(self, target: str, path: str) -> None:
        self._path = target
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen()
        self._begin(listener)

    def _dial(self) -> socket.socket:
        server = socket.socket(socket.AF_UNIX)
        server.connect(self._path)
        return server
