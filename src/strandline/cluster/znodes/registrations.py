"""`/strandline/registrations/<id>`: what the cluster remembers of a broker, also while it is down.

    {"version": 1,
     "endpoints": ["PLAINTEXT://h:9092"],
     "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
     "rack": "r1",                                              only when there is one
     "features": {"name": {"min_version": 1, "max_version": 3}},  only when there are any
     "process": 1700000000000}                                  not by the first releases

Written in the multi in which the broker registers, and removed when it is unregistered. Kafka's
tree forgot a broker with its ephemeral node; since KRaft a stopped broker is still registered,
*fenced*, until it is unregistered: replicas may be placed on it, and it is described. Brokers of
version 0.1.0 neither write nor read this node: those that are not running are unknown then.

`process` is the time at which the process began that registered last. A process may be frozen while
its registration comes and goes, and be stopped before it hears of that; others took it for a
member meanwhile. By this time the next process knows whose registration it was, and that nothing is
lost of what the broker held under it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from strandline.cluster.store import NO_ZXID, Zxid
from strandline.cluster.znodes.brokers import (
    BrokerNode,
    Endpoint,
    FeatureRange,
    endpoint_at,
    endpoint_of,
    features_json,
    features_of,
)
from strandline.cluster.znodes.content import Content, Extra, Json, encoded
from strandline.types import BrokerId

REGISTRATIONS: Final = "/strandline/registrations"
UNKNOWN_PROCESS: Final = -1
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class RegistrationNode:
    """What a broker said about itself when it registered last."""

    broker_id: BrokerId
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    extra: Extra = field(default_factory=dict)
    features: Mapping[str, FeatureRange] = field(default_factory=dict)
    """Empty: an earlier release wrote this node, or the broker told of none."""
    process_ms: int = UNKNOWN_PROCESS
    zxid: Zxid = field(default=NO_ZXID, compare=False)
    """Of the transaction that wrote this: the epoch of that registration, until the broker changes
    what it says."""

    @property
    def path(self) -> str:
        return registration_path(self.broker_id)

    def encode(self) -> bytes:
        values: dict[str, Json] = {
            "version": _VERSION,
            "endpoints": [str(endpoint) for endpoint in self.endpoints],
            "listener_security_protocol_map": {e.listener: e.protocol for e in self.endpoints},
        }
        if self.rack is not None:
            values["rack"] = self.rack
        if self.features:
            values["features"] = features_json(self.features)
        if self.process_ms != UNKNOWN_PROCESS:
            values["process"] = self.process_ms
        return encoded(values, self.extra)

    def endpoint(self, listener: str) -> Endpoint | None:
        """Where that listener of the broker was reached."""
        return endpoint_at(self.endpoints, listener)

    @classmethod
    def decode(cls, broker_id: BrokerId, data: bytes, zxid: Zxid = NO_ZXID) -> RegistrationNode:
        content = Content(registration_path(broker_id), data)
        content.integer("version", _VERSION)
        protocols = content.text_mapping("listener_security_protocol_map")
        endpoints = tuple(
            endpoint_of(content, text, protocols) for text in content.texts("endpoints")
        )
        if not endpoints:
            raise content.malformed("it has no endpoints")
        rack, features = content.optional_text("rack"), features_of(content)
        process_ms = content.integer("process", UNKNOWN_PROCESS)
        return cls(broker_id, endpoints, rack, content.rest(), features, process_ms, zxid)

    @classmethod
    def of(cls, broker: BrokerNode) -> RegistrationNode:
        """What is remembered of that broker."""
        return cls(
            broker.broker_id,
            broker.endpoints,
            broker.rack,
            features=broker.features,
            process_ms=broker.timestamp_ms,
        )


def registration_path(broker_id: BrokerId) -> str:
    """The node that remembers the broker."""
    return f"{REGISTRATIONS}/{broker_id}"
