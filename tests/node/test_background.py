"""Work that a node does again and again."""

from __future__ import annotations

import pytest

from strandline.types import Instant
from tests.node.messages import batch, produce, produced
from tests.node.world import World

CHECKPOINTS = (
    "replica.high.watermark.checkpoint.interval.ms",
    "log.flush.offset.checkpoint.interval.ms",
    "log.flush.start.offset.checkpoint.interval.ms",
)


@pytest.mark.parametrize(("interval_ms", "times"), [(100, 5), (0, 1), (-1, 1)])
def test_work_without_an_interval_is_done_once(interval_ms: int, times: int) -> None:
    world = World()
    done: list[int] = []

    def work(now: Instant) -> None:
        done.append(now.monotonic_ms)

    began_ms = world.now.monotonic_ms
    world.node.background.repeat(interval_ms, 50, work, world.now)
    world.advance(500)
    assert done == [began_ms + 50 + 100 * number for number in range(times)]


@pytest.mark.parametrize("setting", CHECKPOINTS)
def test_checkpoints_without_an_interval_do_not_keep_a_broker_from_its_work(setting: str) -> None:
    world = World(f"{setting}=0")
    world.create_topic("orders")
    world.advance(60_000)
    assert produced(world.connect().ask(produce(batch(b"x"), "orders"), 9)).error_code == 0
