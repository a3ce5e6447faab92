"""The bytes of one connected socket: as they are, or within TLS.

A stream does not block: where nothing can be received or sent it raises `BlockingIOError`. This
file knows sockets and TLS records; it must not know frames.

    PlainStream   system calls: bytes of a log go from the file to the socket by sendfile
    TlsStream     a `TlsSocket` after its handshake; bytes of a log are read, a slice at a time, to
                  be encrypted
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from strandline.broker.receive_threshold import ReceiveThreshold
from strandline.broker.tls_socket import Data, TlsSocket
from strandline.errors import StorageError
from strandline.storage.files import File
from strandline.storage.system_calls import send_range

_SLICE_BYTES: Final = 256 * 1024
"""How much is encrypted at a time, and how much of a log is in memory for that."""
_DRAINED_BYTES_MAX: Final = 16 * 1024 * 1024


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

    def expect(self, count: int) -> None:
        """So many bytes are missing of a frame, 0 if of none: the loop need not be told of fewer.
        Raises `OSError`."""

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

    def expect(self, count: int) -> None:
        """Clients send a frame in one piece, or in large ones: the first are read meanwhile."""

    def say_goodbye(self) -> None:
        """A socket says so itself."""


class TlsStream:
    """A socket whose TLS handshake is done."""

    __slots__ = ("_threshold", "_tls", "receive", "say_goodbye", "send", "socket")

    def __init__(self, tls: TlsSocket) -> None:
        self.socket = tls.raw
        self._tls = tls
        self._threshold = ReceiveThreshold(tls.raw)
        # None of these knows the stream: what OpenSSL holds is let go with the connection, and not
        # when circles are looked for.
        self.receive: Callable[[memoryview], int] = tls.recv_into
        self.say_goodbye = tls.say_goodbye
        self.send: Callable[[Data, int], int] = partial(_send, tls)

    @property
    def is_buffering(self) -> bool:
        return self._tls.is_buffering

    def send_range(self, file: File, position: int, length: int) -> int:
        if self._tls.is_sending:
            return self._tls.send(b"")
        wanted = min(length, _SLICE_BYTES)
        data = file.read_at(position, wanted)
        if len(data) != wanted:
            raise StorageError(f"{file.path} ends before the range that was to be sent.")
        return self._tls.send(data)

    def expect(self, count: int) -> None:
        # A record takes more bytes than it carries, and what OpenSSL has of one does not come by
        # the socket again.
        self._threshold.wait_for(count - self._tls.unfinished_bytes)


def _send(tls: TlsSocket, data: Data, flags: int = 0) -> int:
    del flags  # records have their own sizes
    if len(data) > _SLICE_BYTES:
        data = memoryview(data)[:_SLICE_BYTES]
    return tls.send(data)


def drain(sock: socket.socket, room: memoryview) -> None:
    """Read what has come and forget it, up to a limit. Raises `OSError`, also where there is no
    more."""
    drained = 0
    while drained < _DRAINED_BYTES_MAX and (count := sock.recv_into(room)):
        drained += count
