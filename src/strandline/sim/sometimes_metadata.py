"""Interesting states of the metadata, seen by comparing each image with the one before it."""

from __future__ import annotations

from collections import Counter
from typing import Final

from strandline.cluster.image import ClusterImage
from strandline.cluster.image_parts import PartitionImage
from strandline.sim.world import World

METADATA_STATES: Final = (
    "in-sync set shrinks",
    "in-sync set expands",
    "in-sync set of one",
    "in-sync set below the minimum",
    "replica becomes eligible",
    "replica loses its eligibility",
    "leader changes",
    "preferred leader returns",
    "leader is elected out of the eligible",
    "unclean election",
    "no leader",
    "leader epoch rises, same leader",
    "reassignment begins",
    "reassignment completes",
    "reassignment is cancelled",
    "session ends under a running broker",
    "broker stops in order",
    "no broker is left",
    "controller changes",
    "topic made",
    "topic deleted",
    "topic made anew",
    "partition added",
)


class MetadataStates:
    """Compares images."""

    def __init__(self, world: World, found: Counter[str]) -> None:
        self._world = world
        self._found = found
        self._before = ClusterImage()
        self._controller_before: int | None = None
        self._topic_names: set[str] = set()

    def look(self, image: ClusterImage) -> None:
        """The truth has moved to this image."""
        before, self._before = self._before, image
        if before.brokers is not image.brokers:
            self._brokers(before, image)
        if before.controller != image.controller and image.controller is not None:
            self._controller(image.controller)
        if before.topics is not image.topics:
            self._topics(before, image)

    def _controller(self, controller: int) -> None:
        if self._controller_before not in (None, controller):
            self._found["controller changes"] += 1
        self._controller_before = controller

    def _brokers(self, before: ClusterImage, image: ClusterImage) -> None:
        found = self._found
        for broker_id, broker in before.brokers.items():
            now = image.brokers.get(broker_id)
            if now is None:
                if self._world.machines[broker_id].is_running:
                    found["session ends under a running broker"] += 1
            elif now.is_shutting_down and not broker.is_shutting_down:
                found["broker stops in order"] += 1
        if before.brokers and not image.brokers:
            found["no broker is left"] += 1

    def _topics(self, before: ClusterImage, image: ClusterImage) -> None:
        found = self._found
        for name, topic in image.topics.items():
            was = before.topics.get(name)
            if was is topic:
                continue
            if was is None or was.topic_id != topic.topic_id:
                found["topic made anew" if name in self._topic_names else "topic made"] += 1
                self._topic_names.add(name)
                continue
            for number, state in topic.partitions.items():
                former = was.partitions.get(number)
                if former is None:
                    found["partition added"] += 1
                elif former is not state:
                    self._partition(former, state, before)
        for name in before.topics:
            if name not in image.topics:
                found["topic deleted"] += 1

    def _partition(self, was: PartitionImage, now: PartitionImage, before: ClusterImage) -> None:
        found = self._found
        self._in_sync(was, now)
        if was.leader != now.leader and was.leader_epoch >= 0:
            self._election(was, now)
        elif was.leader_epoch != now.leader_epoch and was.leader_epoch >= 0:
            found["leader epoch rises, same leader"] += 1
        if (
            now.leader != was.leader
            and now.leader == now.replicas[0]
            and was.leader in before.brokers
        ):
            found["preferred leader returns"] += 1
        if not was.adding and not was.removing and (now.adding or now.removing):
            found["reassignment begins"] += 1
        if (was.adding or was.removing) and not now.adding and not now.removing:
            done = set(was.adding) <= set(now.replicas)
            found["reassignment completes" if done else "reassignment is cancelled"] += 1

    def _in_sync(self, was: PartitionImage, now: PartitionImage) -> None:
        found = self._found
        old, new = set(was.in_sync_replicas), set(now.in_sync_replicas)
        if old - new:
            found["in-sync set shrinks"] += 1
            if len(new) == 1:
                found["in-sync set of one"] += 1
        if new - old:
            found["in-sync set expands"] += 1
        if set(now.elr) - set(was.elr):
            found["replica becomes eligible"] += 1
            found["in-sync set below the minimum"] += 1
        if set(was.elr) - set(now.elr) - new:
            found["replica loses its eligibility"] += 1

    def _election(self, was: PartitionImage, now: PartitionImage) -> None:
        found = self._found
        if now.leader < 0:
            found["no leader"] += 1
            return
        found["leader changes"] += 1
        if now.leader in was.elr and now.leader not in was.in_sync_replicas:
            found["leader is elected out of the eligible"] += 1
        elif now.leader not in was.in_sync_replicas:
            found["unclean election"] += 1
