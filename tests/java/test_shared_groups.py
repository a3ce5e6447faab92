"""Groups in which Kafka's Java consumer and this project's are members together."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from strandline.client.admin import Admin
from strandline.client.cluster import ClusterClient
from strandline.client.group_consumer import GroupConsumer
from strandline.client.group_settings import GroupSettings
from strandline.client.producer import Producer
from tests.java.processes import PATIENCE_SECONDS, Broker, Process, Workshop
from tests.java.tables import TOOLS

CLASSES = {
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "sticky": "StickyAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}
PARTITIONS = 4


@pytest.fixture
def cluster(broker: Broker) -> Iterator[ClusterClient]:
    with ClusterClient(broker.address) as client:
        yield client


def poll_until_shares_are(
    cluster: ClusterClient, group: str, ours: GroupConsumer, *shares: int
) -> None:
    """Read until the group is stable and its members have so many partitions, in any order."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        assert time.monotonic() < deadline
        ours.poll(100)
        if ours.generation is None:
            continue
        found = Admin(cluster).groups.describe(group)
        if found.state == "Stable" and sorted(len(each.assigned) for each in found.members) == [
            *shares
        ]:
            return


@pytest.mark.parametrize("ours_leads", [True, False])
@pytest.mark.parametrize("assignor", CLASSES)
def test_java_shares_a_group_with_us(
    broker: Broker, workshop: Workshop, cluster: ClusterClient, assignor: str, ours_leads: bool
) -> None:
    group = topic = f"{assignor}-{ours_leads}"
    Admin(cluster).topics.create(topic, partitions=PARTITIONS)
    settings = GroupSettings(
        group=group,
        assignors=(assignor,),
        auto_offset_reset="earliest",
        heartbeat_interval_ms=200,
    )

    def theirs() -> Process:
        return workshop.java(
            TOOLS + "VerifiableConsumer",
            *("--bootstrap-server", broker.address, "--topic", topic, "--group-id", group),
            *("--reset-policy", "earliest", "--session-timeout", "6000"),
            *("--assignment-strategy", f"org.apache.kafka.clients.consumer.{CLASSES[assignor]}"),
        )

    with GroupConsumer(cluster, settings) as ours:
        if ours_leads:
            ours.subscribe([topic])
            poll_until_shares_are(cluster, group, ours, PARTITIONS)
            java = theirs()
        else:
            java = theirs()
            line: str | None = ""
            while line is not None and '"partitions_assigned"' not in line:
                line = java.line()
            assert line is not None, java.complaint()
            ours.subscribe([topic])
        poll_until_shares_are(cluster, group, ours, 2, 2)
        with Producer(cluster) as producer:
            for number in range(PARTITIONS):
                producer.send(topic, b"%d" % number, partition=number)
        java.end()
        # What it had read and committed is not read again; all else is.
        poll_until_shares_are(cluster, group, ours, PARTITIONS)
        committed: dict[int, int] = {}
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(committed) < PARTITIONS or set(committed.values()) != {1}:
            assert time.monotonic() < deadline, committed
            ours.poll(100)
            ours.commit()
            offsets = Admin(cluster).groups.offsets(group)
            committed = {at.partition: each.offset for at, each in offsets.items()}
