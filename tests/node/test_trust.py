"""What protects brokers from requests of others that pretend to be brokers: the broker epoch.

It is the transaction that made a broker's registration. A client that does not know it can neither
change in-sync sets nor confirm records. (It is no secret: a reader of the metadata store, or of the
traffic of brokers, knows it. See docs/compatibility.md.)
"""

from __future__ import annotations

from typing import Any

import pytest

from strandline.errors import ErrorCode
from strandline.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    PartitionData,
    TopicData,
)
from strandline.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tests.node.followers import ALL, ME, B, C, Cluster


def alter(cluster: Cluster, broker_id: int, broker_epoch: int, version: int = 3) -> Any:
    """The answer to a request to have broker 1 alone in sync with the partition."""
    state = cluster.state()
    partition = PartitionData(
        partition_index=0,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
    )
    if version < 3:
        partition.new_isr = [ME]
    else:
        partition.new_isr_with_epochs = [BrokerState(broker_id=ME, broker_epoch=-1)]
    topic = TopicData(
        topic_id=cluster.world.node.metadata.image.topics["orders"].topic_id,
        partitions=[partition],
    )
    request = AlterPartitionRequest(broker_id=broker_id, broker_epoch=broker_epoch, topics=[topic])
    return cluster.world.connect().ask(request, version)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize(
    ("broker_id", "wrong_by"), [(ME, -1), (ME, 1), (ME, -10_000), (B, 1), (9, 0), (-1, 0)]
)
def test_a_client_that_is_no_broker_changes_no_in_sync_set(
    cluster: Cluster, broker_id: int, wrong_by: int, version: int
) -> None:
    known = broker_id in cluster.world.node.metadata.image.brokers
    epoch = (cluster.epoch_of(broker_id) if known else -1) + wrong_by
    before = cluster.state()
    answer = alter(cluster, broker_id, epoch, version)
    assert (answer.error_code, answer.topics) == (ErrorCode.STALE_BROKER_EPOCH, [])
    assert cluster.state() == before


def test_a_broker_that_does_not_lead_changes_no_in_sync_set(cluster: Cluster) -> None:
    before = cluster.state()
    answer = alter(cluster, B, cluster.epoch_of(B))
    ((refused,),) = (topic.partitions for topic in answer.topics)
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert cluster.state() == before


@pytest.mark.parametrize("wrong_by", [-1, -10_000])
def test_a_fetch_under_another_registration_confirms_nothing(
    cluster: Cluster, wrong_by: int
) -> None:
    """The id of a live broker that is in sync, and an epoch that is not its own (KIP-903).

    An epoch that is newer than what the leader knows is another matter: the follower may have
    heard of its registration first (see `test_replica_leading`).
    """
    cluster.produce()
    cluster.fetch(C, 1)
    cluster.fetch(B, 0)
    for _ in range(3):
        epoch = cluster.epoch_of(B) + wrong_by
        client = cluster.world.connect()
        client.send(cluster.fetch_request(B, 1, broker_epoch=epoch), 17)
        cluster.world.turn()
        assert cluster.offsets() == (1, 0)
    cluster.fetch(B, 1)
    assert cluster.offsets() == (1, 1)


def test_a_stranger_confirms_nothing(cluster: Cluster) -> None:
    cluster.produce()
    cluster.fetch(B, 1)
    cluster.fetch(C, 0)
    for stranger in (4, 9):
        client = cluster.world.connect()
        client.send(cluster.fetch_request(stranger, 1, broker_epoch=1), 17)
        cluster.world.turn()
    assert cluster.offsets() == (1, 0)
    assert cluster.remote() == {B: 1, C: 0}


def test_other_requests_with_a_replica_id_move_nothing(cluster: Cluster) -> None:
    cluster.produce()
    cluster.fetch(B, 0)
    before = cluster.offsets(), cluster.remote(), cluster.state()
    for replica_id in (*ALL, 9):
        partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
        topic = ListOffsetsTopic(name="orders", partitions=[partition])
        request = ListOffsetsRequest(replica_id=replica_id, topics=[topic])
        cluster.world.connect().ask(request, 9)
    assert (cluster.offsets(), cluster.remote(), cluster.state()) == before
