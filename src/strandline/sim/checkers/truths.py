"""Every partition that there ever was, by topic id: a topic made anew is another one."""

from __future__ import annotations

from collections.abc import Iterator

from strandline.sim.checkers.truth import PartitionTruth
from strandline.sim.checkers.violations import Findings
from strandline.types import NO_TOPIC_ID, TopicId, TopicPartition


class Truths:
    """See the module."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._known: dict[tuple[TopicId, TopicPartition], PartitionTruth] = {}
        self._newest: dict[TopicPartition, PartitionTruth] = {}

    def __iter__(self) -> Iterator[PartitionTruth]:
        return iter(self._known.values())

    def of(self, at: TopicPartition, topic_id: TopicId) -> PartitionTruth:
        """The partition of that topic."""
        truth = self._known.get((topic_id, at))
        if truth is None:
            truth = PartitionTruth(at, topic_id, self._findings)
            self._known[topic_id, at] = truth
            if topic_id != NO_TOPIC_ID:
                self._newest[at] = truth
        return truth

    def newest(self, at: TopicPartition) -> PartitionTruth | None:
        """The partition of the last topic with that name."""
        return self._newest.get(at)

    def named(self, at: TopicPartition) -> list[PartitionTruth]:
        """The partitions of all topics that had that name."""
        return [truth for truth in self._known.values() if truth.at == at]
