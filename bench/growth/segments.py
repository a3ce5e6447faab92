"""What very many segments of one partition cost: a start, and a reader that looks for a place."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Final

from bench.brokers import SocketBroker
from bench.growth.curve import Curve, Point
from bench.growth.served import World, steps
from bench.many_segments import write_directory
from bench.raw_connection import RawConnection
from bench.startup_many import put_in
from bench.topics import Topics
from strandline.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic

MOST: Final = 10_000
LOOKS: Final = 300
TOPIC: Final = "long"
_FETCH: Final = 11


def curves(world: World, most: int) -> Iterator[Curve]:
    """One record in each of the segments."""
    starts, looks = [], []
    for count in steps(min(most, MOST)):
        with (
            tempfile.TemporaryDirectory(dir=world.where, prefix="growth-made-") as made,
            world.serving() as broker,
        ):
            write_directory(Path(made), TOPIC, count, time.time_ns() // 1_000_000)
            Topics(broker.address).create(TOPIC, 1, leader_port=broker.port, replicas=1)
            broker.end()
            put_in(Path(made), broker.directory / "data", count)
            starts.append(Point(count, broker.start().seconds))
            looks.append(Point(count, _looks_us(broker, count)))
        world.tell(f"{count:,} segments")
    yield Curve(title="start after a clean stop", unit="s", work="segments", points=starts)
    yield Curve(
        title="a fetch from anywhere",
        unit="us",
        work="segments",
        points=looks,
        grows=False,
    )


def _looks_us(broker: SocketBroker, count: int) -> float:
    random, connection, took = Random(1), RawConnection(broker.port), []
    for _ in range(LOOKS):
        partition = FetchPartition(
            partition=0, fetch_offset=random.randrange(count), partition_max_bytes=1
        )
        topic = FetchTopic(topic=TOPIC, partitions=[partition])
        request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1, topics=[topic])
        before = time.perf_counter()
        connection.ask(request, _FETCH)
        took.append(1e6 * (time.perf_counter() - before))
    connection.close()
    return statistics.median(took)
