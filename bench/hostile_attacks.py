"""What `bench.hostile` does to a broker, in processes of their own so that it costs the honest
client no time of its interpreter: connections that say nothing, frames that are none, and
handshakes (`hostile_handshakes`).

Every connection comes from another address of 127.0.0.0/8: ports do not run out, and limits by
address, which an attacker with many machines does not meet either, do not help.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event
from random import Random

from bench.hostile_handshakes import Handshaker, flood
from bench.raw_connection import frame_of
from strandline.protocol.messages.api_versions import ApiVersionsRequest
from strandline.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from strandline.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from strandline.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from strandline.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from strandline.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from strandline.protocol.messages.sasl_handshake import SaslHandshakeRequest

USER = "mallory"
PASSWORD = "mallory-secret"
THREADS = 8
_BURST = 16
"""Frames of a client that has authenticated, sent at once: the first that cannot be read ends the
connection, those before it are answered."""
_SHOWN_EVERY = 64
_PATIENCE_S = 10.0
_TOPIC = "hostile"


@dataclass(frozen=True, slots=True)
class Attack:
    """What one child is to do, until it is stopped."""

    kind: str
    port: int
    count: int
    """Of connections, or of frames and handshakes at the least: they come until the end."""
    rate: float
    """Frames or handshakes per second of each thread at most; 0: as fast as it can."""
    seed: int


def run(attack: Attack, done: Synchronized[int], lost: Synchronized[int], stop: Event) -> None:
    """Do it. `done` counts connections that are open, or frames that were sent; `lost` those
    connections that the broker closed or did not take."""
    work = _WORK.get(attack.kind, _shake_hands)
    threads = [
        threading.Thread(target=work, args=(attack, number, done, lost, stop))
        for number in range(THREADS)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()


def _count(counted: Synchronized[int], more: int = 1) -> None:
    with counted.get_lock():
        counted.value += more


# -- Connections that say nothing -----------------------------------------------------------------


def _say_nothing(
    attack: Attack, thread: int, done: Synchronized[int], lost: Synchronized[int], stop: Event
) -> None:
    random = Random(attack.seed * 1000 + thread)
    opened: list[socket.socket] = []
    for _ in range(thread, attack.count, THREADS):
        if stop.is_set():
            break
        try:
            opened.append(_connect(attack.port, random))
        except OSError:
            _count(lost)
            time.sleep(0.01)
        else:
            _count(done)
    stop.wait()
    for each in opened:
        each.setblocking(False)
        try:
            is_closed = each.recv(1) == b""
        except BlockingIOError:
            is_closed = False
        except ConnectionError:
            is_closed = True
        if is_closed:
            _count(lost)
        each.close()


# -- Frames that are none -------------------------------------------------------------------------


def _send_frames(
    attack: Attack, thread: int, done: Synchronized[int], lost: Synchronized[int], stop: Event
) -> None:
    random = Random(attack.seed * 1000 + thread)
    first = b"" if attack.kind == "before" else login()
    count = 1 if attack.kind == "before" else _BURST
    frames = malformed(random)
    began, sent, shown = time.monotonic(), 0, 0
    while not stop.is_set():
        try:
            with _connect(attack.port, random) as sock:
                sock.sendall(first + b"".join(next(frames) for _ in range(count)))
                sock.shutdown(socket.SHUT_WR)
                while sock.recv(65536):
                    pass
        except ConnectionError:
            pass  # it was closed before everything was read: that is what it is for
        except OSError:
            _count(lost)
        sent += count
        if sent - shown >= _SHOWN_EVERY:
            _count(done, sent - shown)
            shown = sent
        if attack.rate:
            time.sleep(max(0.0, began + sent / attack.rate - time.monotonic()))


# -- Handshakes -----------------------------------------------------------------------------------


def _shake_hands(
    attack: Attack, thread: int, done: Synchronized[int], lost: Synchronized[int], stop: Event
) -> None:
    random = Random(attack.seed * 1000 + thread)
    handshaker = Handshaker(attack.kind, attack.port, _connect, random)
    flood(handshaker, attack.rate, lambda taken: _count(done if taken else lost), stop.is_set)


_WORK = {"silent": _say_nothing, "before": _send_frames, "after": _send_frames}


def _connect(port: int, random: Random) -> socket.socket:
    sock = socket.socket()
    sock.settimeout(_PATIENCE_S)
    sock.bind(
        (f"127.{random.randint(1, 254)}.{random.randint(1, 254)}.{random.randint(1, 254)}", 0)
    )
    try:
        sock.connect(("127.0.0.1", port))
    except OSError:
        sock.close()
        raise
    return sock


def login() -> bytes:
    """Handshake and password, which need not wait for each other's answers."""
    password = f"\0{USER}\0{PASSWORD}".encode()
    return frame_of(SaslHandshakeRequest(mechanism="PLAIN"), 1) + frame_of(
        SaslAuthenticateRequest(auth_bytes=password), 2
    )


def malformed(random: Random) -> Iterator[bytes]:
    """Frames without end of which hardly one is a request; none changes anything in the broker."""
    good = _good()
    while True:
        yield random.choice(_WAYS)(random, random.choice(good))


def _good() -> list[bytes]:
    partition = FetchPartition(partition=0, partition_max_bytes=1 << 20)
    looked = ListOffsetsTopic(name=_TOPIC, partitions=[ListOffsetsPartition(timestamp=-1)])
    return [
        frame_of(ApiVersionsRequest(client_software_name="h", client_software_version="1"), 3),
        frame_of(MetadataRequest(topics=[MetadataRequestTopic(name=_TOPIC)]), 12),
        frame_of(
            FetchRequest(
                max_bytes=1 << 20, topics=[FetchTopic(topic=_TOPIC, partitions=[partition])]
            ),
            11,
        ),
        frame_of(ListOffsetsRequest(replica_id=-1, topics=[looked]), 7),
        frame_of(
            DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(
                        resource_type=2, resource_name=_TOPIC, configuration_keys=None
                    )
                ]
            ),
            4,
        ),
    ]


def _with_size(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def _cut_off(random: Random, good: bytes) -> bytes:
    return _with_size(good[4 : random.randrange(5, len(good))])


def _flipped(random: Random, good: bytes) -> bytes:
    changed = bytearray(good)
    for _ in range(random.randint(1, 4)):
        changed[random.randrange(4, len(changed))] = random.randrange(256)
    return bytes(changed)


def _of_wrong_size(random: Random, good: bytes) -> bytes:
    sizes = (-1, -(1 << 31), 0, 1, (1 << 31) - 1, 104_857_601)
    return struct.pack(">i", random.choice(sizes)) + good[4:]


def _of_no_api(random: Random, good: bytes) -> bytes:
    return _with_size(struct.pack(">hh", random.randint(93, 32_767), 0) + good[8:])


def _of_no_version(random: Random, good: bytes) -> bytes:
    return _with_size(good[4:6] + struct.pack(">h", random.randint(100, 32_767)) + good[8:])


def _of_huge_count(random: Random, good: bytes) -> bytes:
    at = random.randrange(8, len(good) - 4) if len(good) > 12 else 8
    return good[:at] + b"\x7f\xff\xff\xff" + good[at + 4 :]


def _noise(random: Random, _: bytes) -> bytes:
    return _with_size(random.randbytes(random.randint(8, 2000)))


_WAYS: tuple[Callable[[Random, bytes], bytes], ...] = (
    _cut_off,
    _flipped,
    _of_wrong_size,
    _of_no_api,
    _of_no_version,
    _of_huge_count,
    _noise,
)
