"""Clusters of processes, where a real ZooKeeper can be had: one per test, or one per file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.run import TOPIC
from tests.faults.zookeeper_cluster import STEADY, ZooKeeperCluster
from tests.zookeeper.server import missing


@pytest.fixture
def needs_zookeeper() -> None:
    """Skips a test where no ZooKeeper can be started, and says why."""
    reason = missing()
    if reason is not None:
        pytest.skip(reason)


@pytest.fixture
def own_cluster(needs_zookeeper: None, tmp_path: Path) -> Iterator[ZooKeeperCluster]:
    """Three brokers over one ZooKeeper server, for one test."""
    with ZooKeeperCluster(tmp_path) as started:
        yield started


@pytest.fixture
def steady_cluster(needs_zookeeper: None, tmp_path: Path) -> Iterator[ZooKeeperCluster]:
    """The same, with sessions that end only where a broker says so."""
    with ZooKeeperCluster(tmp_path, settings=STEADY) as started:
        yield started


class KeptCluster:
    """A cluster that tests of one file take in turns, as long as each leaves it whole."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._made = 0
        self._running: ZooKeeperCluster | None = None

    def take(self) -> ZooKeeperCluster:
        """The cluster that runs, or a new one."""
        if self._running is None:
            self._made += 1
            home = self._home / str(self._made)
            home.mkdir()
            self._running = ZooKeeperCluster(home).__enter__()
        return self._running

    def give_back(self) -> None:
        """After a test that left all brokers running: without its topic."""
        if self._running is not None:
            try:
                self._running.delete_topic(TOPIC)
            except BaseException:
                self.end(account=True)
                raise

    def end(self, *, account: bool = False) -> None:
        """Close it; the next test gets a new one."""
        if self._running is not None:
            if account:
                print(self._running.account(), file=sys.stderr)
            self._running.close()
            self._running = None


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeptCluster]:
    """The cluster of a file."""
    cluster = KeptCluster(tmp_path_factory.mktemp("cluster"))
    yield cluster
    cluster.end()


@pytest.fixture
def cluster(
    needs_zookeeper: None, kept: KeptCluster, request: pytest.FixtureRequest
) -> Iterator[ZooKeeperCluster]:
    """The same, started once for the tests of a file; each ends with all brokers in sync."""
    failed_before = request.session.testsfailed
    yield kept.take()
    if request.session.testsfailed > failed_before:
        kept.end(account=True)
    else:
        kept.give_back()
