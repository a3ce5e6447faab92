"""Readiness and its notice about partitions without a possible leader."""

from __future__ import annotations

from dataclasses import replace

from strandline.broker.readiness import offline_notice
from strandline.types import BrokerId
from tests.node.cluster_world import ClusterWorld


def test_a_whole_cluster_has_nothing_to_say() -> None:
    world = ClusterWorld(3)
    world.create_topic("t", (1, 2, 3))
    assert offline_notice(world.image) is None
    world.check()


def test_partitions_without_their_brokers_are_counted_and_the_brokers_named() -> None:
    world = ClusterWorld(3)
    world.create_topic("t", (1, 2), (2, 3), (3, 2))
    world.kill(2, expire=True)
    world.run_until(lambda: world.partition("t", 1).in_sync_replicas == (3,))
    world.run_until(lambda: world.partition("t", 2).in_sync_replicas == (3,))
    world.kill(3, expire=True)
    world.run_until(lambda: world.partition("t", 1).leader == -1)
    world.run_until(lambda: world.partition("t", 2).leader == -1)
    notice = offline_notice(world.image)
    assert notice is not None
    assert notice.startswith("Offline partitions: 2 of 3. Nothing of them is lost: ")
    # Broker 2 is not needed: what it has, broker 3 has, too.
    assert "brokers that do not run (3), and" in notice
    world.check()


def test_partitions_that_only_wait_for_the_controller_are_not_called_lost() -> None:
    world = ClusterWorld(1)
    world.create_topic("t", (1,))
    image = world.image
    topic = image.topics["t"]
    waiting = replace(topic, partitions={0: replace(topic.partitions[0], leader=BrokerId(-1))})
    notice = offline_notice(replace(image, topics={"t": waiting}))
    assert notice == "Offline partitions: 1 of 1. Leaders are still to be elected."
    world.check()
