"""Topics of coordinators that were made by hand, with another number of partitions than brokers
give them: all brokers go by the topic that there is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import pytest

from strandline.cluster.identifiers import uuid_text
from strandline.cluster.topic_names import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from strandline.cluster.znodes import ConfigResource, ResourceKind
from strandline.protocol.messages import initialize_share_group_state as initialize
from strandline.protocol.messages import read_share_group_state_summary as summary
from strandline.protocol.messages.delete_topics import DeleteTopicsRequest
from strandline.protocol.messages.describe_transactions import DescribeTransactionsRequest
from strandline.protocol.messages.find_coordinator import FindCoordinatorRequest
from strandline.protocol.messages.init_producer_id import InitProducerIdRequest
from strandline.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from strandline.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from strandline.types import TopicId
from tests.node.cluster_world import Broker, ClusterWorld
from tests.node.world import World

NAMES: Final = [f"name{number}" for number in range(6)]
FOUR_PARTITIONS: Final = (
    "offsets.topic.num.partitions=4",
    "transaction.state.log.num.partitions=4",
    "share.coordinator.state.topic.num.partitions=4",
)

AnyBroker = World | Broker
Use = Callable[[AnyBroker, str], int]


def orders_id(broker: AnyBroker) -> TopicId:
    return broker.node.metadata.image.topics["orders"].topic_id


def commit(broker: AnyBroker, name: str) -> int:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topic = OffsetCommitRequestTopic(name="orders", partitions=[partition])
    answer = broker.connect().ask(OffsetCommitRequest(group_id=name, topics=[topic]), 8)
    return int(answer.topics[0].partitions[0].error_code)


def committed(broker: AnyBroker, name: str) -> int:
    topic = OffsetFetchRequestTopic(name="orders", partition_indexes=[0])
    answer = broker.connect().ask(OffsetFetchRequest(group_id=name, topics=[topic]), 7)
    return int(answer.topics[0].partitions[0].committed_offset)


def begin_producer(broker: AnyBroker, name: str) -> int:
    request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
    return int(broker.connect().ask(request, 4).error_code)


def known_producers(broker: AnyBroker, name: str) -> int:
    request = DescribeTransactionsRequest(transactional_ids=[name])
    (state,) = broker.connect().ask(request, 0).transaction_states
    return int(state.error_code == 0)


def begin_share_partition(broker: AnyBroker, name: str) -> int:
    item = initialize.PartitionData(partition=0, state_epoch=1, start_offset=0)
    topic = initialize.InitializeStateData(topic_id=orders_id(broker), partitions=[item])
    request = initialize.InitializeShareGroupStateRequest(group_id=name, topics=[topic])
    return int(broker.connect().ask(request, 0).results[0].partitions[0].error_code)


def share_state_epoch(broker: AnyBroker, name: str) -> int:
    item = summary.PartitionData(partition=0, leader_epoch=0)
    topic = summary.ReadStateSummaryData(topic_id=orders_id(broker), partitions=[item])
    request = summary.ReadShareGroupStateSummaryRequest(group_id=name, topics=[topic])
    return int(broker.connect().ask(request, 0).results[0].partitions[0].state_epoch)


@dataclass(frozen=True)
class Coordinator:
    """What tells a coordinator from others: its topic, and what it keeps for a name."""

    topic: str
    key_type: int
    write: Use
    """Returns an error."""
    read: Use
    """Returns 1 if it is known."""

    def find(self, broker: AnyBroker, name: str) -> int:
        """The broker that coordinates; -1 if there is none."""
        key = f"{name}:{uuid_text(orders_id(broker))}:0" if self.key_type == 2 else name
        request = FindCoordinatorRequest(coordinator_keys=[key], key_type=self.key_type)
        (found,) = broker.connect().ask(request, 6).coordinators
        return int(found.node_id)


COORDINATORS = pytest.mark.parametrize(
    "coordinator",
    [
        Coordinator(CONSUMER_OFFSETS, 0, commit, committed),
        Coordinator(TRANSACTION_STATE, 1, begin_producer, known_producers),
        Coordinator(SHARE_GROUP_STATE, 2, begin_share_partition, share_state_epoch),
    ],
    ids=["groups", "transactions", "shares"],
)


@COORDINATORS
def test_what_is_written_after_the_topic_was_deleted_is_found_after_a_restart(
    coordinator: Coordinator,
) -> None:
    world = World(*FOUR_PARTITIONS)
    world.create_topic("orders")
    world.create_topic(coordinator.topic, 1)
    assert coordinator.find(world, NAMES[0]) == 1
    world.delete_topic(coordinator.topic)
    for name in NAMES:
        assert coordinator.find(world, name) == 1
        assert coordinator.write(world, name) == 0
    world.restart()
    assert [coordinator.read(world, name) for name in NAMES] == [1] * len(NAMES)
    ends = [world.replica(coordinator.topic, number).log.log_end_offset for number in range(4)]
    assert sum(end > 0 for end in ends) > 1
    world.check()


@COORDINATORS
def test_a_topic_made_by_hand_looks_as_one_that_brokers_make(coordinator: Coordinator) -> None:
    """Without compaction, or with retention, what was committed would be gone after some days."""
    world = World(*FOUR_PARTITIONS)
    world.create_topic("orders")
    coordinator.find(world, NAMES[0])
    resource = ConfigResource(ResourceKind.TOPIC, coordinator.topic)
    expected = world.node.metadata.image.overrides(resource)
    assert expected
    world.delete_topic(coordinator.topic)
    world.create_topic(coordinator.topic, -1)
    image = world.node.metadata.image
    assert image.overrides(resource) == expected
    assert len(image.topics[coordinator.topic].partitions) == 4


@COORDINATORS
def test_all_brokers_agree_who_coordinates_after_the_topic_was_deleted(
    make_world: Callable[..., ClusterWorld], coordinator: Coordinator
) -> None:
    world = make_world(3, *FOUR_PARTITIONS)
    world.create_topic("orders", (1,))
    world.create_topic(coordinator.topic, (1, 2, 3))
    brokers = [world[number] for number in (1, 2, 3)]
    assert coordinator.find(world[1], NAMES[0]) == 1, "the others have no coordinator yet"
    request = DeleteTopicsRequest(topic_names=[coordinator.topic], timeout_ms=1000)
    answer = world.controller.connect().ask(request, 3)
    assert answer.responses[0].error_code == 0
    world.run_until(lambda: coordinator.topic not in world.image.topics)
    coordinator.find(world[1], NAMES[0])
    world.run_until(world.is_settled)
    for name in NAMES:
        (leader,) = {coordinator.find(broker, name) for broker in brokers}
        assert coordinator.write(world[leader], name) == 0
        assert coordinator.read(world[leader], name) == 1
