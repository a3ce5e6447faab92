"""`/brokers/ids/<id>`: a live broker. Ephemeral; its creating zxid is the broker's epoch.

    {"version": 5, "host": "h", "port": 9092, "jmx_port": -1, "timestamp": "1700000000000",
     "endpoints": ["PLAINTEXT://h:9092"],
     "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
     "rack": "r1",                                              only when there is one
     "features": {"name": {"min_version": 1, "max_version": 3}},
     "previous_epoch": 77,                                      of our own: only when there is one
     "lives": [[77, 77], [81, 84]],                             of our own: only with the one above
     "shutting_down": true,                                     of our own: only when it is
     "offline": {"topic": [0, 3]}}                              of our own: only when there are any

`host` and `port` are those of the first plaintext listener, or null and -1: very old clients of
the tree read only them. Versions 2 to 4 lack the later keys and are read; 5 is written.

Four keys are not Kafka's, and its readers pass over them. `previous_epoch` is that of the earliest
registration since which nothing was lost. A process that registers again after its session expired
keeps what it named the first time, or names its first registration; a clean shutdown leaves the
same in its marker. `lives` names, process by process, the registrations whose records the broker
has: not all since `previous_epoch` if its disk came back from an older copy. Without it (version
0.1.0) they are all of them. `shutting_down` is set by a broker that is about to stop, in place of
Kafka's ControlledShutdown request. `offline` names the replicas that the broker cannot use because
the disk under them failed, in place of Kafka's notification nodes, LeaderAndIsr answers and
directory ids.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from strandline.cluster.store import MalformedNode
from strandline.cluster.znodes.content import Content, Extra, Json, encoded
from strandline.types import BrokerId, Lives, TopicPartition

ROOT: Final = "/brokers/ids"
NO_PREVIOUS_EPOCH: Final = -1
_VERSION: Final = 5
_ENDPOINT: Final = re.compile(
    r"([A-Za-z0-9_-]+)://(?:\[([0-9a-fA-F:%.]*)\]|([^:/\[\]]*)):(\d{1,5})"
)
_PLAINTEXT: Final = "PLAINTEXT"


class Endpoint(NamedTuple):
    """Where clients reach one listener of a broker. `protocol` is Kafka's security protocol."""

    listener: str
    host: str
    port: int
    protocol: str = _PLAINTEXT

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.listener}://{host}:{self.port}"


def endpoint_at(endpoints: Iterable[Endpoint], listener: str) -> Endpoint | None:
    """Where that listener of a broker is reached; None if the broker has none of that name.

    Clients are told of no other listener in its place: it may be for other networks, and of
    another protocol."""
    return next((end for end in endpoints if end.listener == listener), None)


class FeatureRange(NamedTuple):
    """Versions of a feature that a broker supports (KIP-584)."""

    min_version: int
    max_version: int


