"""What is looked up in the metadata that a client has, and why it is not there."""

from __future__ import annotations

from typing import Final

from strandline.client.metadata import BrokerInfo, ClusterView, PartitionInfo, TopicInfo
from strandline.client.refusal import refusal
from strandline.errors import ErrorCode, ProtocolError
from strandline.types import BrokerId, TopicPartition

_STILL_APPEARING: Final = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE}
)


def topic_refusal(view: ClusterView, name: str) -> tuple[ProtocolError, bool]:
    """Why a topic is not in the metadata; whether it may just be appearing."""
    code = view.refused.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return refusal(code, None, f"topic '{name}'"), code in _STILL_APPEARING


def led_partition(view: ClusterView, topic: TopicInfo, partition: TopicPartition) -> PartitionInfo:
    """A partition of the topic, with a leader that is alive. Raises `ProtocolError`."""
    found = topic.partitions.get(partition.partition)
    if found is None:
        raise ProtocolError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"There is no partition {partition.partition} of topic '{partition.topic}'; "
            f"it has the partitions 0 to {len(topic.partitions) - 1}.",
        )
    if found.leader not in view.brokers:
        raise refusal(ErrorCode.LEADER_NOT_AVAILABLE, None, f"partition {partition}")
    return found


def broker_of(view: ClusterView, broker: BrokerId) -> BrokerInfo:
    """A broker that is alive. Raises `ProtocolError` (BROKER_NOT_AVAILABLE)."""
    info = view.brokers.get(broker)
    if info is None:
        raise ProtocolError(
            ErrorCode.BROKER_NOT_AVAILABLE, f"Broker {broker} is not in the cluster."
        )
    return info
