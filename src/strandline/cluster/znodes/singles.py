"""Nodes that exist once per cluster.

/cluster/id                  {"version": "1", "id": "<22 characters>"}
/controller      ephemeral   {"version": 1, "brokerid": 1, "timestamp": "1700000000000"}
/controller_epoch            7                                      plain decimal text
/latest_producer_id_block    {"version": 1, "broker": 1, "block_start": "0",
                              "block_end": "999"}                   or empty: none given yet
/strandline/format           {"version": 1}                         absent in the first releases
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from strandline.cluster.store import MalformedNode
from strandline.cluster.znodes.content import Content, encoded, is_decimal
from strandline.errors import UnknownFormat
from strandline.types import BrokerId

PRODUCER_ID_BLOCK_SIZE: Final = 1000
ADOPTIONS: Final = "/strandline/adopted_logs"


@dataclass(frozen=True, slots=True)
class ClusterIdNode:
    """The name that the cluster has for ever."""

    path: ClassVar[str] = "/cluster/id"
    cluster_id: str

    def encode(self) -> bytes:
        return encoded({"version": "1", "id": self.cluster_id}, {})

    @classmethod
    def decode(cls, data: bytes) -> ClusterIdNode:
        return cls(Content(cls.path, data).text("id"))


@dataclass(frozen=True, slots=True)
class FormatNode:
    """What releases must know to use this metadata. One that writes nodes which earlier releases
    would misread raises it first, when all its brokers are of that release; this one never does."""

    path: ClassVar[str] = "/strandline/format"
    known: ClassVar[int] = 1

    @classmethod
    def check(cls, data: bytes) -> None:
        """Raise `UnknownFormat` if a newer release wrote the metadata."""
        found = Content(cls.path, data).integer("version")
        if found > cls.known:
            raise UnknownFormat(f"The cluster's metadata (node {cls.path})", found, cls.known)


@dataclass(frozen=True, slots=True)
class ControllerNode:
    """The lock that makes one broker the controller."""

    path: ClassVar[str] = "/controller"
    broker_id: BrokerId
    timestamp_ms: int = -1

    def encode(self) -> bytes:
        timestamp = str(self.timestamp_ms)
        return encoded({"version": 1, "brokerid": self.broker_id, "timestamp": timestamp}, {})

    @classmethod
    def decode(cls, data: bytes) -> ControllerNode:
        content = Content(cls.path, data)
        return cls(BrokerId(content.integer("brokerid")), content.integer("timestamp", -1))


@dataclass(frozen=True, slots=True)
class ControllerEpochNode:
    """Counts the terms of controllers. Its node version fences every write of a controller."""

    path: ClassVar[str] = "/controller_epoch"
    epoch: int

    def encode(self) -> bytes:
        return str(self.epoch).encode("ascii")

    @classmethod
    def decode(cls, data: bytes) -> ControllerEpochNode:
        text = data.decode("ascii", errors="replace")
        if not is_decimal(text):
            raise MalformedNode(cls.path, "it is not a number")
        return cls(int(text))


@dataclass(frozen=True, slots=True)
class ProducerIdBlockNode:
    """The last block of producer ids that was given out, both ends included (KIP-730)."""

    path: ClassVar[str] = "/latest_producer_id_block"
    broker_id: BrokerId
    first: int
    last: int

    def encode(self) -> bytes:
        return encoded(
            {
                "version": 1,
                "broker": self.broker_id,
                "block_start": str(self.first),
                "block_end": str(self.last),
            },
            {},
        )

    @classmethod
    def decode(cls, data: bytes) -> ProducerIdBlockNode | None:
        """The block, or None while the node is empty."""
        if not data:
            return None
        content = Content(cls.path, data)
        first, last = content.integer("block_start"), content.integer("block_end")
        if not 0 <= first <= last:
            raise content.malformed(f"the block {first} to {last} is no range")
        return cls(BrokerId(content.integer("broker")), first, last)


def adoption_path(broker_id: BrokerId) -> str:
    """The node that remembers that the broker took in the logs of its directories."""
    return f"{ADOPTIONS}/{broker_id}"
