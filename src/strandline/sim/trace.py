"""The trace of a run as one number: two runs are the same exactly if their hashes are (I-52).

Every delivered event adds its time, what it was, whose it was and a checksum of its bytes; every
replica adds its offsets whenever they have changed. Only integers are hashed: nothing of it depends
on the order of a hash table or on where an object lies in memory.
"""

from __future__ import annotations

from enum import IntEnum
from hashlib import blake2b
from struct import Struct
from typing import Final
from zlib import crc32

from strandline.node.replica import Replica
from strandline.types import TopicPartition

_ENTRY: Final = Struct(">QBHI")
_REPLICA: Final = Struct(">HIqqqqi?")


class Kind(IntEnum):
    """What an event was."""

    STARTED = 1
    ENDED = 2
    BYTES = 3
    OPENED = 4
    CLOSED = 5
    METADATA = 6
    WRITTEN = 7
    SYNCED = 8


class Trace:
    """The running hash."""

    __slots__ = ("_hash", "_update")

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=16)
        self._update = self._hash.update

    @property
    def hash(self) -> str:
        """Of everything that was added so far, in hexadecimal digits."""
        return self._hash.hexdigest()

    def add(self, now_us: int, kind: int, who: int, data: bytes | bytearray | memoryview) -> None:
        """Something was delivered to somebody."""
        self._update(_ENTRY.pack(now_us, kind, who, crc32(data)))

    def number(self, now_us: int, kind: int, who: int, number: int) -> None:
        """Something was delivered that has no bytes, but perhaps a number."""
        self._update(_ENTRY.pack(now_us, kind, who, number & 0xFFFFFFFF))

    def replica(self, who: int, name: int, seen: Fingerprint) -> None:
        """The offsets of a replica have changed."""
        self._update(_REPLICA.pack(who, name, *seen))


Fingerprint = tuple[int, int, int, int, int, bool]


def fingerprint(replica: Replica) -> Fingerprint:
    """What a replica knows of itself, in numbers."""
    log = replica.log
    return (
        log.log_start_offset,
        log.high_watermark,
        log.log_end_offset,
        log.recovery_point,
        replica.leader_epoch,
        replica.leader is not None,
    )


def name_of(partition: TopicPartition) -> int:
    """A partition as a number that is the same in every run."""
    return crc32(f"{partition.topic}-{partition.partition}".encode())
