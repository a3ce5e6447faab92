"""A partition's directory that is removed while its broker is down, after a clean stop."""

from __future__ import annotations

import shutil
from pathlib import Path

from strandline.testing.cluster import Cluster
from tests.broker.harness import Wire
from tests.node.messages import batch, fetch, fetched, produce, produced, values

COUNT = 20


def test_a_replica_whose_log_is_gone_after_a_clean_stop_is_not_complete(tmp_path: Path) -> None:
    """Elected with an empty log, it would have the records removed from who has them."""
    settings = {"min.insync.replicas": 2, "auto.leader.rebalance.enable": "false"}
    with Cluster(3, data_dir=tmp_path, settings=settings) as cluster:
        controller = cluster.controller
        assert controller is not None
        first, second = (each for each in (1, 2, 3) if each != controller)
        cluster.create_topic("orders", assignment={0: [first, second]})
        with Wire(_port(cluster, first)) as wire:
            for number in range(COUNT):
                answer = wire.ask(produce(batch(b"v%d" % number), acks=-1), 9)
                assert produced(answer).error_code == 0
        status = next(each for each in cluster.brokers if each.broker_id == second)
        cluster.stop(second)
        (directory,) = [Path(each) / "orders-0" for each in status.data]
        shutil.rmtree(directory)
        cluster.kill(first)
        cluster.start(second)
        cluster.start(first)
        cluster.wait_until_in_sync("orders")
        leader = cluster.wait_for_leader("orders")
        with Wire(_port(cluster, leader)) as wire:
            answer = wire.ask(fetch(("orders", 0, 0)), 11)
            assert fetched(answer)["orders", 0].error_code == 0
            assert values(answer) == [b"v%d" % number for number in range(COUNT)]


def _port(cluster: Cluster, broker_id: int) -> int:
    return int(cluster.control.addresses[broker_id].rsplit(":", 1)[1])
