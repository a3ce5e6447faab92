"""What the controller must know of the settings, asked by topic, so that it need not know them."""

from __future__ import annotations

from typing import Protocol

from strandline.cluster.image import PartitionImage


class ControllerPolicy(Protocol):
    """The node gives one, made from its settings and the overrides in the image it decides on."""

    def min_in_sync(self, topic: str) -> int:
        """`min.insync.replicas` of the topic."""

    def unclean_allowed(self, topic: str) -> bool:
        """`unclean.leader.election.enable` of the topic."""

    @property
    def is_deletion_enabled(self) -> bool:
        """`delete.topic.enable`."""


def effective_min_in_sync(policy: ControllerPolicy, topic: str, partition: PartitionImage) -> int:
    """How many replicas must be in sync: never more than there are, and one at the least."""
    return max(1, min(policy.min_in_sync(topic), len(partition.replicas)))
