"""What a client believes of the cluster when brokers say different things."""

from __future__ import annotations

from strandline.client.metadata import ClusterView, PartitionInfo, TopicInfo, with_newest_epochs
from strandline.types import NO_TOPIC_ID, BrokerId, LeaderEpoch, TopicId

ID, OTHER = TopicId(int=7), TopicId(int=8)


def view(leader: int, epoch: int, topic_id: TopicId = ID) -> ClusterView:
    """Topic `t` with one partition."""
    partition = PartitionInfo(0, BrokerId(leader), LeaderEpoch(epoch), (), ())
    return ClusterView(topics={"t": TopicInfo("t", topic_id, False, {0: partition})})


def believed(known: ClusterView, fresh: ClusterView) -> tuple[int, int]:
    partition = with_newest_epochs(known, fresh).topics["t"].partitions[0]
    return partition.leader, partition.leader_epoch


def test_an_older_leader_epoch_is_not_believed() -> None:
    assert believed(view(1, 3), view(2, 2)) == (1, 3)
    assert believed(view(1, 3), view(2, 4)) == (2, 4)
    assert believed(view(1, 3), view(2, 3)) == (2, 3)


def test_nobody_leads_in_a_newer_epoch_than_he_who_did() -> None:
    assert believed(view(-1, 4), view(2, 3)) == (-1, 4)


def test_another_topic_of_that_name_has_epochs_of_its_own() -> None:
    assert believed(view(1, 3), view(2, 0, OTHER)) == (2, 0)
    assert believed(view(1, 3, NO_TOPIC_ID), view(2, 0, NO_TOPIC_ID)) == (2, 0)


def test_a_broker_that_tells_no_epochs_is_believed() -> None:
    assert believed(view(1, 3), view(2, -1)) == (2, -1)


def test_what_is_not_known_is_believed() -> None:
    assert believed(ClusterView(), view(2, 0)) == (2, 0)
