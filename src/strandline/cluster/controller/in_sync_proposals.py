"""Signatures first; the decision follows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from strandline.cluster.controller.decision import Decision, Refusal
from strandline.cluster.controller.policy import ControllerPolicy
from strandline.cluster.image import ClusterImage
from strandline.cluster.znodes import NO_LEADER
from strandline.types import NO_EPOCH, BrokerId, LeaderEpoch, TopicId

UNKNOWN_BROKER_EPOCH = -1


@dataclass(frozen=True, slots=True)
class InSyncProposal:
    """What a leader wants its in-sync set to be. Members come with their broker epochs (or -1)."""

    topic_id: TopicId
    partition: int
    leader_epoch: LeaderEpoch
    partition_epoch: int
    members: Sequence[tuple[BrokerId, int]]
    is_recovering: bool = False


@dataclass(frozen=True, slots=True)
class PartitionAltered:
    """What became of one proposal. Without an error the rest is the state that holds now."""

    topic_id: TopicId
    partition: int
    refusal: Refusal | None = None
    leader: BrokerId = NO_LEADER
    leader_epoch: LeaderEpoch = NO_EPOCH
    in_sync_replicas: tuple[BrokerId, ...] = ()
    partition_epoch: int = -1
    is_recovering: bool = False


def alter_partitions(
    image: ClusterImage,
    broker_id: BrokerId,
    broker_epoch: int,
    items: Sequence[InSyncProposal],
    policy: ControllerPolicy,
) -> Decision[PartitionAltered]:
    """Results in the order of the items. Raises STALE_BROKER_EPOCH for the whole request."""
    raise NotImplementedError
