"""A world with topics, in which members of the consumer protocol are."""

from __future__ import annotations

import pytest

from tests.groups.consumer.world import Cluster, ConsumerWorld


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(orders=4, clicks=2)


@pytest.fixture
def consumer_world_type() -> type[ConsumerWorld]:
    return ConsumerWorld


@pytest.fixture
def world(cluster: Cluster) -> ConsumerWorld:
    return ConsumerWorld(cluster=cluster)
