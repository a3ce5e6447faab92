"""Ports that stay a broker's own while it is down, so that it comes back where clients look for it.

A socket that is bound but does not listen keeps the system from giving the port to anybody else,
and with SO_REUSEADDR on both sides it does not keep the broker from listening there. Whoever
connects meanwhile is refused, as by a machine whose broker is down.
"""

from __future__ import annotations

import socket
from typing import Final

HOST: Final = "127.0.0.1"


class ReservedPort:
    """A port of `host` chosen by the system. Raises `OSError` if there is none to be had."""

    def __init__(self, host: str = HOST) -> None:
        self._socket = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((host, 0))
        except OSError:
            self._socket.close()
            raise
        self.number: int = self._socket.getsockname()[1]

    def release(self) -> None:
        """Let the system have it."""
        self._socket.close()
