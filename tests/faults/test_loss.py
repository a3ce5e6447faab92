"""Runs that are configured to allow loss: the same checker does find it."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from strandline.sim.history.report import AnomalyKind, Report
from tests.faults.cluster import ClusterProcesses
from tests.faults.load_process import LoadProcess
from tests.faults.network import ZOOKEEPER
from tests.faults.run import TOPIC
from tests.faults.zookeeper_cluster import ZooKeeperCluster

LOSS = {
    AnomalyKind.LOST,
    AnomalyKind.UNSEEN,
    # Another record got the offset of a lost one; a reader that saw it there sees both.
    AnomalyKind.INCONSISTENT_OFFSETS,
    AnomalyKind.REORDERED,
    AnomalyKind.NONMONOTONIC_POLL,
    # Retries of producers that are not idempotent.
    AnomalyKind.DUPLICATE,
}
UNREPLICATED = 100


def test_acks_1_loses_what_a_deposed_leader_acknowledged(
    needs_zookeeper: None, tmp_path: Path
) -> None:
    # Long enough for the leader that is cut off to acknowledge something before it is deposed.
    settings = {"zookeeper.session.timeout.ms": "10000"}
    with ExitStack() as stack:
        cluster = stack.enter_context(ZooKeeperCluster(tmp_path, settings=settings))
        cluster.create_topic(TOPIC)
        load = stack.enter_context(
            LoadProcess(
                *(cluster.home, cluster.bootstrap, TOPIC),
                acks="1", may_lose=True, producers=["librdkafka"],
            )
        )  # fmt: skip
        load.wait_for_more(UNREPLICATED)
        leader = cluster.leader_of(TOPIC)
        cluster.cut({leader}, {ZOOKEEPER, *cluster.others(leader)})
        load.wait_for_more(UNREPLICATED)
        cluster.wait_for_another_leader(TOPIC, leader)
        cluster.heal()
        report = finish(cluster, load)
    assert report.counts[AnomalyKind.LOST] + report.counts[AnomalyKind.UNSEEN] > 0, str(report)
    assert report.beyond(LOSS) == [], str(report)


def test_unclean_election_loses_what_only_the_last_leader_had(
    own_cluster: ZooKeeperCluster,
) -> None:
    cluster = own_cluster
    cluster.create_topic(
        TOPIC, config={"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
    )
    with LoadProcess(
        cluster.home, cluster.bootstrap, TOPIC, may_lose=True, producers=["librdkafka"]
    ) as load:
        load.wait_for_more(UNREPLICATED)
        leader = cluster.leader_of(TOPIC)
        others = cluster.others(leader)
        cluster.kill(*others)
        for other in others:
            cluster.wait_until_out_of_sync(TOPIC, other)
        load.wait_for_more(UNREPLICATED)
        cluster.kill(leader)
        cluster.start(*others)
        cluster.wait_for_another_leader(TOPIC, leader)
        cluster.start(leader)
        report = finish(cluster, load)
    assert report.counts[AnomalyKind.LOST] + report.counts[AnomalyKind.UNSEEN] > 0, str(report)
    assert report.beyond(LOSS) == [], str(report)


def finish(cluster: ClusterProcesses, load: LoadProcess) -> Report:
    """All replicas are back, and the producers wrote over what was lost."""
    cluster.wait_until_in_sync(TOPIC)
    load.wait_for_more(3 * UNREPLICATED)
    return load.finish()
