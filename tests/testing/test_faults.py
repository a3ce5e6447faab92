"""An idempotent producer with acks=all goes on while brokers fail, and nothing is lost."""

from __future__ import annotations

import pytest

from strandline.testing import Cluster
from tests.testing.load import Load, check


@pytest.fixture
def cluster(strandline_cluster: Cluster) -> Cluster:
    strandline_cluster.create_topic("orders", replication_factor=3, min_insync_replicas=2)
    return strandline_cluster


def test_the_leader_is_killed(cluster: Cluster) -> None:
    with Load(cluster, "orders") as load:
        load.wait_for_more()
        leader = cluster.leader_of("orders")
        cluster.kill(leader)
        assert cluster.wait_for_leader("orders", other_than=leader) != leader
        load.wait_for_more()
        cluster.start(leader)
        cluster.wait_until_in_sync("orders")
        load.wait_for_more()
    check(cluster, load)
    assert set(cluster.status().partition("orders").in_sync) == {1, 2, 3}


def test_one_follower_after_the_other_is_killed(cluster: Cluster) -> None:
    leader = cluster.leader_of("orders")
    with Load(cluster, "orders") as load:
        for follower in sorted({1, 2, 3} - {leader}):
            load.wait_for_more()
            cluster.kill(follower)
            load.wait_for_more()
            cluster.start(follower)
            cluster.wait_until_in_sync("orders")
    check(cluster, load)


def test_the_controller_is_killed(cluster: Cluster) -> None:
    with Load(cluster, "orders") as load:
        controller = cluster.controller
        cluster.kill(controller)
        assert cluster.wait_for_controller(other_than=controller) != controller
        cluster.wait_for_leader("orders", other_than=controller)
        load.wait_for_more()
        cluster.create_topic("made-by-the-next-one", partitions=2, replication_factor=2)
        cluster.start(controller)
    check(cluster, load)


def test_the_leader_is_paused_and_comes_back_as_a_zombie(cluster: Cluster) -> None:
    with Load(cluster, "orders") as load:
        load.wait_for_more()
        leader = cluster.leader_of("orders")
        cluster.pause(leader)
        cluster.wait_for_leader("orders", other_than=leader)
        load.wait_for_more()
        cluster.resume(leader)
        cluster.wait_until_in_sync("orders")
        load.wait_for_more()
    check(cluster, load)


def test_a_paused_follower_leaves_and_rejoins(cluster: Cluster) -> None:
    leader = cluster.leader_of("orders")
    follower = next(each for each in (1, 2, 3) if each != leader)
    with Load(cluster, "orders") as load:
        cluster.pause(follower)
        cluster.wait_until(
            lambda status: follower not in status.partition("orders").in_sync,
            "the follower has left",
        )
        load.wait_for_more()
        cluster.resume(follower)
        cluster.wait_until_in_sync("orders")
    check(cluster, load)


def test_the_leader_is_cut_off_with_the_minority(cluster: Cluster) -> None:
    leader = cluster.leader_of("orders")
    assert leader is not None
    with Load(cluster, "orders") as load:
        load.wait_for_more()
        cluster.partition({leader}, {1, 2, 3} - {leader})
        cluster.wait_for_leader("orders", other_than=leader)
        load.wait_for_more()
        cluster.heal()
        cluster.wait_until_in_sync("orders")
    check(cluster, load)


@pytest.mark.parametrize("is_controller", [True, False])
def test_a_leader_that_keeps_the_metadata_but_no_follower_commits_nothing(
    strandline_cluster: Cluster, is_controller: bool
) -> None:
    cluster = strandline_cluster
    controller = cluster.controller
    assert controller is not None
    leader = controller if is_controller else controller % 3 + 1
    others = sorted({1, 2, 3} - {leader})
    cluster.create_topic("orders", assignment={0: [leader, *others]}, min_insync_replicas=2)
    with Load(cluster, "orders") as load:
        load.wait_for_more()
        cluster.partition({leader}, others, metadata_with={1, 2, 3})
        alone = cluster.wait_until(
            lambda status: status.partition("orders").in_sync == (leader,), "the leader is alone"
        )
        cluster.wait_until(
            lambda status: (
                status.partition("orders").replicas[0].log_end
                > alone.partition("orders").replicas[0].high_watermark
            ),
            "something waits to be committed",
        )
        frozen = cluster.status().partition("orders").replicas[0].high_watermark
        assert frozen == alone.partition("orders").replicas[0].high_watermark
        cluster.heal()
        cluster.wait_until_in_sync("orders")
        load.wait_for_more()
    check(cluster, load)


def test_a_rolling_restart_is_not_noticed(cluster: Cluster) -> None:
    with Load(cluster, "orders", {"message.timeout.ms": 30_000}) as load:
        for broker in (1, 2, 3):
            cluster.restart(broker)
            cluster.wait_until_in_sync("orders")
            load.wait_for_more()
    check(cluster, load)


def test_all_brokers_are_killed_at_once(cluster: Cluster) -> None:
    with Load(cluster, "orders") as load:
        load.wait_for_more()
        cluster.kill()
        assert {each.state for each in cluster.brokers} == {"down"}
        cluster.start()
        cluster.wait_until_in_sync("orders")
        load.wait_for_more()
    check(cluster, load)
