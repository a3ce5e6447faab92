"""Retention on a disk that is full: it makes room, and a power failure finds a whole log."""

from __future__ import annotations

import pytest

from strandline.node.node import Node
from strandline.storage.memory_inodes import PowerCut
from strandline.types import Instant, Offset
from tests.node.cluster_world import ClusterWorld
from tests.node.messages import batch, produce, produced

A = 1


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("mode", ["none", "prefix", "hole", "all"])
def test_a_power_failure_leaves_no_hole(mode: PowerCut, seed: int) -> None:
    world = ClusterWorld(1, "log.flush.offset.checkpoint.interval.ms=100", seed=seed)
    world.create_topic("t", (A,), internal_segment_bytes="100")
    for _ in range(8):
        answer = world[A].connect().ask(produce(batch(b"x"), "t"), 9)
        assert produced(answer).error_code == 0
    world.sync(A, "t")
    world.run(60_000)  # the recovery point is in its table
    world[A].disk.fill("log-start-offset-checkpoint")
    log = world.replica(A, "t").log

    def delete_and_retain(node: Node, now: Instant) -> None:
        log.retention.delete_records_to(Offset(5))
        node.background.retention_task.apply_retention(now)

    world[A].event(delete_and_retain)
    world.run(5)
    assert list(log.segments.base_offsets) == [5, 6, 7]
    world.power_cut(A, mode)
    world[A].disk.free_space()
    world.start(A)
    world.run_until(world.is_settled)
    found = world.replica(A, "t").log
    first = found.log_start_offset
    assert list(found.segments.base_offsets) == list(range(first, 8))
    assert found.log_end_offset == 8
    world.check()
