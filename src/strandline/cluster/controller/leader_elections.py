"""Signatures first; the decisions follow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from strandline.cluster.controller.decision import Decision, Refusal
from strandline.cluster.controller.events import Event
from strandline.cluster.controller.policy import ControllerPolicy
from strandline.cluster.image import ClusterImage
from strandline.types import TopicPartition


class ElectionKind(IntEnum):
    """What may be asked for, by the number on the wire."""

    PREFERRED = 0
    UNCLEAN = 1


@dataclass(frozen=True, slots=True)
class Elected:
    """What became of one partition."""

    partition: TopicPartition
    refusal: Refusal | None = None


def elect_leaders(
    image: ClusterImage,
    kind: ElectionKind,
    partitions: Sequence[TopicPartition] | None,
    policy: ControllerPolicy,
) -> Decision[Elected]:
    """Results in the order of the request. None: all partitions; those that need no election
    are then left out of the results."""
    raise NotImplementedError


def rebalance(
    image: ClusterImage, policy: ControllerPolicy, *, imbalance_percent_max: int
) -> Decision[Event]:
    """Give leadership back to preferred leaders; bounded: call again until empty."""
    raise NotImplementedError