@dataclass(frozen=True, slots=True)
class BrokerNode:
    """What a broker tells the cluster about itself when it registers."""

    broker_id: BrokerId
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    timestamp_ms: int = -1
    features: Mapping[str, FeatureRange] = field(default_factory=dict)
    extra: Extra = field(default_factory=dict)
    previous_epoch: int = NO_PREVIOUS_EPOCH
    """All that this broker held under that registration, and later ones, it holds (KIP-966)."""
    lives: Lives | None = None
    """Of which processes it holds everything; None: of all since `previous_epoch`."""
    is_shutting_down: bool = False
    offline: frozenset[TopicPartition] = frozenset()
    """Partitions whose replica on this broker lies on a failed disk."""

    @property
    def path(self) -> str:
        return path_of(self.broker_id)

    def holds(self, epoch: int) -> bool:
        """Whether nothing is lost of what this broker held under that former registration."""
        if not NO_PREVIOUS_EPOCH < self.previous_epoch <= epoch:
            return False
        return self.lives is None or any(first <= epoch <= last for first, last in self.lives)

    def encode(self) -> bytes:
        plain = next((e for e in self.endpoints if e.protocol == _PLAINTEXT), None)
        values: dict[str, Json] = {
            "version": _VERSION,
            "host": plain.host if plain else None,
            "port": plain.port if plain else -1,
            "jmx_port": -1,
            "timestamp": str(self.timestamp_ms),
            "endpoints": [str(endpoint) for endpoint in self.endpoints],
            "listener_security_protocol_map": {e.listener: e.protocol for e in self.endpoints},
            "features": features_json(self.features),
        }
        if self.rack is not None:
            values["rack"] = self.rack
        if self.previous_epoch != NO_PREVIOUS_EPOCH:
            values["previous_epoch"] = self.previous_epoch
            if self.lives is not None:
                values["lives"] = [list[Json](life) for life in self.lives]
        if self.is_shutting_down:
            values["shutting_down"] = True
        if self.offline:
            values["offline"] = _numbers_by_topic(self.offline)
        return encoded(values, self.extra)

    @classmethod
    def decode(cls, broker_id: BrokerId, data: bytes) -> BrokerNode:
        content = Content(path_of(broker_id), data)
        for derived in ("version", "port", "jmx_port"):
            content.integer(derived, -1)
        content.optional_text("host")
        protocols = content.text_mapping("listener_security_protocol_map")
        return cls(
            broker_id=broker_id,
            endpoints=tuple(
                endpoint_of(content, text, protocols) for text in content.texts("endpoints")
            ),
            rack=content.optional_text("rack"),
            timestamp_ms=content.integer("timestamp", -1),
            features=features_of(content),
            previous_epoch=content.integer("previous_epoch", NO_PREVIOUS_EPOCH),
            lives=content.optional_pairs("lives"),
            is_shutting_down=content.flag("shutting_down"),
            offline=_partitions(content, "offline"),
            extra=content.rest(),
        )


def path_of(broker_id: BrokerId) -> str:
    """Where that broker registers."""
    return f"{ROOT}/{broker_id}"


def _numbers_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, Json]:
    numbers: dict[str, list[Json]] = {}
    for partition in sorted(partitions):
        numbers.setdefault(partition.topic, []).append(partition.partition)
    return {**numbers}


def _partitions(content: Content, key: str) -> frozenset[TopicPartition]:
    found = set()
    for topic, numbers in content.mapping(key).items():
        for number in numbers if isinstance(numbers, list) else (None,):
            if not isinstance(number, int) or isinstance(number, bool):
                raise content.malformed(f"{key!r} has no list of numbers for {topic!r}")
            found.add(TopicPartition(topic, number))
    return frozenset(found)


def endpoint_of(content: Content, text: str, protocols: Mapping[str, str]) -> Endpoint:
    """The endpoint that a text names, with the protocol of its listener. Raises `MalformedNode`."""
    match = _ENDPOINT.fullmatch(text)
    if match is None:
        raise content.malformed(f"{text!r} is no endpoint")
    listener, bracketed, plain, port = match.groups()
    # Before the map existed (version 3), a listener was named after its protocol.
    protocol = protocols.get(listener, listener)
    return Endpoint(listener, bracketed if plain is None else plain, int(port), protocol)


def features_json(features: Mapping[str, FeatureRange]) -> dict[str, Json]:
    """The JSON form of supported features."""
    return {
        name: {"min_version": supported.min_version, "max_version": supported.max_version}
        for name, supported in features.items()
    }


def features_of(content: Content) -> dict[str, FeatureRange]:
    """The features that a node says its broker supports. Raises `MalformedNode`."""
    features = {}
    for name, supported in content.mapping("features").items():
        match supported:
            case {"min_version": int(low), "max_version": int(high)}:
                features[name] = FeatureRange(low, high)
            case _:
                raise _malformed_feature(content, name)
    return features


def _malformed_feature(content: Content, name: str) -> MalformedNode:
    return content.malformed(f"the feature {name!r} has no range of versions")
