"""Sessions that end and a ZooKeeper that is gone for a while (F-35, F-39, F-40)."""

from __future__ import annotations

from pathlib import Path

from tests.faults.network import ZOOKEEPER
from tests.faults.run import TOPIC, under_load
from tests.faults.zookeeper_cluster import STEADY, ZooKeeperCluster


def test_session_of_the_leader_ends(cluster: ZooKeeperCluster) -> None:
    with under_load(cluster):
        leader = cluster.leader_of(TOPIC)
        epoch = cluster.wait_until_registered(leader)
        cluster.expire_session(leader)
        cluster.wait_until_registered(leader, other_than=epoch)


def test_session_of_the_controller_ends(cluster: ZooKeeperCluster) -> None:
    with under_load(cluster):
        controller = cluster.controller()
        epoch = cluster.wait_until_registered(controller)
        cluster.expire_session(controller)
        cluster.wait_until_registered(controller, other_than=epoch)


def test_all_sessions_end_together(cluster: ZooKeeperCluster) -> None:
    with under_load(cluster):
        epochs = {broker: cluster.wait_until_registered(broker) for broker in cluster.ids}
        for broker in cluster.ids:
            cluster.expire_session(broker)
        for broker, epoch in epochs.items():
            cluster.wait_until_registered(broker, other_than=epoch)


def test_zookeeper_is_cut_off_until_all_sessions_ended(cluster: ZooKeeperCluster) -> None:
    """Without metadata nothing changes: leaders go on with the in-sync sets that they have."""
    with under_load(cluster) as load:
        epochs = {broker: cluster.wait_until_registered(broker) for broker in cluster.ids}
        cluster.cut(set(cluster.ids), {ZOOKEEPER})
        load.wait_for_more(200)
        for broker in cluster.ids:
            cluster.wait_until_not_registered(broker)
        cluster.heal()
        for broker, epoch in epochs.items():
            cluster.wait_until_registered(broker, other_than=epoch)


def test_leader_of_the_ensemble_is_killed(needs_zookeeper: None, tmp_path: Path) -> None:
    with (
        ZooKeeperCluster(tmp_path, zookeepers=3, settings=STEADY) as cluster,
        under_load(cluster) as load,
    ):
        epochs = [cluster.wait_until_registered(broker) for broker in cluster.ids]
        server = cluster.ensemble.leader
        cluster.note("kill ZooKeeper server", server)
        cluster.ensemble.kill(server)
        load.wait_for_more(300)
        cluster.ensemble.start(server)
        # Sessions belong to the ensemble, not to one server: no broker had to register again.
        assert [cluster.wait_until_registered(broker) for broker in cluster.ids] == epochs
