"""Proposals of in-sync sets and their answers in the words of AlterPartition, versions 2 and 3.

Both directions of both messages, since every node may be on either side. Version 2 has no broker
epochs of members: they count as unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from strandline.cluster.controller import InSyncProposal, PartitionAltered, Refusal
from strandline.errors import ErrorCode
from strandline.protocol.messages.alter_partition import (
    AlteredPartitionData,
    AlteredTopicData,
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionData,
    TopicData,
)
from strandline.types import BrokerId, LeaderEpoch, TopicId

_EPOCHS_SINCE = 3
_UNKNOWN_EPOCH = -1
_RECOVERING = 1


def request_of(
    broker_id: BrokerId, broker_epoch: int, proposals: Iterable[InSyncProposal]
) -> AlterPartitionRequest:
    """The request of a leader, for version 3."""
    topics: dict[TopicId, TopicData] = {}
    for item in proposals:
        topic = topics.get(item.topic_id)
        if topic is None:
            topic = topics[item.topic_id] = TopicData(topic_id=item.topic_id)
        members = [
            BrokerState(broker_id=member, broker_epoch=epoch) for member, epoch in item.members
        ]
        topic.partitions.append(
            PartitionData(
                partition_index=item.partition,
                leader_epoch=item.leader_epoch,
                new_isr_with_epochs=members,
                leader_recovery_state=_RECOVERING if item.is_recovering else 0,
                partition_epoch=item.partition_epoch,
            )
        )
    return AlterPartitionRequest(
        broker_id=broker_id, broker_epoch=broker_epoch, topics=list(topics.values())
    )


def proposals_of(request: AlterPartitionRequest, version: int) -> list[InSyncProposal]:
    """What a leader proposes."""
    return [
        InSyncProposal(
            topic.topic_id,
            item.partition_index,
            LeaderEpoch(item.leader_epoch),
            item.partition_epoch,
            _members(item, version),
            is_recovering=item.leader_recovery_state == _RECOVERING,
        )
        for topic in request.topics
        for item in topic.partitions
    ]


def _members(item: PartitionData, version: int) -> list[tuple[BrokerId, int]]:
    if version < _EPOCHS_SINCE:
        return [(BrokerId(member), _UNKNOWN_EPOCH) for member in item.new_isr]
    return [(BrokerId(each.broker_id), each.broker_epoch) for each in item.new_isr_with_epochs]


def response_of(results: Iterable[PartitionAltered]) -> AlterPartitionResponse:
    """The controller's answer."""
    topics: dict[TopicId, AlteredTopicData] = {}
    for result in results:
        topic = topics.get(result.topic_id)
        if topic is None:
            topic = topics[result.topic_id] = AlteredTopicData(topic_id=result.topic_id)
        topic.partitions.append(
            AlteredPartitionData(
                partition_index=result.partition,
                error_code=result.refusal.code if result.refusal else ErrorCode.NONE,
                leader_id=result.leader,
                leader_epoch=result.leader_epoch,
                isr=list(result.in_sync_replicas),
                leader_recovery_state=_RECOVERING if result.is_recovering else 0,
                partition_epoch=result.partition_epoch,
            )
        )
    return AlterPartitionResponse(topics=list(topics.values()))


def results_of(response: AlterPartitionResponse) -> Sequence[PartitionAltered]:
    """What the controller decided."""
    return [
        PartitionAltered(
            topic.topic_id,
            item.partition_index,
            Refusal(ErrorCode(item.error_code), "") if item.error_code else None,
            BrokerId(item.leader_id),
            LeaderEpoch(item.leader_epoch),
            tuple(BrokerId(member) for member in item.isr),
            item.partition_epoch,
            is_recovering=item.leader_recovery_state == _RECOVERING,
        )
        for topic in response.topics
        for item in topic.partitions
    ]
