"""A cluster of processes per test, where a real ZooKeeper can be had."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.zookeeper_cluster import STEADY, ZooKeeperCluster
from tests.zookeeper.server import missing


@pytest.fixture
def needs_zookeeper() -> None:
    """Skips a test where no ZooKeeper can be started, and says why."""
    reason = missing()
    if reason is not None:
        pytest.skip(reason)


@pytest.fixture
def cluster(needs_zookeeper: None, tmp_path: Path) -> Iterator[ZooKeeperCluster]:
    """Three brokers over one ZooKeeper server."""
    with ZooKeeperCluster(tmp_path) as started:
        yield started


@pytest.fixture
def steady_cluster(needs_zookeeper: None, tmp_path: Path) -> Iterator[ZooKeeperCluster]:
    """The same, with sessions that end only where a broker says so."""
    with ZooKeeperCluster(tmp_path, settings=STEADY) as started:
        yield started
