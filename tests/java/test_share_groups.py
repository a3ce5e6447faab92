"""Share groups (KIP-932) with Kafka's own consumer and tool, while brokers die and come back."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from strandline import ShareConsumer, ShareRecord
from strandline.testing import Cluster
from tests.java.processes import PATIENCE_SECONDS, Outcome, Process, ToolServer, Workshop
from tests.java.tables import TOOLS, table

SHARE_GROUPS = TOOLS + "consumer.group.ShareGroupCommand"
PARTITIONS = 3
GROUP, TOPIC = "workers", "work"
INTERNAL = ("__consumer_offsets", "__share_group_state")

Record = tuple[int, int]
"""A partition, and an offset."""


class Worker:
    """VerifiableShareConsumer: acknowledges each record, and tells what was confirmed."""

    def __init__(self, workshop: Workshop, cluster: Cluster) -> None:
        self.process: Process = workshop.java(
            TOOLS + "VerifiableShareConsumer",
            *("--bootstrap-server", cluster.bootstrap_servers, "--topic", TOPIC),
            *("--group-id", GROUP, "--acknowledgement-mode", "sync"),
            *("--offset-reset-strategy", "earliest"),
        )
        self.delivered: Counter[Record] = Counter()
        self.confirmed: set[Record] = set()
        self.unsure: set[Record] = set()
        """Acknowledged once without success. They count all the same if the leader died between
        storing them and saying so; then they do not come again, and are never confirmed."""

    def read(self) -> None:
        """Take the next event over; fails if a record comes again after it was confirmed."""
        line = self.process.line()
        assert line is not None, self.process.complaint()
        event: dict[str, Any] = json.loads(line)
        if event["name"] == "records_consumed":
            given = records_of(event)
            assert not self.confirmed & given, "delivered again after it was confirmed"
            self.delivered.update(given)
        if event["name"] == "offsets_acknowledged":
            if event["success"]:
                self.confirmed |= records_of(event)
            else:
                self.unsure |= records_of(event)

    def read_until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self.read()

    def read_all(self, records: set[Record]) -> None:
        """Until each of these was acknowledged."""
        self.read_until(lambda: self.confirmed | self.unsure >= records)


def our_worker(cluster: Cluster) -> ShareConsumer:
    consumer = ShareConsumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": GROUP,
            "share.acknowledgement.mode": "explicit",
        }
    )
    consumer.subscribe([TOPIC])
    return consumer


def places(records: list[ShareRecord]) -> set[Record]:
    return {(each.partition, each.offset) for each in records}


def record_at(partition: int, offset: int) -> ShareRecord:
    return ShareRecord(TOPIC, partition, offset, -1, None, None, (), 1)


def records_of(event: dict[str, Any]) -> set[Record]:
    return {
        (each["partition"], offset) for each in event["partitions"] for offset in each["offsets"]
    }


class Source:
    """Fills the topic, each partition alike, in small batches; it outlives its brokers."""

    def __init__(self, cluster: Cluster) -> None:
        self.records: set[Record] = set()
        self._producer = Producer(
            {
                **cluster.client_config(),
                "enable.idempotence": True,
                "linger.ms": 1,
                "batch.num.messages": 5,
            }
        )

    def send(self, count: int) -> None:
        """Send so many, without waiting for them."""
        for number in range(count):
            self._producer.produce(
                TOPIC, b"%d" % number, partition=number % PARTITIONS, on_delivery=self._done
            )
        self._producer.poll(0)

    def flush(self) -> None:
        """Wait until all have their offsets."""
        assert self._producer.flush(90) == 0

    def _done(self, error: object, message: Any) -> None:
        assert error is None, error
        self.records.add((message.partition(), message.offset()))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    settings = {
        "auto.leader.rebalance.enable": False,
        "offsets.topic.num.partitions": 1,
        "share.coordinator.state.topic.num.partitions": 1,
        "group.share.min.heartbeat.interval.ms": 500,
        "group.share.heartbeat.interval.ms": 500,
        "min.insync.replicas": 2,
    }
    with Cluster(brokers=3, settings=settings) as running:
        running.create_topic(TOPIC, assignment={0: [1, 2, 3], 1: [2, 3, 1], 2: [3, 1, 2]})
        yield running


@pytest.fixture
def tool(tools: ToolServer, cluster: Cluster) -> Callable[..., Outcome]:
    def run(*arguments: str) -> Outcome:
        servers = ("--bootstrap-server", cluster.bootstrap_servers)
        return tools.run(SHARE_GROUPS, *servers, *arguments)

    return run


def test_leaders_and_coordinators_die_while_records_are_accepted(
    workshop: Workshop, cluster: Cluster, tool: Callable[..., Outcome]
) -> None:
    """Each record is delivered, and none again once its acknowledgement was confirmed; a group
    without members keeps its place over a restart, and is described, reset and deleted. A member of
    ours and one of Kafka's share the work."""
    worker = Worker(workshop, cluster)
    source = Source(cluster)
    source.send(300)
    source.flush()
    worker.read_all(source.records)

    for topic in (TOPIC, *INTERNAL):
        leader = cluster.leader_of(topic)
        assert leader is not None
        had = len(worker.confirmed)
        source.send(1500)
        # In the midst of it: some of these are confirmed, and some are not sent yet.
        worker.read_until(lambda had=had: len(worker.confirmed) > had)  # type: ignore[misc]
        cluster.kill(leader)
        source.send(300)
        source.flush()
        worker.read_all(source.records)
        cluster.start(leader)
        cluster.wait_until_in_sync()
    assert worker.delivered.keys() == source.records

    ends = Counter(partition for partition, _ in source.records)
    done = {str(partition): (str(end), "0") for partition, end in ends.items()}

    def place() -> dict[str, tuple[str, str]]:
        rows = table(tool("--describe", "--group", GROUP).succeeded())
        return {row["PARTITION"]: (row["START-OFFSET"], row["LAG"]) for row in rows}

    deadline = time.monotonic() + PATIENCE_SECONDS
    while place() != done:  # what was refused comes again, unless it counted
        assert time.monotonic() < deadline, place()
    worker.process.end()
    cluster.restart()
    assert GROUP in tool("--list").succeeded().split()
    assert place() == done

    reset = ("--reset-offsets", "--group", GROUP, "--topic", TOPIC, "--to-earliest", "--execute")
    tool(*reset).succeeded()
    assert {start for start, _ in place().values()} == {"0"}
    with our_worker(cluster) as ours:
        # It accepts some, and has others when it leaves.
        accepted = places(ours.poll(int(1000 * PATIENCE_SECONDS)))
        for partition, offset in accepted:
            ours.acknowledge(record_at(partition, offset))
        assert set(ours.commit().values()) == {None}
        assert ours.poll(int(1000 * PATIENCE_SECONDS))
        again = Worker(workshop, cluster)
        again.read_until(lambda: bool(again.confirmed))
    again.read_until(lambda: again.confirmed >= source.records - accepted)
    assert not accepted & again.delivered.keys()
    refused = tool("--delete", "--group", GROUP)
    assert "GroupNotEmptyException" in refused.out + refused.err
    again.process.end()
    tool("--delete", "--group", GROUP).succeeded()
    assert GROUP not in tool("--list").succeeded().split()
