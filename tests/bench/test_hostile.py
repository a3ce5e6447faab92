"""What the hostile clients send, and when their goal is met; nothing is attacked here."""

from __future__ import annotations

import socket
import struct
from itertools import islice
from random import Random

import pytest

from bench.hostile import Measured, Round, percentile, problems
from bench.hostile_attacks import PASSWORD, login, malformed
from bench.hostile_handshakes import Handshaker
from strandline.errors import MalformedFrame
from strandline.protocol.apis import find_api
from strandline.protocol.framing import parse_request_header, peek
from strandline.protocol.schema import decode_from


def is_request(data: bytes) -> bool:
    """Whether a broker would take it for one."""
    (size,) = struct.unpack_from(">i", data)
    if size != len(data) - 4:
        return False
    frame = memoryview(data)[4:]
    try:
        key, version, _ = peek(frame)
        api = find_api(key)
        if api is None or not api.versions.covers(version):
            return False
        _, position = parse_request_header(frame)
        decode_from(api.request_class, version, frame, position)
    except MalformedFrame:
        return False
    return True


def test_most_frames_are_no_requests_and_the_same_seed_sends_the_same() -> None:
    sent = list(islice(malformed(Random(1)), 2000))
    assert sent == list(islice(malformed(Random(1)), 2000))
    assert sum(map(is_request, sent)) < 400
    assert is_request(login()[: 4 + struct.unpack_from(">i", login())[0]])


@pytest.mark.parametrize("kind", ["half", "stalled"])
def test_handshakes_end_where_they_are_meant_to(kind: str) -> None:
    """With the client's first message, a record of a handshake (22) with a ClientHello (1) in it,
    or within that."""

    def connect(port: int, _: Random) -> socket.socket:
        return socket.create_connection(("127.0.0.1", port))

    with socket.create_server(("127.0.0.1", 0)) as server:
        attacker = Handshaker(kind, server.getsockname()[1], connect, Random(1))
        attacker.once()
        sock, _ = server.accept()
        attacker.close()
        with sock:
            said = b"".join(iter(lambda: sock.recv(65536), b""))
    assert said[0] == 22
    (size,) = struct.unpack_from(">H", said, 3) if len(said) >= 5 else (len(said),)
    assert (len(said) == 5 + size) is (kind == "half")
    assert kind == "stalled" or said[5] == 1


def test_the_goals() -> None:
    assert percentile([3.0, 1.0, 2.0], 50) == 2.0
    assert percentile([float(each) for each in range(100)], 99) == 99.0
    calm = Measured([9.0], [1.0], [1.0], memory_mb=50)
    good = Round("before", calm, Measured([99.0], [2.0], [1.0], memory_mb=90), 1, 0)
    slow = Round("after", calm, Measured([9.0], [2.1], [1.0], memory_mb=90), 1, 0)
    large = Round("silent", calm, Measured([9.0], [1.0], [1.0], memory_mb=999), 1, 0)
    assert problems([good], "fine") == []
    assert problems([slow], "fine") == ["p99 beside after: 2.1 x"]
    assert problems([large], "fine") == ["memory beside silent: 949 MB more"]
    assert len(problems([good], f"Traceback: {PASSWORD}")) == 2
