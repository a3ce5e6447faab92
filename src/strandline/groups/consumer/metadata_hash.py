"""The hash by which a group notices that its topics have changed (KIP-1101), as Kafka 4.3 has it.

A topic's hash is XXH3 over

    0 (int8) | topic id (2 x int64) | name | partitions (int32)
    and for each partition: its number (int32) | each rack in order: its length (int32) | rack

A string is its UTF-16 units and their number (int32); everything is little-endian. A group's hash
is XXH3 over the hashes of its topics in the order of their names, and 0 without any. A group that
comes from a Kafka broker, or goes to one, does not rebalance for it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from xxhash import xxh3_64_intdigest

from strandline.groups.consumer.cluster_view import ClusterView, TopicFacts

_FORMAT = 0


class TopicHashes:
    """The hashes of topics, each computed once as long as it does not change."""

    def __init__(self, cluster: ClusterView) -> None:
        self._cluster = cluster
        self._hashes: dict[str, int] = {}

    def forget(self, names: Iterable[str]) -> None:
        """These topics have changed."""
        for name in names:
            self._hashes.pop(name, None)

    def of_group(self, topics: Iterable[str]) -> int:
        """The hash of a group that reads these topics; those that are not there do not count."""
        hashes = []
        for name in sorted(topics):
            known = self._hashes.get(name)
            if known is None:
                topic = self._cluster.named(name)
                if topic is None:
                    continue
                known = self._hashes[name] = topic_hash(topic, self._cluster.racks(name))
            hashes.append(known)
        return _signed(struct.pack(f"<{len(hashes)}q", *hashes)) if hashes else 0


def topic_hash(topic: TopicFacts, racks: Sequence[Sequence[str]]) -> int:
    """The hash of one topic, of which `racks` are those of each partition's replicas."""
    most, least = struct.unpack(">qq", topic.topic_id.bytes)
    parts = [struct.pack("<bqq", _FORMAT, most, least), _text(topic.name)]
    parts.append(struct.pack("<i", topic.partition_count))
    for partition in range(topic.partition_count):
        parts.append(struct.pack("<i", partition))
        for rack in sorted(racks[partition]):
            units = len(rack.encode("utf-16-le")) // 2
            parts += (struct.pack("<i", units), _text(rack))
    return _signed(b"".join(parts))


def _text(text: str) -> bytes:
    units = text.encode("utf-16-le")
    return units + struct.pack("<i", len(units) // 2)


def _signed(data: bytes) -> int:
    digest: int = xxh3_64_intdigest(data)
    return digest - (1 << 64) if digest >> 63 else digest
