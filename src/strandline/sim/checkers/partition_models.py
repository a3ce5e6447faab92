"""Every partition that there ever was, by topic id: a topic made anew is another one."""

from __future__ import annotations

from collections.abc import Iterator

from strandline.sim.checkers.partition_model import PartitionModel
from strandline.sim.checkers.violations import Findings
from strandline.types import NO_TOPIC_ID, TopicId, TopicPartition


class PartitionModels:
    """See the module."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._known: dict[tuple[TopicId, TopicPartition], PartitionModel] = {}
        self._newest: dict[TopicPartition, PartitionModel] = {}

    def __iter__(self) -> Iterator[PartitionModel]:
        return iter(self._known.values())

    def of(self, at: TopicPartition, topic_id: TopicId) -> PartitionModel:
        """The partition of that topic."""
        partition = self._known.get((topic_id, at))
        if partition is None:
            partition = PartitionModel(at, topic_id, self._findings)
            self._known[topic_id, at] = partition
            if topic_id != NO_TOPIC_ID:
                self._newest[at] = partition
        return partition

    def newest(self, at: TopicPartition) -> PartitionModel | None:
        """The partition of the last topic with that name."""
        return self._newest.get(at)

    def named(self, at: TopicPartition) -> list[PartitionModel]:
        """The partitions of all topics that had that name."""
        return [partition for partition in self._known.values() if partition.at == at]
