"""Logs that are loaded again within the life of a broker, and what was promised of them."""

from __future__ import annotations

from strandline.errors import ErrorCode
from strandline.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from strandline.storage.files import OutOfHandles
from tests.node.cluster_world import Broker, ClusterWorld
from tests.node.messages import batch, produce, produced

A = 1


def delete_records(broker: Broker, offset: int) -> DeleteRecordsPartitionResult:
    """Have the records of `t` below an offset deleted; what the broker answers."""
    partition = DeleteRecordsPartition(partition_index=0, offset=offset)
    topics = [DeleteRecordsTopic(name="t", partitions=[partition])]
    answer = broker.connect().ask(DeleteRecordsRequest(topics=topics, timeout_ms=1000), 2)
    found: DeleteRecordsPartitionResult = answer.topics[0].partitions[0]
    return found


def test_where_it_starts_is_on_the_disk_before_a_client_hears_of_it() -> None:
    """A full disk did not take it, and then the log failed for want of a handle (I-27)."""
    world = ClusterWorld(1)
    world.create_topic("t", (A,))
    for _ in range(3):
        answer = world[A].connect().ask(produce(batch(b"x"), "t"), 9)
        assert produced(answer).error_code == 0
    world.sync(A, "t")
    world[A].disk.fill("log-start-offset-checkpoint")
    assert delete_records(world[A], 2).error_code == ErrorCode.REQUEST_TIMED_OUT
    failed = world.replica(A, "t")
    world[A].event(lambda *_: failed.fail(OutOfHandles("Too many open files.")))
    world.run(10)
    world[A].disk.free_space()
    world.run_until(lambda: world.is_settled() and world.replica(A, "t") is not failed)
    assert delete_records(world[A], 2).error_code == 0
    world.power_cut(A)
    world.start(A)
    world.run_until(world.is_settled)
    assert world.replica(A, "t").log.log_start_offset == 2
    world.check()
