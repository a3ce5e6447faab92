"""When is a broker up? When it answers its first request, whatever it printed before.

The probe is the same for every broker: connect, send ApiVersions version 0, read the answer.
"""

from __future__ import annotations

import socket
import struct
import time
from contextlib import ExitStack

RETRY_S = 0.002
ANSWER_TIMEOUT_S = 5.0
METADATA = 3
API_VERSIONS = 18
CORRELATION_ID = 7


def api_versions_request() -> bytes:
    """ApiVersions v0: the head alone."""
    return _request(API_VERSIONS, 0)


def brokers_request() -> bytes:
    """Metadata v1 for no topic: only the brokers are wanted."""
    return _request(METADATA, 1, struct.pack(">i", 0))


def answers(port: int) -> bool:
    """Whether the broker at this port answers ApiVersions without an error."""
    head = _answer(port, api_versions_request(), ">h")
    return head is not None and head[0] == 0


def brokers_known_at(port: int) -> int:
    """How many brokers of its cluster the broker at this port knows; 0 when it does not answer."""
    head = _answer(port, brokers_request(), ">i")
    return int(head[0]) if head is not None else 0


def _request(api_key: int, version: int, body: bytes = b"") -> bytes:
    """size 4 | api key 2 | version 2 | correlation id 4 | client id: length 2, text | body"""
    client = b"bench"
    head = struct.pack(">hhih", api_key, version, CORRELATION_ID, len(client)) + client
    return struct.pack(">i", len(head) + len(body)) + head + body


def _answer(port: int, request: bytes, form: str) -> tuple[int, ...] | None:
    """size 4 | correlation id 4 | what `form` says; None without a whole answer to this request"""
    whole = struct.Struct(f">ii{form[1:]}")
    try:
        with socket.create_connection(("127.0.0.1", port), ANSWER_TIMEOUT_S) as connection:
            connection.sendall(request)
            head = connection.recv(whole.size, socket.MSG_WAITALL)
    except OSError:
        return None
    if len(head) < whole.size:
        return None
    _size, correlation_id, *rest = whole.unpack(head)
    return tuple(rest) if correlation_id == CORRELATION_ID else None


def wait_until_ready(port: int, *, deadline: float, brokers: int = 0) -> bool:
    """Ask until it answers and, if `brokers` is given, knows so many; False when `deadline` (of
    the monotonic clock) passes first."""
    while not (answers(port) and brokers_known_at(port) >= brokers):
        if time.monotonic() > deadline:
            return False
        time.sleep(RETRY_S)
    return True


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def free_ports_in_a_row(count: int) -> int:
    """The first of so many consecutive ports that were free a moment ago."""
    while True:
        first = free_port()
        with ExitStack() as held:
            try:
                for port in range(first, first + count):
                    held.enter_context(socket.create_server(("127.0.0.1", port)))
            except (OSError, OverflowError):
                continue
            return first
