"""What a client believes of the cluster when brokers say different things."""

from __future__ import annotations

import pytest

from strandline.client.metadata import Metadata
from strandline.client.settings import Address
from strandline.errors import ErrorCode
from strandline.protocol.messages.fetch import LeaderIdAndEpoch, NodeEndpoint
from strandline.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from strandline.types import NO_TOPIC_ID, BrokerId, TopicId, TopicPartition

ID, OTHER = TopicId(int=7), TopicId(int=8)
AT = TopicPartition("t", 0)


def told(*leaders: tuple[int, int], topic_id: TopicId = ID, name: str = "t") -> MetadataResponse:
    """Brokers 1 and 2, and a topic with the leader and epoch of each partition."""
    partitions = [
        MetadataResponsePartition(partition_index=number, leader_id=leader, leader_epoch=epoch)
        for number, (leader, epoch) in enumerate(leaders)
    ]
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=n, host="b", port=n) for n in (1, 2)],
        topics=[MetadataResponseTopic(name=name, topic_id=topic_id, partitions=partitions)],
    )


def refused(code: ErrorCode) -> MetadataResponse:
    return MetadataResponse(topics=[MetadataResponseTopic(name="t", error_code=code)])


def knowing(*leaders: tuple[int, int], topic_id: TopicId = ID) -> Metadata:
    metadata = Metadata()
    metadata.learn(told(*leaders, topic_id=topic_id))
    return metadata


def hint(leader: int, epoch: int) -> LeaderIdAndEpoch:
    return LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)


def believed(metadata: Metadata, partition: int = 0) -> tuple[int, int]:
    found = metadata.view.topics["t"].partitions[partition]
    return found.leader, found.leader_epoch


def test_an_older_leader_epoch_is_not_believed() -> None:
    for fresh, expected in [((2, 2), (1, 3)), ((2, 4), (2, 4)), ((2, 3), (2, 3))]:
        metadata = knowing((1, 3))
        learned = metadata.learn(told(fresh))
        assert believed(metadata) == expected
        assert learned.outdated == (fresh[1] < 3)


def test_a_leader_of_before_is_not_believed_while_there_is_none() -> None:
    metadata = knowing((-1, 4))
    metadata.learn(told((2, 3)))
    assert believed(metadata) == (-1, 4)


def test_another_topic_of_that_name_has_epochs_and_partitions_of_its_own() -> None:
    metadata = knowing((1, 3), (1, 3))
    assert metadata.learn(told((2, 0), topic_id=OTHER)).replaced == ("t",)
    assert believed(metadata) == (2, 0)
    assert len(metadata.view.topics["t"].partitions) == 1
    metadata = knowing((1, 3), topic_id=NO_TOPIC_ID)
    metadata.learn(told((2, 0), topic_id=NO_TOPIC_ID))
    assert believed(metadata) == (2, 0)


def test_a_broker_that_tells_no_epochs_is_believed() -> None:
    metadata = knowing((1, 3))
    metadata.learn(told((2, -1)))
    assert believed(metadata) == (2, -1)


def test_a_broker_that_does_not_know_the_newest_partitions_takes_none_away() -> None:
    metadata = knowing((1, 3), (2, 0))
    metadata.learn(told((1, 3)))
    assert believed(metadata, 1) == (2, 0)


def test_answers_about_some_topics_leave_the_others() -> None:
    metadata = knowing((1, 3))
    metadata.learn(told((2, 1), name="u"))
    assert set(metadata.view.topics) == {"t", "u"}
    metadata.learn(refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    assert set(metadata.view.topics) == {"u"}
    assert metadata.view.refused == {"t": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    metadata.learn(told((1, 0)))
    assert not metadata.view.refused
    metadata.learn(told((1, 0)), is_of_all=True)
    assert set(metadata.view.topics) == {"t"}


def test_a_hint_counts_if_its_epoch_is_newer_and_its_broker_can_be_reached() -> None:
    metadata = knowing((1, 3))
    assert not metadata.hint(AT, ID, hint(2, 3))
    assert not metadata.hint(AT, ID, hint(-1, 4))
    assert not metadata.hint(AT, ID, hint(3, 4))
    assert not metadata.hint(TopicPartition("t", 1), ID, hint(2, 4))
    assert metadata.hint(AT, ID, hint(2, 4))
    assert believed(metadata) == (2, 4)
    endpoint = NodeEndpoint(node_id=3, host="c", port=3)
    assert metadata.hint(AT, ID, hint(3, 5), [endpoint])
    assert believed(metadata) == (3, 5)
    assert metadata.view.brokers[BrokerId(3)].address == Address("c", 3)


@pytest.mark.parametrize("named", [OTHER, NO_TOPIC_ID])
def test_a_hint_about_another_topic_of_that_name_says_nothing(named: TopicId) -> None:
    """Its leader epochs are higher: the present leader would not be believed any more."""
    metadata = knowing((1, 0))
    assert not metadata.hint(AT, named, hint(2, 4))
    assert believed(metadata) == (1, 0)


def test_where_brokers_tell_no_ids_a_hint_needs_none() -> None:
    metadata = knowing((1, 3), topic_id=NO_TOPIC_ID)
    assert metadata.hint(AT, NO_TOPIC_ID, hint(2, 4))
