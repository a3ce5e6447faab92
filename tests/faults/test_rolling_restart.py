"""A full rolling restart under load (F-18): leaders are moved away before a broker stops."""

from __future__ import annotations

from tests.faults.run import PARTITIONS, TOPIC, under_load
from tests.faults.zookeeper_cluster import ZooKeeperCluster


def test_rolling_restart_of_all_brokers(steady_cluster: ZooKeeperCluster) -> None:
    cluster = steady_cluster
    with under_load(cluster) as load:
        for broker in cluster.ids:
            cluster.stop(broker)
            for partition in range(PARTITIONS):
                # Controlled shutdown: another broker led already when it ended.
                assert cluster.state_of(TOPIC, partition).leader not in (broker, -1)
            load.wait_for_more(50)
            cluster.start(broker)
            for partition in range(PARTITIONS):
                cluster.wait_until_in_sync(TOPIC, partition)
