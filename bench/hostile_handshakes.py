"""Floods of TLS handshakes, for `bench.hostile`: complete ones, half ones, and ones that stall.

A half one costs its client next to nothing: everyone may send the same ClientHello again and again,
and the broker signs an answer to each. Complete ones cost both sides the same. One that stalls
costs the broker a place among the handshakes under way until its time is over.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Final

HELD: Final = 100
"""Connections that each thread holds open at the most, in the middle of a handshake."""

Connect = Callable[[int, Random], socket.socket]


class Handshaker:
    """Begins handshakes with a port, one after the other."""

    def __init__(self, kind: str, port: int, connect: Connect, random: Random) -> None:
        self._kind = kind
        self._port = port
        self._connect = connect
        self._random = random
        self._held: deque[socket.socket] = deque()
        self._context = context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False  # it attacks: it need not know whom
        context.verify_mode = ssl.CERT_NONE
        self._hello = _client_hello(context)

    def once(self) -> None:
        """One more. Raises `OSError` if the broker does not take it."""
        sock = self._connect(self._port, self._random)
        try:
            if self._kind == "handshakes":
                sock = self._context.wrap_socket(sock)
            elif self._kind == "half":
                sock.sendall(self._hello)
            else:
                sock.sendall(self._hello[: self._random.randrange(1, len(self._hello))])
        except OSError:
            sock.close()
            raise
        self._held.append(sock)
        if len(self._held) > (0 if self._kind == "handshakes" else HELD):
            self._held.popleft().close()

    def close(self) -> None:
        """Close what is held."""
        for each in self._held:
            each.close()


def flood(
    handshaker: Handshaker, rate: float, told: Callable[[bool], None], is_over: Callable[[], bool]
) -> None:
    """Go on until that is over, not faster than that; `told` hears whether each was taken."""
    began, count = time.monotonic(), 0
    while not is_over():
        try:
            handshaker.once()
        except OSError:
            told(False)
        else:
            told(True)
        count += 1
        if rate:
            time.sleep(max(0.0, began + count / rate - time.monotonic()))
    handshaker.close()


def _client_hello(context: ssl.SSLContext) -> bytes:
    outgoing = ssl.MemoryBIO()
    beginning = context.wrap_bio(ssl.MemoryBIO(), outgoing)
    with suppress(ssl.SSLWantReadError):
        beginning.do_handshake()
    return outgoing.read()
