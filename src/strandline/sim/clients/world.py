"""What clients need of the world that they are in. `strandline.sim.world.World` has all of it."""

from __future__ import annotations

from typing import Protocol

from strandline.sim.clients.connection import Peer, Wire
from strandline.sim.history.lookups import Leadership
from strandline.sim.history.operations import Event
from strandline.sim.plan import Options
from strandline.sim.schedule import Schedule
from strandline.sim.streams import Streams
from strandline.types import BrokerId, TopicId, TopicPartition


class ClientNetwork(Protocol):
    """Gives connections to brokers."""

    def dial(self, source: str, target: BrokerId, peer: Peer) -> Wire:
        """Begin to open one; `peer` is called with the outcome."""


class ClientWorld(Protocol):
    """See the module."""

    @property
    def schedule(self) -> Schedule: ...

    @property
    def streams(self) -> Streams: ...

    @property
    def options(self) -> Options: ...

    @property
    def network(self) -> ClientNetwork: ...

    @property
    def history(self) -> list[Event]: ...

    @property
    def clocks_set_ms(self) -> int:
        """How far faults have set the brokers' wall clocks so far, in all."""

    def wall_ms(self, broker_id: BrokerId) -> int:
        """What a broker's wall clock shows."""

    def leader_epoch(self, at: TopicPartition, topic_id: TopicId | None = None) -> int:
        """The newest leader epoch of a partition in the metadata; -1 without any. With `topic_id`:
        of the topic with that id, which may be a former one of its name."""

    def high_watermark(self, broker_id: BrokerId, at: TopicPartition) -> int:
        """That of a broker's replica; 0 if it has none at this moment."""

    def is_compacted(self, at: TopicPartition) -> bool:
        """Whether compaction takes records out of the partition, or did at the beginning."""

    def log_start(self, at: TopicPartition) -> int:
        """The highest start of the partition's log on any broker that is up; 0 without any."""

    def leadership(self, broker_id: BrokerId, at: TopicPartition) -> Leadership | None:
        """As what a broker's process leads a partition at this moment, if it believes to."""

    def coordinates(self, broker_id: BrokerId, group: str) -> Leadership | None:
        """As what a broker coordinates a consumer group at this moment, if the metadata agree."""

    def note(self, text: str) -> None:
        """Write into the ring of last events."""
