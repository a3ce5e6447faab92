"""A cluster over ZooKeeper whose brokers are replaced one by one by those of another revision,
under load that a checker judges in the end: nothing lost, repeated or reordered.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.faults.run import PARTITIONS, TOPIC, under_load
from tests.faults.zookeeper_cluster import STEADY, ZooKeeperCluster

SENT_PER_STEP = 50
"""So many records are acknowledged by each mixture of revisions."""


def replace_one_by_one(home: Path, route: Sequence[Path]) -> None:
    """All brokers start from the sources `route[0]`; then each way to the next sources is gone
    broker by broker: stopped cleanly, started from the new sources, in sync again."""
    cluster = ZooKeeperCluster(home, settings=STEADY)
    cluster.sources = dict.fromkeys(cluster.ids, route[0])
    with cluster, under_load(cluster, with_group=True) as load:
        for sources in route[1:]:
            for broker in cluster.ids:
                cluster.stop(broker)
                cluster.sources[broker] = sources
                load.wait_for_more(SENT_PER_STEP)
                cluster.start(broker)
                for partition in range(PARTITIONS):
                    cluster.wait_until_in_sync(TOPIC, partition)
                load.wait_for_more(SENT_PER_STEP)
