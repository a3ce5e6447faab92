"""From how many bytes on the loop is told that a socket has input (SO_RCVLOWAT, socket(7)).

A client with TLS sends a record at a time, and librdkafka makes one of each record of Kafka. A
broker that keeps up is woken for every one of them, reads a kilobyte, finds the frame unfinished,
and costs the client the waking, too. How much is missing of a frame is known from its size, so the
system can wait for that.

Linux tells of less when the sender cannot send more (`tcp_epollin_ready`), so that no threshold
holds a connection up. Other systems differ there: their threshold stays one byte.
"""

from __future__ import annotations

import socket
import sys
from typing import Final

_NEVER_HOLDS_UP: Final = sys.platform == "linux"
_BYTES_MIN: Final = 2 * 1024
"""Fewer are not worth two system calls."""
BYTES_MAX: Final = 32 * 1024
"""More would save little, and hide for long that a slow client is sending."""


class ReceiveThreshold:
    """That of one socket."""

    __slots__ = ("_bytes", "_socket")

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._bytes = 1

    def wait_for(self, count: int) -> None:
        """Until so many bytes have come, or as many as are worth waiting for. Raises `OSError`."""
        wanted = min(count, BYTES_MAX) if _NEVER_HOLDS_UP and count >= _BYTES_MIN else 1
        if wanted != self._bytes:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wanted)
            self._bytes = wanted
