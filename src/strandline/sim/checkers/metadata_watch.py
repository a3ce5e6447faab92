"""Follows the truth of the store: which partitions have another state, and which settings hold.

What a change must respect stands in `metadata_rules`; here changes are found, by comparing each
image with the one before, and handed to whoever judges them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from strandline.cluster.image import ClusterImage, PartitionImage
from strandline.node.settings import Settings
from strandline.sim.checkers.cluster import Cluster
from strandline.sim.checkers.commitment import Commitment
from strandline.sim.checkers.metadata_rules import MetadataRules
from strandline.sim.checkers.partition_model import PartitionModel, PartitionModels
from strandline.sim.checkers.scope import Scope
from strandline.sim.checkers.violations import Findings
from strandline.types import TopicPartition

SETTINGS_KNOWN_US: Final = 120_000_000
"""How long somebody may go on writing by a setting that was changed: until it hears of that, or
another one has its office."""


class MetadataWatch:
    """See the module."""

    def __init__(
        self,
        cluster: Cluster,
        findings: Findings,
        partitions: PartitionModels,
        commitment: Commitment,
        scope: Scope,
        now_us: Callable[[], int],
    ) -> None:
        self._cluster = cluster
        self._partitions = partitions
        self._commitment = commitment
        self._now_us = now_us
        self._rules = MetadataRules(cluster, findings, scope)
        self._image = ClusterImage()
        self._settings: list[Settings] = []
        """Of each broker: their files may differ."""
        self._former_minimums: dict[str, list[tuple[int, int]]] = {}
        """Of topics whose minimum was changed: until when which one may still be followed."""
        self._minimums: dict[str, frozenset[int]] = {}
        """By which the brokers go, of each topic."""

    def follow(self, image: ClusterImage) -> None:
        """The store has moved on."""
        before, self._image = self._image, image
        self._rules.check_cluster(image)
        if image.configs is not before.configs or not self._settings:
            self._follow_settings(image)
        if image.topics is before.topics:
            return
        for name, topic in before.topics.items():
            present = image.topics.get(name)
            if present is None or present.topic_id != topic.topic_id:
                for number in topic.partitions:
                    self._partitions.of(TopicPartition(name, number), topic.topic_id).state = None
        for name, topic in image.topics.items():
            former = before.topics.get(name)
            if former is topic:
                continue
            if name not in self._minimums:
                self._note_minimum(name, image)
            is_same = former is not None and former.topic_id == topic.topic_id
            for number, state in topic.partitions.items():
                old = former.partitions.get(number) if former is not None and is_same else None
                if old is not state and old != state:
                    partition = self._partitions.of(TopicPartition(name, number), topic.topic_id)
                    self._changed(partition, old, state)

    def _changed(
        self, partition: PartitionModel, old: PartitionImage | None, state: PartitionImage
    ) -> None:
        partition.state = state
        partition.state_since_us = self._now_us()
        if state.has_eligible:
            partition.with_eligible.add(state.partition_epoch)
        self._rules.check_partition(partition, old, self._image, minimums=self._possible(partition))
        self._commitment.check_all_leaders(partition)

    # -- Settings ----------------------------------------------------------------------------

    def _follow_settings(self, image: ClusterImage) -> None:
        if not self._settings:
            self._settings = [Settings(each.config) for each in self._cluster.machines.values()]
        for broker_id, settings in zip(self._cluster.machines, self._settings, strict=True):
            settings.follow(image, broker_id)
        for name in image.topics:
            self._note_minimum(name, image)

    def _note_minimum(self, name: str, image: ClusterImage) -> None:
        if not self._settings:
            return
        minimums = frozenset(
            settings.of_topic(name, image).min_insync_replicas for settings in self._settings
        )
        until_us = self._now_us() + SETTINGS_KNOWN_US
        for known in sorted(self._minimums.get(name, minimums) - minimums):
            self._former_minimums.setdefault(name, []).append((until_us, known))
        self._minimums[name] = minimums

    def _possible(self, partition: PartitionModel) -> tuple[int, ...]:
        former = self._former_minimums.get(partition.at.topic, ())
        minimums = sorted(self._minimums.get(partition.at.topic, (1,)))
        minimums += [minimum for until_us, minimum in former if self._now_us() <= until_us]
        return tuple(self._limited(partition, minimum) for minimum in minimums)

    @staticmethod
    def _limited(partition: PartitionModel, minimum: int) -> int:
        replicas = 1 if partition.state is None else len(partition.state.replicas)
        return max(1, min(minimum, replicas))
