"""What the hash of a run depends on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from strandline.sim.plan import Options
from strandline.sim.trace import Kind, ReplicaTrace, Trace
from strandline.sim.world import World
from strandline.types import Offset, TopicPartition
from tests.node.messages import batch, produce
from tests.sim.callers import Caller, create_topic

CHANGES: list[Callable[[Trace], None]] = [
    lambda trace: trace.add(2, Kind.BYTES, 1, b"a"),
    lambda trace: trace.add(1, Kind.OPENED, 1, b"a"),
    lambda trace: trace.add(1, Kind.BYTES, 2, b"a"),
    lambda trace: trace.add(1, Kind.BYTES, 1, b"b"),
    lambda trace: trace.number(1, Kind.BYTES, 1, 7),
    lambda trace: trace.replica(1, 1, (0, 0, 0, 0, 0, True)),
    lambda trace: None,
]


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_is_different_makes_another_hash(change: Callable[[Trace], None]) -> None:
    one, same, other = Trace(), Trace(), Trace()
    one.add(1, Kind.BYTES, 1, b"a")
    same.add(1, Kind.BYTES, 1, memoryview(b"a"))
    change(other)
    assert one.hash == same.hash != other.hash


def test_a_replica_counts_when_it_has_changed() -> None:
    world = World(Options(seed=3, brokers=1))
    world.start_all()
    world.run_until(world.is_settled)
    create_topic(world, "t", (1,))
    replica = world.replica(1, TopicPartition("t", 0))
    assert replica is not None
    trace = Trace()
    watch = ReplicaTrace(trace, 1)
    hashes = [trace.hash]
    watch.note([replica])
    hashes.append(trace.hash)
    watch.note([replica])
    assert trace.hash == hashes[-1]
    Caller(world, "c", 1).ask(produce(batch(b"a"), "t", acks=1), 9)
    watch.note([replica])
    hashes.append(trace.hash)
    replica.log.offsets.high_watermark = Offset(0)
    watch.note([replica])
    hashes.append(trace.hash)
    assert len(set(hashes)) == 4
    world.close()
