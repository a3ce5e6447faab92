"""What a broker costs with ever more partitions, in topics of a hundred."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from confluent_kafka.admin import AdminClient, NewTopic

from bench.brokers import SocketBroker
from bench.catalogue import workloads
from bench.growth.curve import Curve, Point
from bench.growth.served import World, busy_share, from_on, steps
from bench.raw_connection import RawConnection
from bench.workloads import RawProduce, Setup
from strandline.protocol.messages.metadata import MetadataRequest

MOST: Final = 10_000
OF_TOPIC: Final = 100
TOPICS_AT_ONCE: Final = 10
ASKED: Final = 15
CREATION_S: Final = 300.0
POLL_S: Final = 0.25
"""To ask for the metadata of all takes the broker time as well."""
IDLE_S: Final = 10.0
SETTLE_S: Final = 8.0
"""Until what follows a creation (checkpoints, garbage) is over."""
KIB: Final = 1024
METADATA_VERSION: Final = 12


def curves(world: World, most: int) -> Iterator[Curve]:
    """One broker; then three, which share the partitions as leaders and followers."""
    created, metadata, memory, idle, start, produced = ([] for _ in range(6))
    for count in steps(min(most, MOST), thirds=True):
        with world.serving() as broker:
            time.sleep(SETTLE_S)
            empty = broker.resident_bytes()
            created.append(Point(count, create(broker, count)))
            metadata.append(Point(count, _metadata_ms(broker)))
            produced.append(Point(count, _produce_us(broker, world.setup)))
            time.sleep(SETTLE_S)
            memory.append(Point(count, (broker.resident_bytes() - empty) / KIB / count))
            idle.append(Point(count, 100 * busy_share(broker, IDLE_S)))
            broker.end()
            start.append(Point(count, broker.start().seconds))
        world.tell(f"{count:,} partitions")
    work = "partitions"
    yield Curve(title="creation of all", unit="s", work=work, points=created)
    yield Curve(
        title="metadata of all",
        unit="ms",
        work=work,
        points=metadata,
        goal=50,
        goal_at=MOST,
    )
    yield Curve(
        title="start after a clean stop",
        unit="s",
        work=work,
        points=start,
        goal=3,
        goal_at=MOST,
    )
    yield Curve(
        title="memory of a partition",
        unit="KiB",
        work=work,
        points=from_on(memory, OF_TOPIC),
        goal=6,
        goal_at=MOST,
        grows=False,
    )
    yield Curve(title="processor, idle", unit="% of a core", work=work, points=idle)
    yield Curve(
        title="a request of one record",
        unit="us",
        work=work,
        points=produced,
        grows=False,
    )
    yield _of_three(world, most)


def _of_three(world: World, most: int) -> Curve:
    points = []
    for count in steps(min(most, MOST)):
        with world.serving(brokers=3) as cluster:
            create(cluster, count, replicas=3)
            time.sleep(SETTLE_S)
            points.append(Point(count, 100 * busy_share(cluster, IDLE_S)))
        world.tell(f"{count:,} partitions on three brokers")
    return Curve(
        title="processor, three brokers idle, three replicas",
        unit="% of a core",
        work="partitions",
        points=points,
        goal=3,
        goal_at=MOST,
    )


def create(broker: SocketBroker, count: int, *, replicas: int = 1) -> float:
    """Topics of a hundred partitions, ten of them a request; seconds until all have leaders."""
    admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
    topics = [
        NewTopic(f"many-{first}", min(OF_TOPIC, count - first), replication_factor=replicas)
        for first in range(0, count, OF_TOPIC)
    ]
    began = time.monotonic()
    for at in range(0, len(topics), TOPICS_AT_ONCE):
        chunk = topics[at : at + TOPICS_AT_ONCE]
        for created in admin.create_topics(chunk, request_timeout=CREATION_S).values():
            created.result(CREATION_S)
    while not _have_leaders(admin, [topic.topic for topic in topics]):
        if time.monotonic() - began > CREATION_S:
            raise SystemExit(f"{count:,} partitions have no leaders after {CREATION_S:.0f} s.")
        time.sleep(POLL_S)
    return time.monotonic() - began


def _have_leaders(admin: AdminClient, topics: Sequence[str]) -> bool:
    known = admin.list_topics(timeout=CREATION_S).topics
    return all(
        topic in known and all(each.leader >= 0 for each in known[topic].partitions.values())
        for topic in topics
    )


def _metadata_ms(broker: SocketBroker) -> float:
    connection = RawConnection(broker.port)
    took = []
    for _ in range(ASKED):
        before = time.perf_counter()
        connection.ask(MetadataRequest(topics=None), METADATA_VERSION)
        took.append(1000 * (time.perf_counter() - before))
    connection.close()
    return statistics.median(took)


def _produce_us(broker: SocketBroker, setup: Setup) -> float:
    (tiny,) = (each for each in workloads() if each.name == "tiny-16x5")
    if not isinstance(tiny, RawProduce):
        raise TypeError("tiny-16x5 is not what it was.")
    return replace(tiny, connections=16).run(broker, "busy", setup)["cpu_us_per_request"]
