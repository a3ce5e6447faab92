"""How long a start takes after a crash, by the bytes that were not synced."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bench.growth.curve import Curve, Point
from bench.growth.served import World
from bench.workloads import load

MEGABYTE: Final = 1_000_000
MOST: Final = 1000
SEGMENT_BYTES: Final = 2_000_000_000
"""All in the active segment: closed ones are synced."""


def curves(world: World, most: int) -> Iterator[Curve]:
    """Records of 1 KB in batches of 64 KB; the broker is killed and started again."""
    starts = []
    settings = {"log.segment.bytes": str(SEGMENT_BYTES), "log.retention.bytes": "-1"}
    for megabytes in (each for each in (1, 10, 100, 300, MOST) if each <= max(1, most)):
        with world.serving(settings) as broker:
            broker.create_topic("crashed", 1)
            load(broker, "crashed", world.setup, megabytes * MEGABYTE)
            broker.kill()
            starts.append(Point(megabytes, broker.start().seconds))
        world.tell(f"recovery of {megabytes:,} MB")
    yield Curve(
        title="start after a crash",
        unit="s",
        work="MB that were not synced",
        points=starts,
    )
