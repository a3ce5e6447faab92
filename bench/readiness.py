"""When is a broker up? When it answers its first request, whatever it printed before.

The probe is the same for every broker: connect, send ApiVersions version 0, read the answer.
"""

from __future__ import annotations

import socket
import struct
import time

RETRY_S = 0.002
ANSWER_TIMEOUT_S = 5.0
API_VERSIONS = 18
CORRELATION_ID = 7


def api_versions_request() -> bytes:
    """size 4 | api key 2 | version 2 | correlation id 4 | client id: length 2, text"""
    client = b"bench"
    body = struct.pack(">hhih", API_VERSIONS, 0, CORRELATION_ID, len(client)) + client
    return struct.pack(">i", len(body)) + body


def answers(port: int) -> bool:
    """Whether the broker at this port answers ApiVersions without an error."""
    try:
        with socket.create_connection(("127.0.0.1", port), ANSWER_TIMEOUT_S) as connection:
            connection.sendall(api_versions_request())
            head = connection.recv(10, socket.MSG_WAITALL)
    except OSError:
        return False
    if len(head) < 10:
        return False
    _size, correlation_id, error_code = struct.unpack(">iih", head)
    return bool(correlation_id == CORRELATION_ID and error_code == 0)


def wait_until_ready(port: int, *, deadline: float) -> bool:
    """Ask until it answers; False when `deadline` (of the monotonic clock) passes first."""
    while not answers(port):
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
