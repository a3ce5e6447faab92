"""What a person may say about where the replicas of a new partition go."""

from __future__ import annotations

from collections.abc import Sequence

from strandline.cluster.assignment import Replicas
from strandline.cluster.image import ClusterImage
from strandline.errors import ErrorCode, ProtocolError
from strandline.types import BrokerId


def check_manual_replicas(
    image: ClusterImage, brokers: Sequence[BrokerId], replication_factor: int | None
) -> Replicas:
    """The replicas if they are brokers of the cluster, be they running or down, each once, and as
    many as the other partitions have.

    Raises INVALID_REPLICA_ASSIGNMENT.
    """
    problem = _problem(image, brokers, replication_factor)
    if problem is not None:
        raise ProtocolError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
    return tuple(brokers)


def check_one_runs(image: ClusterImage, number: int, replicas: Replicas) -> None:
    """Raise INVALID_REPLICA_ASSIGNMENT if all are down: the partition could have no leader."""
    if not any(image.is_alive(broker) for broker in replicas):
        raise ProtocolError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"All brokers that are to hold partition {number} are down.",
        )


def _problem(
    image: ClusterImage, brokers: Sequence[BrokerId], replication_factor: int | None
) -> str | None:
    if not brokers:
        return "The manual assignment gives a partition no replicas."
    unknown = sorted({broker for broker in brokers if not image.is_registered(broker)})
    if unknown:
        return f"The manual assignment names broker {unknown[0]}, which is not registered."
    if len(set(brokers)) != len(brokers):
        return "The manual assignment names a broker more than once for the same partition."
    if replication_factor is not None and len(brokers) != replication_factor:
        return (
            f"The manual assignment gives a partition {len(brokers)} replicas, "
            f"but other partitions have {replication_factor}."
        )
    return None
