"""Consumer groups go on when their coordinator dies or stops, and no commit is lost (I-39)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from strandline.testing import Cluster
from tests.testing.group_work import (
    TOPIC,
    Feed,
    Ledger,
    Member,
    committed,
)

OFFSETS = "__consumer_offsets"
PARTITIONS = 2


def test_c12_a_first_group_starts_during_a_rolling_restart() -> None:
    """A stopped broker is a member of the cluster: its replicas are placed, and are offline."""
    settings = {"offsets.topic.num.partitions": 1, "offsets.topic.replication.factor": 3}
    with Cluster(brokers=3, settings=settings) as cluster:
        servers, ledger = cluster.bootstrap_servers, Ledger()
        cluster.stop(3)
        cluster.create_topic(TOPIC, PARTITIONS, replication_factor=3)
        with Feed(servers, PARTITIONS) as feed, Member("first", servers, ledger):
            ledger.wait_for_commits(PARTITIONS)
            feed.stop()
            ledger.wait_for_commits(PARTITIONS, feed.ends)
        assert not ledger.wrong, ledger.wrong[0]
        for topic in (TOPIC, OFFSETS):
            assert cluster.leader_of(topic) != 3
        cluster.start(3)
        cluster.wait_until_in_sync()


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """All groups have the leader of one partition as their coordinator."""
    settings = {"offsets.topic.num.partitions": 1, "auto.leader.rebalance.enable": False}
    with Cluster(brokers=3, settings=settings) as running:
        running.create_topic(TOPIC, PARTITIONS, min_insync_replicas=2)
        yield running


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_the_coordinator_goes_and_the_group_works_on(cluster: Cluster, how: str) -> None:
    servers, ledger = cluster.bootstrap_servers, Ledger()
    with Feed(servers, PARTITIONS) as feed:
        with Member("first", servers, ledger), Member("second", servers, ledger):
            ledger.wait_until_shared(2)
            cluster.wait_until_in_sync()
            coordinator = cluster.leader_of(OFFSETS)
            ledger.wait_for_commits(PARTITIONS)
            (cluster.kill if how == "kill" else cluster.stop)(coordinator)
            before = dict(ledger.acknowledged)
            cluster.wait_for_leader(OFFSETS, other_than=coordinator)
            after = committed(servers, PARTITIONS)
            assert all(after[each] >= before[each] for each in before), (after, before)
            ledger.wait_for_commits(PARTITIONS)
            cluster.start(coordinator)
            ledger.wait_for_commits(PARTITIONS)
            feed.stop()
            ledger.wait_for_commits(PARTITIONS, feed.ends)
        assert not ledger.wrong, ledger.wrong[0]
    assert committed(servers, PARTITIONS) == ledger.acknowledged == feed.ends
    assert ledger.read == {each: set(range(end)) for each, end in feed.ends.items()}
