"""Networks cut in two, one link at a time, and in one direction only (F-22 to F-27 and F-32)."""

from __future__ import annotations

from tests.faults.network import CLIENTS, ZOOKEEPER
from tests.faults.run import TOPIC, under_load
from tests.faults.zookeeper_cluster import ZooKeeperCluster


def test_leader_cut_from_everything_but_its_clients(cluster: ZooKeeperCluster) -> None:
    """It goes on believing that it leads and must acknowledge nothing."""
    with under_load(cluster) as load:
        leader = cluster.leader_of(TOPIC)
        cluster.cut({leader}, {ZOOKEEPER, *cluster.others(leader)})
        cluster.wait_for_another_leader(TOPIC, leader)
        load.wait_for_more(200)
        cluster.heal()


def test_leader_cut_from_its_followers_only(cluster: ZooKeeperCluster) -> None:
    """In-sync replicas leave until less than min.insync.replicas are left: nothing is acknowledged
    on this partition until the cut heals."""
    with under_load(cluster):
        leader = cluster.leader_of(TOPIC)
        others = cluster.others(leader)
        cluster.cut({leader}, others)
        # Another controller does not hear of its lonely set.
        if cluster.controller() == leader:
            for other in others:
                cluster.wait_until_out_of_sync(TOPIC, other)
        cluster.heal()


def test_leader_cut_from_zookeeper_only(cluster: ZooKeeperCluster) -> None:
    with under_load(cluster) as load:
        leader = cluster.leader_of(TOPIC)
        cluster.cut({leader}, {ZOOKEEPER})
        cluster.wait_for_another_leader(TOPIC, leader)
        load.wait_for_more(200)
        cluster.heal()


def test_follower_cut_from_the_other_brokers(cluster: ZooKeeperCluster) -> None:
    with under_load(cluster) as load:
        follower = a_follower_out_of_office(cluster)
        cluster.cut({follower}, cluster.others(follower))
        cluster.wait_until_out_of_sync(TOPIC, follower)
        load.wait_for_more(200)
        cluster.heal()


def test_follower_that_asks_but_hears_no_answer(cluster: ZooKeeperCluster) -> None:
    """F-25: the leader sees a connection on which nothing moves and drops the follower."""
    with under_load(cluster) as load:
        leader = cluster.leader_of(TOPIC)
        follower = a_follower_out_of_office(cluster)
        cluster.note("one way cut from leader to follower:", leader, follower)
        cluster.network.cut_one_way(sources={leader}, targets={follower})
        cluster.wait_until_out_of_sync(TOPIC, follower)
        load.wait_for_more(200)
        cluster.heal()


def test_clients_cut_from_the_leader(steady_cluster: ZooKeeperCluster) -> None:
    """The cluster is whole: clients wait, nothing is elected, nothing is lost when late bytes
    arrive."""
    cluster = steady_cluster
    with under_load(cluster):
        leader = cluster.leader_of(TOPIC)
        epoch = cluster.state_of(TOPIC, 0).leader_epoch
        cluster.cut({leader}, {CLIENTS})
        assert cluster.network.reset(leader) > 0
        cluster.heal()
        assert cluster.state_of(TOPIC, 0).leader_epoch == epoch


def a_follower_out_of_office(cluster: ZooKeeperCluster) -> int:
    """Without a way to the controller a leader could not tell that its follower is gone."""
    followers = cluster.others(cluster.leader_of(TOPIC))
    return next(broker for broker in followers if broker != cluster.controller())
