"""The bytes of one connected socket: as they are, or within TLS.

A stream does not block: where nothing can be received or sent it raises `BlockingIOError`. This
file knows sockets and TLS records; it must not know frames.

    PlainStream   system calls: bytes of a log go from the file to the socket by sendfile
    TlsStream     OpenSSL on the same socket, after its handshake; bytes of a log are read, a slice
                  at a time, to be encrypted
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol, TypeAlias

from strandline.errors import StorageError
from strandline.storage.files import File
from strandline.storage.system_calls import send_range

_SLICE_BYTES: Final = 256 * 1024
"""How much is encrypted at a time, and how much of a log is in memory for that."""

Data: TypeAlias = bytes | bytearray | memoryview


class Stream(Protocol):
    """See the module."""

    socket: socket.socket
    """What the loop watches."""
    receive: Callable[[memoryview], int]
    """Put what has come there; how much, 0 at the end."""
    send: Callable[[Data, int], int]
    """Send as much as fits, with flags of `socket.send`; what is refused must come next again."""

    @property
    def is_buffering(self) -> bool:
        """Whether bytes have come of which the loop knows nothing."""

    def send_range(self, file: File, position: int, length: int) -> int:
        """Send as much of a file as fits; 0 if there is nothing. Raises `StorageError`."""

    def say_goodbye(self) -> None:
        """Tell the other side that this is the end, as far as it can be told at once."""


class PlainStream:
    """A socket as it is."""

    __slots__ = ("receive", "send", "socket")

    is_buffering = False

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.receive: Callable[[memoryview], int] = sock.recv_into
        self.send: Callable[[Data, int], int] = sock.send

    def send_range(self, file: File, position: int, length: int) -> int:
        return send_range(self.socket.fileno(), file.fileno(), position, length)

    def say_goodbye(self) -> None:
        """A socket says so itself."""


class TlsStream:
    """A socket whose TLS handshake is done."""

    __slots__ = ("_blocked", "_sock", "receive", "send", "socket")

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self.socket: socket.socket = sock
        self._sock = sock
        self._blocked: bytes | None = None
        """Bytes of a file that OpenSSL was given and could not send: it must get them again."""
        self.receive: Callable[[memoryview], int] = self._receive
        self.send: Callable[[Data, int], int] = self._send

    @property
    def is_buffering(self) -> bool:
        return self._sock.pending() > 0

    def _receive(self, view: memoryview) -> int:
        """As many records as there are, up to the size of the view: each read gives one at most."""
        filled, size = 0, len(view)
        try:
            while filled < size:
                count = self._sock.recv_into(view[filled:])
                if not count:
                    break
                filled += count
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            if not filled:
                raise BlockingIOError from None
        return filled

    def _send(self, data: Data, flags: int = 0) -> int:
        del flags  # records have their own sizes
        if len(data) > _SLICE_BYTES:
            data = memoryview(data)[:_SLICE_BYTES]
        try:
            return self._sock.send(data)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None

    def send_range(self, file: File, position: int, length: int) -> int:
        data = self._blocked
        if data is None:
            wanted = min(length, _SLICE_BYTES)
            data = file.read_at(position, wanted)
            if len(data) != wanted:
                raise StorageError(f"{file.path} ends before the range that was to be sent.")
        self._blocked = data
        sent = self._send(data)
        # All of it: OpenSSL takes a piece as a whole, or refuses it.
        self._blocked = None
        return sent

    def say_goodbye(self) -> None:
        with suppress(OSError, ValueError):  # the other side has gone, or takes nothing now
            self._sock.unwrap()
