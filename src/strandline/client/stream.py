"""The bytes of one blocking connection: a plain socket, or TLS over one.

This file knows sockets and waits. It must not know frames.

Theory: TLS may hold bytes that it has decrypted and that were not read, which a poll of a socket
does not see. `is_waiting` says so; a reader that reads until it is False may then poll the socket.
"""

from __future__ import annotations

import select
import socket
import ssl
import time
from typing import Protocol

from strandline.client.security import tls
from strandline.client.settings import Address, ClientSettings
from strandline.errors import ErrorCode, ProtocolError


class Stream(Protocol):
    """Methods raise `OSError` when the connection is broken."""

    def fileno(self) -> int:
        """For `select.poll`."""

    @property
    def is_waiting(self) -> bool:
        """Whether bytes can be read that a poll of the socket does not see."""

    def read_into(self, buffer: memoryview) -> int | None:
        """How many bytes came: 0 at the end, None if there is none after all."""

    def write(self, data: bytes, timeout_s: float) -> None:
        """Write all of it. Raises `TimeoutError` if that takes longer."""

    def close(self) -> None:
        """Close the socket."""


class PlainStream:
    """A socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def is_waiting(self) -> bool:
        return False

    def read_into(self, buffer: memoryview) -> int | None:
        return self._socket.recv_into(buffer)

    def write(self, data: bytes, timeout_s: float) -> None:
        self._socket.settimeout(timeout_s)
        self._socket.sendall(data)

    def close(self) -> None:
        self._socket.close()


class TlsStream:
    """TLS over a socket that does not block."""

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self._socket = sock
        sock.setblocking(False)

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def is_waiting(self) -> bool:
        return self._socket.pending() > 0

    def read_into(self, buffer: memoryview) -> int | None:
        try:
            return self._socket.recv_into(buffer)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None  # a part of a record, or one without data, as after a handshake
        except ssl.SSLEOFError:
            return 0

    def write(self, data: bytes, timeout_s: float) -> None:
        until_s = time.monotonic() + timeout_s
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[self._socket.send(rest) :]
            except ssl.SSLWantWriteError:
                self._wait(select.POLLOUT, until_s)
            except ssl.SSLWantReadError:
                self._wait(select.POLLIN, until_s)

    def _wait(self, event: int, until_s: float) -> None:
        poller = select.poll()
        poller.register(self._socket, event)
        if not poller.poll(max(0, until_s - time.monotonic()) * 1000):
            raise TimeoutError("the broker does not read")

    def close(self) -> None:
        self._socket.close()


def open_stream(address: Address, settings: ClientSettings) -> Stream:
    """Connect, with TLS if the settings want it. Raises `ProtocolError`, and `InvalidSetting`."""
    timeout_s = settings.connect_timeout_ms / 1000
    wanted = settings.security.tls
    context = None if wanted is None else tls.context_of(wanted)
    try:
        sock = socket.create_connection(address, timeout_s)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError as error:
        raise ProtocolError(
            ErrorCode.NETWORK_EXCEPTION,
            f"Cannot connect to {address}: {error.strerror or error}.",
        ) from error
    if context is None:
        return PlainStream(sock)
    try:
        return TlsStream(context.wrap_socket(sock, server_hostname=address.host))
    except OSError as error:
        sock.close()
        raise tls.failed(address, error) from error
