"""The replicas that a question is about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.cluster.image import ClusterImage
from strandline.errors import ErrorCode, ProtocolError
from strandline.node.replicas import Replicas

if TYPE_CHECKING:
    from strandline.node.replica import Replica


def hosted(
    replicas: Replicas, image: ClusterImage, topic: str, number: int | None
) -> list[Replica]:
    """The replicas of a topic on this node, or the one of a partition. Raises `ProtocolError`."""
    if topic not in image.topics:
        raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic '{topic}'.")
    if number is not None:
        return [replicas.hosted(topic, number)]
    found = [replica for replica in replicas if replica.topic_partition.topic == topic]
    return sorted(found, key=lambda replica: replica.topic_partition.partition)
