"""The world of most tests: one node with a topic, checked for leaks at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.node.cluster_world import ClusterWorld
from tests.node.followers import Cluster
from tests.node.world import World


@pytest.fixture
def world() -> Iterator[World]:
    """A node with the topic `orders`, one partition."""
    world = World()
    world.create_topic("orders")
    yield world
    world.check()


@pytest.fixture
def make_world() -> Iterator[Callable[..., ClusterWorld]]:
    """Makes whole clusters of nodes, checked for leaks at the end."""
    worlds: list[ClusterWorld] = []

    def make(brokers: int = 3, *settings: str, seed: int = 1) -> ClusterWorld:
        worlds.append(ClusterWorld(brokers, *settings, seed=seed))
        return worlds[-1]

    yield make
    for world in worlds:
        world.check()


@pytest.fixture
def make_cluster() -> Iterator[Callable[..., Cluster]]:
    """Makes nodes that are broker 1 of three, checked for leaks at the end."""
    made: list[Cluster] = []

    def make(*settings: str, racks: dict[int, str] | None = None) -> Cluster:
        made.append(Cluster(*settings, racks=racks))
        return made[-1]

    yield make
    for cluster in made:
        cluster.world.check()


@pytest.fixture
def cluster(make_cluster: Callable[..., Cluster]) -> Cluster:
    """Broker 1 leads `orders`; brokers 2 and 3 follow."""
    cluster = make_cluster()
    cluster.create_topic()
    return cluster
