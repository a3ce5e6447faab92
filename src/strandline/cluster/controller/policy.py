"""What the controller must know of the settings, asked by topic, so that it need not know them."""

from __future__ import annotations

from typing import Protocol

from strandline.cluster.controller.partition_repair import Rules
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


def rules_of(
    policy: ControllerPolicy,
    topic: str,
    partition: PartitionImage,
    *,
    unclean_allowed: bool | None = None,
) -> Rules:
    """The topic's settings for one partition: of its replicas, never more need be in sync than
    there are, and one at the least. `unclean_allowed` overrides the topic's own."""
    if unclean_allowed is None:
        unclean_allowed = policy.unclean_allowed(topic)
    in_sync = max(1, min(policy.min_in_sync(topic), len(partition.replicas)))
    return Rules(in_sync, unclean_allowed)
