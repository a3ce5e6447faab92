"""Looking into running brokers: where their replicas are. Nothing is changed."""

from __future__ import annotations

from collections.abc import Mapping

from strandline.broker.running import Broker
from strandline.cluster.image import PartitionImage
from strandline.errors import ProtocolError
from strandline.node.replica import Replica
from strandline.testing.status import PartitionStatus, ReplicaStatus
from strandline.types import BrokerId, TopicPartition


def partition_status(
    topic: str, number: int, state: PartitionImage, brokers: Mapping[BrokerId, Broker]
) -> PartitionStatus:
    """A partition as the metadata has it, with what its replicas say."""
    partition = TopicPartition(topic, number)
    replicas = [
        _replica_status(broker_id, found)
        for broker_id in state.replicas
        if (broker := brokers.get(broker_id)) is not None
        and (found := _replica(broker, partition)) is not None
    ]
    return PartitionStatus(
        topic,
        number,
        state.leader if state.has_leader else None,
        state.leader_epoch,
        tuple(state.replicas),
        tuple(state.in_sync_replicas),
        tuple(replicas),
    )


def _replica(broker: Broker, partition: TopicPartition) -> Replica | None:
    try:
        return broker.node.replicas.hosted(partition.topic, partition.partition)
    except ProtocolError:
        return None  # it has not heard of it yet, or its disk has failed


def _replica_status(broker_id: BrokerId, replica: Replica) -> ReplicaStatus:
    return ReplicaStatus(
        broker_id,
        "leader" if replica.is_leading else "follower",
        replica.leader_epoch,
        replica.log.log_start_offset,
        replica.log.high_watermark,
        replica.log.log_end_offset,
    )
