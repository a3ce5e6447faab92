"""Groups whose coordinator dies: no acknowledged commit is lost and no record skipped (F-67)."""

from __future__ import annotations

from tests.faults.group_reader import GROUP
from tests.faults.run import under_load
from tests.faults.zookeeper_cluster import SETTINGS, ZooKeeperCluster

OFFSETS = "__consumer_offsets"
OFFSETS_PARTITIONS = int(SETTINGS["offsets.topic.num.partitions"])


def test_coordinators_are_killed_in_turn(own_cluster: ZooKeeperCluster) -> None:
    cluster = own_cluster
    with under_load(cluster, with_group=True) as load:
        for partition in range(OFFSETS_PARTITIONS):
            coordinator = cluster.leader_of(OFFSETS, partition)
            cluster.kill(coordinator)
            cluster.wait_for_another_leader(OFFSETS, coordinator, partition)
            load.wait_for_more(200)
            cluster.start(coordinator)
            cluster.wait_until_in_sync(OFFSETS, partition)


def test_coordinator_that_wakes_up_as_a_zombie(own_cluster: ZooKeeperCluster) -> None:
    cluster = own_cluster
    with under_load(cluster, with_group=True) as load:
        partition = partition_of(GROUP)
        coordinator = cluster.leader_of(OFFSETS, partition)
        cluster.pause(coordinator)
        cluster.wait_for_another_leader(OFFSETS, coordinator, partition)
        load.wait_for_more(200)
        cluster.resume(coordinator)


def partition_of(group: str) -> int:
    """Where the group's offsets are: by Java's hash of its name (`String.hashCode`)."""
    value = 0
    for character in group.encode("ascii"):
        value = (31 * value + character) & 0x7FFFFFFF
    return value % OFFSETS_PARTITIONS
