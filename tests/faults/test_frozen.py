"""SIGSTOP and SIGCONT: brokers that were taken for dead and go on where they stopped (F-13 to
F-15). A frozen process keeps its sockets; when it thaws it first believes what it believed."""

from __future__ import annotations

from tests.faults.run import TOPIC, under_load
from tests.faults.zookeeper_cluster import ZooKeeperCluster


def test_leader_that_wakes_up_as_a_zombie(cluster: ZooKeeperCluster) -> None:
    with under_load(cluster) as load:
        leader = cluster.leader_of(TOPIC)
        cluster.pause(leader)
        cluster.wait_for_another_leader(TOPIC, leader)
        load.wait_for_more(200)
        cluster.resume(leader)


def test_controller_that_wakes_up_as_a_zombie(cluster: ZooKeeperCluster) -> None:
    with under_load(cluster) as load:
        controller = cluster.controller()
        cluster.pause(controller)
        cluster.wait_for_another_controller(controller)
        load.wait_for_more(200)
        cluster.resume(controller)


def test_follower_that_sleeps_longer_than_its_lag_may_be(cluster: ZooKeeperCluster) -> None:
    with under_load(cluster) as load:
        follower = cluster.a_follower_of(TOPIC)
        cluster.pause(follower)
        cluster.wait_until_out_of_sync(TOPIC, follower)
        load.wait_for_more(200)
        cluster.resume(follower)


def test_leader_that_hardly_slept(steady_cluster: ZooKeeperCluster) -> None:
    """Its session lives: no other broker is elected, and clients wait for it."""
    cluster = steady_cluster
    with under_load(cluster) as load:
        leader = cluster.leader_of(TOPIC)
        epoch = cluster.state_of(TOPIC, 0).leader_epoch
        for _ in range(3):
            cluster.pause(leader)
            cluster.resume(leader)
            load.wait_for_more(50)
        assert cluster.state_of(TOPIC, 0).leader_epoch == epoch
