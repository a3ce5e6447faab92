"""kill -9 of brokers under load (faults F-01, F-02, F-03, F-11 and F-16)."""

from __future__ import annotations

from tests.faults.run import TOPIC, under_load
from tests.faults.zookeeper_cluster import ZooKeeperCluster


def test_killed_leader_comes_back_as_a_follower(cluster: ZooKeeperCluster) -> None:
    with under_load(cluster) as load:
        leader = cluster.leader_of(TOPIC)
        cluster.kill(leader)
        cluster.wait_for_another_leader(TOPIC, leader)
        load.wait_for_more(200)
        cluster.start(leader)


def test_killed_leader_that_is_back_before_its_session_ends(cluster: ZooKeeperCluster) -> None:
    with under_load(cluster):
        leader = cluster.leader_of(TOPIC)
        cluster.kill(leader)
        cluster.start(leader)


def test_killed_follower(cluster: ZooKeeperCluster) -> None:
    with under_load(cluster) as load:
        follower = cluster.a_follower_of(TOPIC)
        cluster.kill(follower)
        cluster.wait_until_out_of_sync(TOPIC, follower)
        load.wait_for_more(200)
        cluster.start(follower)


def test_killed_controller(cluster: ZooKeeperCluster) -> None:
    with under_load(cluster) as load:
        controller = cluster.controller()
        cluster.kill(controller)
        cluster.wait_for_another_controller(controller)
        load.wait_for_more(200)
        cluster.start(controller)


def test_every_broker_is_killed_in_turn(cluster: ZooKeeperCluster) -> None:
    with under_load(cluster) as load:
        for broker in cluster.ids:
            cluster.kill(broker)
            cluster.wait_until_not_registered(broker)
            load.wait_for_more(100)
            cluster.start(broker)
            cluster.wait_until_in_sync(TOPIC)


def test_all_brokers_are_killed_at_once(cluster: ZooKeeperCluster) -> None:
    with under_load(cluster):
        cluster.kill(*cluster.ids)
        cluster.start(*cluster.ids)
