"""The current leader, in answers to clients that asked the wrong broker (KIP-951).

A client that gets the new leader with its refusal goes there at once, and asks for metadata
afterwards. This file knows the content of the hint. It must not know requests' messages.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from strandline.cluster.image import ClusterImage
from strandline.errors import ErrorCode
from strandline.types import BrokerId, LeaderEpoch, TopicPartition

MISDIRECTED: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
"""The refusals with which a leader is told."""


class LeaderHint(NamedTuple):
    """The leader of a partition; -1 if there is none."""

    leader_id: BrokerId
    leader_epoch: LeaderEpoch


class LeaderEndpoint(NamedTuple):
    """Where a leader is reached."""

    broker_id: BrokerId
    host: str
    port: int
    rack: str | None


class LeaderHints:
    """The hints of one answer to a client that came through a listener."""

    __slots__ = ("_image", "_listener", "endpoints")

    def __init__(self, image: ClusterImage, listener: str) -> None:
        self._image = image
        self._listener = listener
        self.endpoints: dict[BrokerId, LeaderEndpoint] = {}
        """Those of the leaders that were asked for so far and have that listener, each once."""

    def of(self, partition: TopicPartition) -> LeaderHint | None:
        """Who leads the partition, if it exists."""
        state = self._image.partition(partition)
        if state is None:
            return None
        broker = self._image.brokers.get(state.leader)
        if broker is not None and state.leader not in self.endpoints:
            end = broker.endpoint(self._listener)
            if end is not None:
                self.endpoints[state.leader] = LeaderEndpoint(
                    state.leader, end.host, end.port, broker.rack
                )
        return LeaderHint(state.leader, state.leader_epoch)
