"""Slowing moves of partitions down, so that clients keep their share of network and disk (KIP-73).

A move copies whole logs. Two kinds of settings bound what it takes: topics name the replicas that
are slowed, on the side that sends (those there are) and on the side that receives (those that
come), and brokers have a rate for each side. What was set for a move is taken back when it is over;
replicas that were named before stay named.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from strandline.client.admin_configs import ConfigAdmin, Resource
from strandline.client.admin_replicas import ReplicaAdmin
from strandline.client.cluster import ClusterClient
from strandline.types import BrokerId, TopicPartition

LEADERS: Final = "leader.replication.throttled.replicas"
FOLLOWERS: Final = "follower.replication.throttled.replicas"
_RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_ALL: Final = "*"


class ThrottleAdmin:
    """See the module."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster
        self._configs = ConfigAdmin(cluster)
        self._replicas = ReplicaAdmin(cluster)

    def begin(self, targets: Mapping[TopicPartition, Sequence[BrokerId]], bytes_per_s: int) -> None:
        """Slow the moves to these brokers down, before or while they are under way.

        The rate is that of each broker for all that it sends, and for all that it receives.
        """
        entries = self._entries(targets)
        alive = self._cluster.refresh().brokers.keys()
        for broker in sorted(_brokers(entries) & alive):
            rates = dict.fromkeys(_RATES, str(bytes_per_s))
            self._configs.alter(Resource.broker(broker), set_to=rates)
        for topic, sides in entries.items():
            present = self._present(topic)
            self._write(topic, {side: present[side] | new for side, new in sides.items()})

    def end(self, partitions: Iterable[TopicPartition]) -> None:
        """Slow these down no longer; their brokers have no rate left if nothing moves any more."""
        numbers: dict[str, set[str]] = {}
        for partition in partitions:
            numbers.setdefault(partition.topic, set()).add(str(partition.partition))
        removed: dict[str, dict[str, set[str]]] = {}
        for topic, those in numbers.items():
            present = self._present(topic)
            sides = removed[topic] = {
                side: {entry for entry in named if entry.partition(":")[0] in those}
                for side, named in present.items()
            }
            if any(sides.values()):
                self._write(topic, {side: present[side] - own for side, own in sides.items()})
        if not self._replicas.moves():
            for broker in sorted(_brokers(removed) & self._cluster.refresh().brokers.keys()):
                self._configs.alter(Resource.broker(broker), reset=_RATES)

    def _entries(
        self, targets: Mapping[TopicPartition, Sequence[BrokerId]]
    ) -> dict[str, dict[str, set[str]]]:
        """Which replicas send and which receive, as topics name them, by topic and side."""
        moving = {each.partition: each for each in self._replicas.moves(targets)}
        topics = self._cluster.refresh({each.topic for each in targets}).topics
        entries: dict[str, dict[str, set[str]]] = {}
        for partition, target in targets.items():
            now = set(topics[partition.topic].partitions[partition.partition].replicas)
            if partition in moving:
                now -= set(moving[partition].adding)
            coming = set(target) - now
            if coming:
                sides = entries.setdefault(partition.topic, {LEADERS: set(), FOLLOWERS: set()})
                sides[LEADERS] |= _named(partition, now)
                sides[FOLLOWERS] |= _named(partition, coming)
        return entries

    def _present(self, topic: str) -> dict[str, set[str]]:
        found = self._configs.describe(Resource.topic(topic), (LEADERS, FOLLOWERS))
        values = {each.name: each.value or "" for each in found}
        return {
            side: set(filter(None, values.get(side, "").split(",")))
            for side in (LEADERS, FOLLOWERS)
        }

    def _write(self, topic: str, sides: Mapping[str, set[str]]) -> None:
        # Where all replicas are throttled already, an operator has set that before.
        wanted = {side: named for side, named in sides.items() if _ALL not in named}
        self._configs.alter(
            Resource.topic(topic),
            set_to={side: ",".join(sorted(named)) for side, named in wanted.items() if named},
            reset=[side for side, named in wanted.items() if not named],
        )


def _named(partition: TopicPartition, brokers: Iterable[BrokerId]) -> set[str]:
    """A replica is named by the numbers of its partition and of its broker."""
    return {f"{partition.partition}:{broker}" for broker in brokers}


def _brokers(entries: Mapping[str, Mapping[str, Iterable[str]]]) -> set[BrokerId]:
    return {
        BrokerId(int(entry.partition(":")[2]))
        for sides in entries.values()
        for named in sides.values()
        for entry in named
    }
