"""Brokers that do not agree on `min.insync.replicas`, as during a rolling change of their files."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

import pytest
from confluent_kafka import KafkaError

from tests.faults.acknowledged import produce_all, read_all
from tests.faults.run import TOPIC
from tests.faults.zookeeper_cluster import STEADY, ZooKeeperCluster

MIN_IN_SYNC: Final = "min.insync.replicas"
RECORDS: Final = 100


class Row(NamedTuple):
    """The minimum of the leader, and of the two others, of which one is the controller."""

    leader: int
    others: int
    is_killed: bool
    acknowledged: int


@pytest.mark.parametrize(
    "row",
    [
        Row(leader=1, others=2, is_killed=True, acknowledged=0),
        Row(leader=1, others=2, is_killed=False, acknowledged=0),
        Row(leader=2, others=1, is_killed=True, acknowledged=0),
        Row(leader=1, others=1, is_killed=True, acknowledged=RECORDS),
        Row(leader=2, others=2, is_killed=True, acknowledged=0),
    ],
    ids=str,
)
def test_c1_brokers_with_different_minimums_lose_nothing_that_was_acknowledged(
    needs_zookeeper: None, tmp_path: Path, row: Row
) -> None:
    """The leader goes by one number, the controller calls replicas complete by another. The leader
    acknowledged alone, and the follower was elected as complete without these records."""
    settings = {
        **STEADY, MIN_IN_SYNC: str(row.others), "auto.leader.rebalance.enable": "false"
    }  # fmt: skip
    with ZooKeeperCluster(tmp_path, settings=settings) as cluster:
        leader, follower = cluster.others(cluster.controller())
        change_file(cluster, leader, row.leader)
        cluster.create_topic(TOPIC, replicas=[leader, follower])
        assert cluster.leader_of(TOPIC) == leader
        cluster.stop(follower)
        cluster.wait_until_out_of_sync(TOPIC, follower)
        acknowledged, refused = produce_all(cluster, RECORDS)
        if row.is_killed:
            cluster.kill(leader)
        else:
            cluster.stop(leader)
        cluster.start(follower)
        if row.is_killed:
            cluster.expire_session(leader)
        cluster.start(leader)
        cluster.wait_until_in_sync(TOPIC, count=2)
        assert acknowledged <= read_all(cluster)
        assert len(acknowledged) == row.acknowledged
        assert set(refused) <= {KafkaError.NOT_ENOUGH_REPLICAS}


def change_file(cluster: ZooKeeperCluster, broker: int, minimum: int) -> None:
    """The broker is restarted with another setting, as in a rolling change."""
    cluster.own_settings[broker][MIN_IN_SYNC] = str(minimum)
    cluster.stop(broker)
    cluster.start(broker)
