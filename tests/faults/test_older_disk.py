"""A data directory that comes back from a copy, as a volume that is set back to a snapshot."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.faults.acknowledged import produce_all, read_all
from tests.faults.run import TOPIC
from tests.faults.zookeeper_cluster import STEADY, ZooKeeperCluster

RECORDS = 500


@pytest.mark.parametrize("is_older", [True, False], ids=["older copy", "as it was"])
def test_c2_what_lacks_a_life_of_its_broker_is_not_complete(
    needs_zookeeper: None, tmp_path: Path, *, is_older: bool
) -> None:
    """The copy has the marker of a clean shutdown too, but of an earlier one."""
    settings = {**STEADY, "auto.leader.rebalance.enable": "false"}
    with ZooKeeperCluster(tmp_path, settings=settings) as cluster:
        cluster.create_topic(TOPIC)
        directory, copy = cluster.log_directory(3), tmp_path / "copy"
        cluster.stop(3)
        shutil.copytree(directory, copy)
        cluster.start(3)
        cluster.wait_until_in_sync(TOPIC)
        acknowledged, refused = produce_all(cluster, RECORDS)
        assert len(acknowledged) == RECORDS, refused
        for broker in (1, 2, 3):
            cluster.stop(broker)
        if is_older:
            shutil.rmtree(directory)
            shutil.copytree(copy, directory)
        cluster.start(3)
        if not is_older:
            assert cluster.leader_of(TOPIC) == 3, "nothing is missing there"
        cluster.start(1, 2)
        cluster.wait_until_in_sync(TOPIC)
        assert acknowledged <= read_all(cluster)
