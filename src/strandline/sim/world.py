"""A whole cluster in virtual time. SKELETON: signatures first."""

from __future__ import annotations

from collections.abc import Callable

from strandline.cluster.image import ClusterImage
from strandline.node.replica import Replica
from strandline.sim.machine import Machine
from strandline.sim.observer import Observer
from strandline.sim.plan import Options
from strandline.sim.schedule import Schedule
from strandline.sim.streams import Streams
from strandline.types import BrokerId, TopicPartition


class World:
    """See the module."""

    options: Options
    schedule: Schedule
    streams: Streams
    machines: dict[BrokerId, Machine]
    observers: list[Observer]

    def __init__(self, options: Options, *, permute: bool = True) -> None: ...

    def start_all(self) -> None:
        """Start every broker, in a drawn order."""

    def run_for(self, ms: int) -> None:
        """Let time pass."""

    def run_until(self, condition: Callable[[], bool], within_us: int = 60_000_000) -> bool:
        """Let things happen until the condition holds; whether it did within that time."""

    def note(self, text: str) -> None:
        """Write into the ring of last events, with the time before it."""

    @property
    def notes(self) -> list[str]:
        """The last events in words."""

    @property
    def image(self) -> ClusterImage:
        """The metadata as the store has it: the truth."""

    def replica(self, broker_id: int, partition: TopicPartition) -> Replica | None:
        """A broker's replica of a partition, if it is up and has one."""

    def is_settled(self) -> bool:
        """Whether all running brokers are registered and know all, and every partition is led by a
        live broker and in sync with all its live replicas."""

    @property
    def trace_hash(self) -> str:
        """Of everything that has been delivered so far, and of what it changed."""
