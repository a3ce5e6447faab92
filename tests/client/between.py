"""What stands between clients and a broker, and does something to what passes."""

from __future__ import annotations

import socket
import threading

from tests.client.conftest import PATIENCE_S


class Between:
    """Takes connections in, each of which a thread serves.

    `target` is the broker's address, once it is known; `port` is where clients connect.
    """

    receive_bytes: int | None = None
    """How much the system takes in of what is not read; None: as much as it likes."""

    def __init__(self) -> None:
        self.target = ("", 0)
        self._listener = socket.create_server(("127.0.0.1", 0))
        if self.receive_bytes is not None:
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.receive_bytes)
        self.port = int(self._listener.getsockname()[1])
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def close(self) -> None:
        """Take no more in, and wait for what is served."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(PATIENCE_S)

    def serve(self, near: socket.socket) -> None:
        """Serve one connection, and close it."""
        raise NotImplementedError

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self.serve, args=(near,))
            self._threads.append(thread)
            thread.start()
