"""Groups in which Kafka's Java consumer and this project's are members together."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

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
QUICK = (
    "group.initial.rebalance.delay.ms=0",
    "group.consumer.min.heartbeat.interval.ms=200",
    "group.consumer.heartbeat.interval.ms=200",
    "group.consumer.assignment.interval.ms=0",
)


@pytest.fixture
def cluster(broker: Broker) -> Iterator[ClusterClient]:
    with ClusterClient(broker.address) as client:
        yield client


def poll_until_shares_are(
    cluster: ClusterClient, group: str, ours: Sequence[GroupConsumer], *shares: int
) -> None:
    """Read until the group is stable and its members have so many partitions, in any order."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        assert time.monotonic() < deadline
        for each in ours:
            each.poll(100)
        if any(each.generation is None for each in ours):
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
            poll_until_shares_are(cluster, group, [ours], PARTITIONS)
            java = theirs()
        else:
            java = theirs()
            line: str | None = ""
            while line is not None and '"partitions_assigned"' not in line:
                line = java.line()
            assert line is not None, java.complaint()
            ours.subscribe([topic])
        poll_until_shares_are(cluster, group, [ours], 2, 2)
        with Producer(cluster) as producer:
            for number in range(PARTITIONS):
                producer.send(topic, b"%d" % number, partition=number)
        java.end()
        # What it had read and committed is not read again; all else is.
        poll_until_shares_are(cluster, group, [ours], PARTITIONS)
        poll_until_all_is_committed(cluster, group, ours)


def test_java_and_both_of_ours_share_a_group_while_it_changes_its_protocol(
    workshop: Workshop,
) -> None:
    """A classic member of ours, then Java's and ours of the consumer protocol beside it, alone in
    the end, and the classic one again."""
    group = topic = "upgraded"
    broker = workshop.broker(None, *QUICK)
    classic = GroupSettings(
        group=group,
        assignors=("range",),
        auto_offset_reset="earliest",
        heartbeat_interval_ms=200,
    )
    newer = GroupSettings(group=group, protocol="consumer", auto_offset_reset="earliest")
    with ExitStack() as stack:
        clusters = [stack.enter_context(ClusterClient(broker.address)) for _ in range(2)]
        cluster = clusters[0]
        Admin(cluster).topics.create(topic, partitions=PARTITIONS)
        old = stack.enter_context(GroupConsumer(cluster, classic))
        old.subscribe([topic])
        poll_until_shares_are(cluster, group, [old], PARTITIONS)
        java = workshop.java(
            TOOLS + "VerifiableConsumer",
            *("--bootstrap-server", broker.address, "--topic", topic, "--group-id", group),
            *("--reset-policy", "earliest", "--group-protocol", "consumer"),
        )
        poll_until_shares_are(cluster, group, [old], 2, 2)
        new = stack.enter_context(GroupConsumer(clusters[1], newer))
        new.subscribe([topic])
        poll_until_shares_are(cluster, group, [old, new], 1, 1, 2)
        found = Admin(cluster).groups.describe(group)
        assert found.group_type == "consumer"
        assert sorted(each.protocol for each in found.members) == [
            "classic",
            "consumer",
            "consumer",
        ]
        old.close()
        poll_until_shares_are(cluster, group, [new], 2, 2)
        with Producer(cluster) as producer:
            for number in range(PARTITIONS):
                producer.send(topic, b"%d" % number, partition=number)
        java.end()
        poll_until_shares_are(cluster, group, [new], PARTITIONS)
        poll_until_all_is_committed(cluster, group, new)
        again = stack.enter_context(GroupConsumer(cluster, classic))
        again.subscribe([topic])
        poll_until_shares_are(cluster, group, [again, new], 2, 2)
        new.close()
        poll_until_shares_are(cluster, group, [again], PARTITIONS)
        assert Admin(cluster).groups.describe(group).group_type == "classic"


def poll_until_all_is_committed(cluster: ClusterClient, group: str, ours: GroupConsumer) -> None:
    """Read and commit until the group has come to the end, which is one record a partition."""
    committed: dict[int, int] = {}
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(committed) < PARTITIONS or set(committed.values()) != {1}:
        assert time.monotonic() < deadline, committed
        ours.poll(100)
        ours.commit()
        offsets = Admin(cluster).groups.offsets(group)
        committed = {at.partition: each.offset for at, each in offsets.items()}
