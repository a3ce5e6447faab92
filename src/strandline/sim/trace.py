"""The trace of a run as one number: two runs are the same exactly if their hashes are (I-52).

Every delivered event adds its time, what it was, whose it was and a checksum of its bytes; every
replica adds its offsets whenever they have changed. Only integers are hashed: nothing of it depends
on the order of a hash table or on where an object lies in memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from hashlib import blake2b
from struct import Struct
from typing import Final, TypeAlias
from zlib import crc32

from strandline.node.replica import Replica
from strandline.types import TopicPartition

_ENTRY: Final = Struct(">QBHI")
_REPLICA: Final = Struct(">HIqqqqi?")
_ENTRIES_MAX: Final = 1000

Fingerprint: TypeAlias = tuple[int, int, int, int, int, bool]
"""Log start, high watermark, log end, recovery point, leader epoch, whether it leads."""


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
    CLEANED = 9


class Trace:
    """The running hash."""

    __slots__ = ("_entries", "_hash")

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=16)
        self._entries: list[bytes] = []
        """Those that are not in the hash yet: it takes many at once faster than one by one."""

    @property
    def hash(self) -> str:
        """Of everything that was added so far, in hexadecimal digits."""
        self._take_in()
        return self._hash.hexdigest()

    def add(self, now_us: int, kind: int, who: int, data: bytes | bytearray | memoryview) -> None:
        """Record the delivery of `data` to the end `who`."""
        self._entries.append(_ENTRY.pack(now_us, kind, who, crc32(data)))
        if len(self._entries) > _ENTRIES_MAX:
            self._take_in()

    def number(self, now_us: int, kind: int, who: int, number: int) -> None:
        """Something was delivered that has no bytes, but perhaps a number."""
        self._entries.append(_ENTRY.pack(now_us, kind, who, number & 0xFFFFFFFF))

    def replica(self, who: int, name: int, seen: Fingerprint) -> None:
        """What a replica knows of itself has changed."""
        self._entries.append(_REPLICA.pack(who, name, *seen))

    def _take_in(self) -> None:
        self._hash.update(b"".join(self._entries))
        self._entries.clear()


class ReplicaTrace:
    """Adds the replicas of one process to a trace whenever they have changed."""

    __slots__ = ("_known", "_trace", "_who")

    def __init__(self, trace: Trace, who: int) -> None:
        self._trace = trace
        self._who = who
        self._known: dict[TopicPartition, tuple[int, Fingerprint]] = {}

    def note(self, replicas: Iterable[Replica]) -> None:
        """Look at all of them."""
        known = self._known
        for replica in replicas:
            partition, offsets = replica.topic_partition, replica.log.offsets
            seen = (
                offsets.log_start_offset,
                offsets.high_watermark,
                offsets.log_end_offset,
                offsets.recovery_point,
                replica.leader_epoch,
                replica.leading is not None,
            )
            before = known.get(partition)
            if before is not None and before[1] == seen:
                continue
            name = _number_of(partition) if before is None else before[0]
            known[partition] = (name, seen)
            self._trace.replica(self._who, name, seen)


def _number_of(partition: TopicPartition) -> int:
    """A partition as a number that is the same in every run."""
    return crc32(f"{partition.topic}-{partition.partition}".encode())
