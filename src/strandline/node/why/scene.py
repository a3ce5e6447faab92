"""What the rules of `why` look at: one node at one moment, and what was asked about."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from strandline.cluster.image import ClusterImage, PartitionImage
from strandline.errors import ErrorCode
from strandline.node.parts import NodeParts
from strandline.node.replica import Replica
from strandline.node.status.history import Event, Kind
from strandline.node.why.refusals import About, Refusal
from strandline.types import BrokerId, Instant, TopicPartition


@dataclass(frozen=True, slots=True)
class Scene:
    """See the module. What is None was not asked about: everything counts then."""

    node: NodeParts
    now: Instant
    topic: str | None = None
    partition: int | None = None
    group: str | None = None

    @property
    def image(self) -> ClusterImage:
        return self.node.metadata.image

    def partitions(self) -> Iterator[tuple[TopicPartition, PartitionImage]]:
        """The partitions that were asked about, as the metadata have them."""
        return self.image.chosen(None if self.topic is None else [self.topic], self.partition)

    @property
    def has_place(self) -> bool:
        """Whether the topic, or the partition, that was asked about is there."""
        return any(True for _ in self.partitions())

    def hosted(self) -> Iterator[Replica]:
        """Those of them that have a replica here."""
        for at, _ in self.partitions():
            replica = self.node.replicas.find(at)
            if replica is not None:
                yield replica

    def refusals(self, *codes: ErrorCode) -> list[Refusal]:
        """What was refused with these codes about what was asked, the newest first."""
        return [
            each
            for each in reversed(list(self.node.telemetry.refusals))
            if each.code in codes and self._is_about(each.about)
        ]

    def wall_ms(self, monotonic_ms: int) -> int:
        """A monotonic time of this node as wall time."""
        return self.now.wall_ms - (self.now.monotonic_ms - monotonic_ms)

    def last(self, kind: Kind, at: TopicPartition) -> Event | None:
        """The newest change of that kind that this node remembers."""
        return self.node.telemetry.history.last(kind, at)

    def absent(self, brokers: Collection[BrokerId]) -> list[BrokerId]:
        """Which of these brokers are not registered."""
        return [each for each in brokers if not self.image.is_alive(each)]

    def _is_about(self, about: About) -> bool:
        if self.group is not None:
            return about.group == self.group
        if self.topic is None:
            return True
        if about.topic != self.topic:
            return False
        return None in (self.partition, about.partition) or self.partition == about.partition


def refusal_evidence(refusal: Refusal, now: Instant) -> tuple[str, ...]:
    """What is known of a refusal, as sentences."""
    ago_s = (now.monotonic_ms - refusal.last.monotonic_ms) / 1000
    who = refusal.client_id or "a client without a name"
    times = "once" if refusal.count == 1 else f"{refusal.count} times"
    said = f"{refusal.api} of {who} at {refusal.client_host} was refused with {refusal.code.name}"
    evidence = [f"{said} {times}, last {ago_s:.1f} s ago"]
    if refusal.message:
        evidence.append(refusal.message)
    return tuple(evidence)
