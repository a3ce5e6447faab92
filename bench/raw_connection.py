"""One blocking connection without a client: what a broker does is measured, and little else.

An answer is checked for being whole, and not looked into unless that is asked for.
"""

from __future__ import annotations

import socket
import ssl
from struct import Struct
from typing import Any, Final, TypeVar

from strandline.protocol.apis import KNOWN, Api
from strandline.protocol.framing import parse_response_header, request_frame
from strandline.protocol.schema import decode_response

TIMEOUT_S: Final = 300.0
_SIZE: Final = Struct(">i")
_SUFFIXES: Final = ("Request", "Response")

T = TypeVar("T")


class RawConnection:
    """See the module. Answers come in the order of the requests."""

    def __init__(self, port: int, context: ssl.SSLContext | None = None) -> None:
        """With that, it speaks TLS."""
        self._socket = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is not None:
            self._socket = context.wrap_socket(self._socket, server_hostname="127.0.0.1")

    def send(self, message: object, version: int) -> None:
        """Send a request, and wait for nothing."""
        self._socket.sendall(frame_of(message, version))

    def receive(self, expected: type[T], version: int) -> T:
        """The answer of the oldest request that has none."""
        frame, api = self.receive_frame(), _api_of(expected.__name__)
        _, position = parse_response_header(memoryview(frame), api, version)
        answer = decode_response(api.key, version, frame, position)
        if not isinstance(answer, expected):
            raise TypeError(f"{type(answer).__name__} is no {expected.__name__}.")
        return answer

    def answer(self, message: object, version: int) -> Any:
        """What a request is answered."""
        self.send(message, version)
        return self.receive(_api_of(type(message).__name__).response_class, version)

    def ask(self, message: object, version: int) -> bytes:
        """What a request is answered, as it comes, without the size."""
        return self.exchange(frame_of(message, version))

    def exchange(self, frame: bytes) -> bytes:
        """`ask`, of a request that is made already."""
        self._socket.sendall(frame)
        return self.receive_frame()

    def receive_frame(self) -> bytes:
        """The oldest answer as it comes, without the size."""
        (size,) = _SIZE.unpack(self._exactly(_SIZE.size))
        return self._exactly(size)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _exactly(self, size: int) -> bytes:
        data = bytearray(size)
        view, filled = memoryview(data), 0
        while filled < size:
            count = self._socket.recv_into(view[filled:])
            if not count:
                raise SystemExit("The broker closed the connection.")
            filled += count
        return bytes(data)


def frame_of(message: object, version: int) -> bytes:
    """A request with its size."""
    chunks = request_frame(_api_of(type(message).__name__), version, 1, "bench", message)
    return b"".join(bytes(each) for each in chunks)  # type: ignore[arg-type]  # no ranges of files


def _api_of(name: str) -> Api:
    """Of a message's class."""
    for suffix in _SUFFIXES:
        name = name.removesuffix(suffix)
    return next(each for each in KNOWN.values() if each.name == name)
