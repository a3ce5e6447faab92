"""What all fault tests share: load before, during and after a fault, then the judgement."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from strandline.sim.history.report import Report
from tests.faults import replicas
from tests.faults.cluster import ClusterProcesses
from tests.faults.load_process import LoadProcess
from tests.faults.processes import until

TOPIC: Final = "orders"
PARTITIONS: Final = 2
"""Faults are aimed at partition 0; the other one goes on as it can."""
BEFORE: Final = 100
AFTER: Final = 150
QUIET_S: Final = 120.0


@contextmanager
def under_load(
    cluster: ClusterProcesses,
    topic: str = TOPIC,
    *,
    with_group: bool = False,
    config: Mapping[str, str] | None = None,
) -> Iterator[LoadProcess]:
    """A topic of three replicas with idempotent producers (acks=all) and readers on it. When the
    block is left, everything must be as if nothing had happened: the cluster serves, all replicas
    are in sync and equal, every send was acknowledged, and the checker finds nothing.

    `config`: the topic's settings. `with_group`: a consumer group whose member is replaced every
    second or two reads, too."""
    cluster.create_topic(topic, partitions=PARTITIONS, config=config)
    with LoadProcess(
        cluster.home, cluster.bootstrap, topic, PARTITIONS, with_group=with_group
    ) as load:
        load.wait_for_more(BEFORE)
        cluster.note(f"acknowledged: {load.acknowledged()}; now the fault")
        yield load
        load.wait_for_more(AFTER)
        cluster.note(f"acknowledged: {load.acknowledged()}; after the fault")
        for partition in range(PARTITIONS):
            cluster.wait_until_in_sync(topic, partition)
        report = load.finish()
    cluster.note("all clients are done")
    if with_group:
        assert load.missed_by_group() == []
    nothing_happened(cluster, topic, report, load.complaint())


def nothing_happened(cluster: ClusterProcesses, topic: str, report: Report, complaint: str) -> None:
    """The judgement of a run that must not lose, repeat or reorder anything."""
    assert not report.anomalies, str(report)
    assert report.unknown == 0, f"{report}\n{complaint}"
    assert report.acknowledged >= BEFORE + AFTER, str(report)
    for partition in range(PARTITIONS):
        replicas_become_equal(cluster, topic, partition)


def replicas_become_equal(cluster: ClusterProcesses, topic: str, partition: int) -> None:
    """No producer writes any more: all copies end up the same, batch by batch (I-21, I-49)."""
    until(
        lambda: not replicas.differences(cluster.replicas_of(topic, partition)),
        f"equal replicas of {topic}-{partition}",
        seconds=QUIET_S,
        complaint=lambda: str(replicas.differences(cluster.replicas_of(topic, partition))),
    )
