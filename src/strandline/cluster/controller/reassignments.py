"""Signatures first; the decisions follow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from strandline.cluster.controller.decision import Decision, Refusal
from strandline.cluster.controller.policy import ControllerPolicy
from strandline.cluster.image import ClusterImage
from strandline.types import BrokerId, TopicPartition


@dataclass(frozen=True, slots=True)
class ReassignmentWish:
    """Which brokers shall hold the partition, the preferred leader first; None: cancel."""

    partition: TopicPartition
    replicas: Sequence[BrokerId] | None


@dataclass(frozen=True, slots=True)
class ReassignmentAnswer:
    """What became of one wish."""

    partition: TopicPartition
    refusal: Refusal | None = None


@dataclass(frozen=True, slots=True)
class OngoingReassignment:
    """A partition that is being moved."""

    partition: TopicPartition
    replicas: tuple[BrokerId, ...]
    adding: tuple[BrokerId, ...]
    removing: tuple[BrokerId, ...]


def alter_reassignments(
    image: ClusterImage,
    wishes: Sequence[ReassignmentWish],
    policy: ControllerPolicy,
    *,
    may_change_replication_factor: bool = True,
) -> Decision[ReassignmentAnswer]:
    """Results in the order of the request."""
    raise NotImplementedError


def list_reassignments(
    image: ClusterImage, partitions: Sequence[TopicPartition] | None = None
) -> list[OngoingReassignment]:
    """What is being moved, of these partitions or of all; sorted."""
    raise NotImplementedError
