"""Which partition a record goes to: by its key as Java's client does, else in sticky turns.

A record with a key goes where every Kafka client in its default setting would put it (32-bit
murmur2 of the key), because joins and compaction rely on equal keys meeting. Records without keys
stay with one partition until a batch is full, which makes fewer and larger batches (KIP-794).
"""

from __future__ import annotations

from random import Random
from typing import Final

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_R: Final = 24
_MASK: Final = 0xFFFF_FFFF
_POSITIVE: Final = 0x7FFF_FFFF


def murmur2(data: bytes) -> int:
    """Austin Appleby's MurmurHash2 with the seed of Kafka, as an unsigned 32-bit number."""
    length = len(data)
    whole = length & ~3
    result = (_SEED ^ length) & _MASK
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        word ^= word >> _R
        result = (result * _M & _MASK) ^ (word * _M & _MASK)
    rest = data[whole:]
    if rest:
        result = (result ^ int.from_bytes(rest, "little")) * _M & _MASK
    result ^= result >> 13
    result = result * _M & _MASK
    return result ^ (result >> 15)


def partition_for_key(key: bytes, partition_count: int) -> int:
    """The partition of a key among partitions 0 to `partition_count` - 1."""
    return (murmur2(key) & _POSITIVE) % partition_count


class StickyChoice:
    """The partition for records without a key, per topic."""

    __slots__ = ("_current", "_random", "_sent_bytes", "_stay_bytes")

    def __init__(self, random: Random, *, stay_bytes: int) -> None:
        self._random = random
        self._stay_bytes = stay_bytes
        self._current: dict[str, int] = {}
        self._sent_bytes: dict[str, int] = {}

    def choose(self, topic: str, available: list[int], size_bytes: int) -> int:
        """One of `available`: the same until it got `stay_bytes`, then another."""
        current = self._current.get(topic)
        sent_bytes = self._sent_bytes.get(topic, 0)
        if current is None or current not in available or sent_bytes >= self._stay_bytes:
            others = [each for each in available if each != current] or available
            current = self._random.choice(others)
            self._current[topic], sent_bytes = current, 0
        self._sent_bytes[topic] = sent_bytes + size_bytes
        return current
