"""A node that starts again on the same files, and disks that fail under a running one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from strandline.errors import ErrorCode, StorageError
from strandline.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from strandline.protocol.messages.find_coordinator import FindCoordinatorRequest
from strandline.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from strandline.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from strandline.storage.files import DiskFull
from strandline.types import TopicPartition
from tests.node.messages import batch, fetch, list_offsets, produce, produced, values
from tests.node.world import WALL_MS, Client, World, failing


def commit(client: Client, group: str, offset: int) -> int:
    request = OffsetCommitRequest(
        group_id=group,
        topics=[
            OffsetCommitRequestTopic(
                name="orders",
                partitions=[
                    OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
                ],
            )
        ],
    )
    return int(client.ask(request, 8).topics[0].partitions[0].error_code)


def committed(client: Client, group: str) -> int:
    request = OffsetFetchRequest(
        group_id=group, topics=[OffsetFetchRequestTopic(name="orders", partition_indexes=[0])]
    )
    answer = client.ask(request, 6)
    assert answer.error_code == 0
    return int(answer.topics[0].partitions[0].committed_offset)


def find_coordinator(client: Client, group: str) -> int:
    return int(client.ask(FindCoordinatorRequest(key=group, key_type=0), 2).error_code)


@pytest.mark.parametrize("way", ["restart", "kill_and_restart"])
def test_offsets_epochs_and_groups_survive(world: World, way: str) -> None:
    client = world.connect()
    assert find_coordinator(client, "g") == 0
    for round_ in range(1, 4):
        client = world.connect()
        client.ask(produce(batch(b"%d" % round_)), 9)
        assert commit(client, "g", round_) == 0
        epoch = world.replica("orders").leader_epoch
        cluster_id = world.node.metadata.image.cluster_id
        getattr(world, way)()
        assert world.replica("orders").leader_epoch > epoch
        assert world.node.metadata.image.cluster_id == cluster_id
        client = world.connect()
        assert committed(client, "g") == round_
        assert committed(client, "other") == -1
        expected = [b"%d" % i for i in range(1, round_ + 1)]
        assert values(client.ask(fetch(("orders", 0, 0)), 11)) == expected
        assert client.ask(list_offsets(-1), 7).topics[0].partitions[0].offset == round_


def test_a_clean_restart_needs_no_recovery_and_a_killed_one_does(world: World) -> None:
    world.connect().ask(produce(batch(b"a")), 9)
    world.restart()
    assert world.directory.clean_shutdown is not None
    world.kill_and_restart()
    assert world.directory.clean_shutdown is None


def test_a_torn_batch_at_the_end_is_cut(world: World) -> None:
    client = world.connect()
    for value in (b"a", b"b", b"c"):
        client.ask(produce(batch(value)), 9)
    segment = world.replica("orders").log.active.log
    path, size = segment.path, segment.size
    world.files = world.files.kill_clone()
    file = world.files.open(path)
    file.truncate(size - 1)
    file.close()
    world.tree.expire_session(world.session)
    world.start()
    client = world.connect()
    assert values(client.ask(fetch(("orders", 0, 0)), 11)) == [b"a", b"b"]
    assert world.replica("orders").log.recovery_report.lines()
    assert produced(client.ask(produce(batch(b"d")), 9)).base_offset == 2


# -- failing disks ---------------------------------------------------------------------------


def code(client: Client, topic: str = "orders") -> int:
    return int(produced(client.ask(produce(batch(b"x" * 100), topic), 9)).error_code)


@pytest.mark.parametrize("warm", [False, True])
def test_a_full_disk_refuses_appends_until_there_is_room(world: World, warm: bool) -> None:
    client = world.connect()
    for _ in range(3 if warm else 0):
        assert code(client) == 0
    before = world.log_bytes("orders")
    world.files.capacity_bytes = world.files.used_bytes + 40
    for _ in range(3):
        assert code(client) == ErrorCode.KAFKA_STORAGE_ERROR
    assert world.log_bytes("orders") == before
    assert len(values(client.ask(fetch(("orders", 0, 0)), 11))) == (3 if warm else 0)
    world.files.capacity_bytes += 1_000_000
    for _ in range(3):
        assert code(client) == 0
    world.kill_and_restart()
    answer = world.connect().ask(fetch(("orders", 0, 0)), 11)
    assert len(values(answer)) == (6 if warm else 3)


def test_f46_r15_a_disk_that_fails_under_an_append_is_not_used_any_more(world: World) -> None:
    world.create_topic("other")
    client = world.connect()
    assert (code(client), code(client, "other")) == (0, 0)
    world.files.on_call = failing({"append", "write", "cut back"}, "/orders-0/")
    answer = client.ask(produce({("orders", 0): batch(b"a"), ("other", 0): batch(b"b")}), 9)
    codes = [topic.partition_responses[0].error_code for topic in answer.responses]
    assert codes == [ErrorCode.KAFKA_STORAGE_ERROR, 0]
    world.files.on_call = failing(set(), "")
    for topic in ("orders", "other"):
        assert code(client, topic) == ErrorCode.KAFKA_STORAGE_ERROR
        (read,) = client.ask(fetch((topic, 0, 0)), 11).responses[0].partitions
        assert read.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        state = world.node.metadata.image.partition(TopicPartition(topic, 0))
        assert state is not None
        assert (state.leader, state.in_sync_replicas) == (-1, (1,))
    assert len(world.halted) == 1
    assert "Every log directory is offline" in world.halted[0]
    world.kill_and_restart()
    client = world.connect()
    assert code(client) == 0
    assert len(values(client.ask(fetch(("orders", 0, 0)), 11))) == 2


def test_a_producer_repeats_after_a_full_disk_without_a_duplicate(world: World) -> None:
    client = world.connect()

    def send(sequence: int) -> tuple[int, int]:
        data = batch(b"v%d" % sequence, producer_id=7, epoch=0, sequence=sequence)
        answer = produced(client.ask(produce(data), 9))
        return int(answer.error_code), int(answer.base_offset)

    assert send(0) == (0, 0)
    assert send(1) == (0, 1)
    world.files.capacity_bytes = world.files.used_bytes
    for _ in range(3):
        assert send(2)[0] == ErrorCode.KAFKA_STORAGE_ERROR
    world.files.capacity_bytes += 1_000_000
    assert send(2) == (0, 2)
    assert send(2) == (0, 2)
    assert send(3) == (0, 3)
    answer = client.ask(fetch(("orders", 0, 0)), 11)
    assert values(answer) == [b"v0", b"v1", b"v2", b"v3"]


@pytest.mark.parametrize("way", ["stay", "restart", "kill_and_restart"])
def test_i30_who_copies_old_records_is_protected_from_duplicates(way: str) -> None:
    """F-59: the records are two days old, the producer is not. Kafka takes it for idle since then:
    a retry after the next check, or after a restart, is appended a second time."""
    world = World("producer.id.expiration.check.interval.ms=1000")
    world.create_topic("orders")
    old_ms = WALL_MS - 2 * 86_400_000
    records = [
        batch(b"v%d" % number, producer_id=7, epoch=0, sequence=number, timestamp=old_ms)
        for number in range(3)
    ]
    client = world.connect()
    for number in range(2):
        answer = produced(client.ask(produce(records[number]), 9))
        assert (answer.error_code, answer.base_offset) == (0, number)
    if way != "stay":
        getattr(world, way)()
    world.advance(60_000)
    client = world.connect()
    for number in (1, 2, 2):
        answer = produced(client.ask(produce(records[number]), 9))
        assert (answer.error_code, answer.base_offset) == (0, number)
    assert values(client.ask(fetch(("orders", 0, 0)), 11)) == [b"v0", b"v1", b"v2"]
    world.check()


def test_a_commit_on_a_full_disk_fails_and_is_not_seen(world: World) -> None:
    client = world.connect()
    assert find_coordinator(client, "g") == 0
    assert commit(client, "g", 5) == 0
    world.files.capacity_bytes = world.files.used_bytes
    assert commit(client, "g", 6) != 0
    assert committed(client, "g") == 5
    world.files.capacity_bytes += 1_000_000
    assert commit(client, "g", 7) == 0
    assert committed(client, "g") == 7


def test_a_log_that_could_not_be_synced_takes_no_more_appends(world: World) -> None:
    world.create_topic("careful", flush_messages="1")
    world.sync_error = StorageError("Cannot sync: Input/output error.")
    client = world.connect()
    assert code(client, "careful") == 0
    assert code(client, "careful") == ErrorCode.KAFKA_STORAGE_ERROR
    world.sync_error = None
    assert world.directory.offline_reason is not None


def no_room(part_of_path: str) -> Callable[[str, str], None]:
    """A hook for `MemoryFiles.on_call`: nothing can be written to paths that contain a text."""

    def on_call(operation: str, path: str) -> None:
        if operation == "write" and part_of_path in path:
            raise DiskFull(f"Cannot write {path}: No space left on device.")

    return on_call


def test_f48_a_full_disk_delays_what_a_sync_needs_of_the_indexes(world: World) -> None:
    """Entries wait in memory until a sync. That there is no room for them is no end of a turn: all
    that other clients were to be told in it was lost with it."""
    world.create_topic("careful", flush_messages="2", index_interval_bytes="1")
    client = world.connect()
    assert code(client, "careful") == 0
    world.files.on_call = no_room("/careful-0/")
    assert code(client, "careful") == 0
    assert world.replica("careful").log.recovery_point == 0
    assert world.directory.offline_reason is None
    world.files.on_call = failing(set(), "")
    assert code(client, "careful") == 0
    assert world.replica("careful").log.recovery_point == 3


def test_f46_a_broken_disk_under_the_indexes_takes_the_directory_offline(world: World) -> None:
    world.create_topic("careful", flush_messages="2", index_interval_bytes="1")
    client = world.connect()
    assert code(client, "careful") == 0
    world.files.on_call = failing({"write"}, "/careful-0/")
    assert code(client, "careful") == 0
    assert world.directory.offline_reason is not None
    world.files.on_call = failing(set(), "")
    assert code(client, "careful") == ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("asked", ["records", "time", "time and end"])
def test_f47_a_disk_that_cannot_be_read_is_not_used_any_more(world: World, asked: str) -> None:
    world.create_topic("other")
    client = world.connect()
    assert (code(client), code(client, "other")) == (0, 0)
    world.kill_and_restart()  # what was just appended is not read from the disk
    client = world.connect()
    world.files.on_call = failing({"read"}, "/orders-0/")
    if asked == "records":
        (read,) = client.ask(fetch(("orders", 0, 0)), 11).responses[0].partitions
    else:
        timestamp = 1 if asked == "time" else -3
        (read,) = client.ask(list_offsets(timestamp), 7).topics[0].partitions
    assert read.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert world.directory.offline_reason is not None
    world.files.on_call = failing(set(), "")
    for topic in ("orders", "other"):
        assert code(client, topic) == ErrorCode.KAFKA_STORAGE_ERROR
    world.kill_and_restart()
    client = world.connect()
    assert len(values(client.ask(fetch(("orders", 0, 0)), 11))) == 1


def test_flush_messages_syncs_each_append(world: World) -> None:
    world.create_topic("careful", flush_messages="1")
    client = world.connect()
    for end in range(1, 5):
        assert code(client, "careful") == 0
        assert world.replica("careful").log.recovery_point == end
    assert len(world.synced) >= 4


def test_a_partition_that_cannot_be_created_is_refused_and_the_rest_works(world: World) -> None:
    world.files.on_call = failing({"create", "make directory", "make_directory"}, "/bad-0")
    world.create_topic("bad")
    client = world.connect()
    assert code(client, "bad") == ErrorCode.KAFKA_STORAGE_ERROR
    assert code(client) == 0
    world.files.on_call = failing(set(), "")


def test_a_log_that_a_full_disk_does_not_take_leaves_nothing_behind(world: World) -> None:
    """Else the next attempt may be made in another directory, and two logs of it would be there."""
    world.files.on_call = failing({"create"}, "/late-0/00000000000000000000.log", DiskFull)
    world.create_topic("late")
    client = world.connect()
    assert code(client, "late") == ErrorCode.KAFKA_STORAGE_ERROR
    assert not any("late-0" in name for name in world.files.list_directory(world.directory.path))
    world.files.on_call = failing(set(), "")
    world.advance(10_000)
    assert code(client, "late") == 0


# -- Deleted records -------------------------------------------------------------------------


def delete_records(client: Client, offset: int, timeout_ms: int = 100_000) -> None:
    """Ask, and do not wait for the answer."""
    partition = DeleteRecordsPartition(partition_index=0, offset=offset)
    topic = DeleteRecordsTopic(name="orders", partitions=[partition])
    client.send(DeleteRecordsRequest(topics=[topic], timeout_ms=timeout_ms), 2)


def test_what_was_said_to_be_deleted_stays_so_without_power(world: World) -> None:
    client = world.connect()
    for _ in range(5):
        client.ask(produce(batch(b"x")), 9)
    world.files.sync_directory("/")
    calls: list[tuple[str, str]] = []
    world.files.on_call = lambda operation, path: calls.append((operation, path))
    delete_records(client, 3)
    assert len(client.answers) == 5
    world.turn()
    assert client.answers[-1].topics[0].partitions[0].low_watermark == 3
    written = [path for operation, path in calls if operation == "rename"]
    assert [path.rsplit("/", 1)[1] for path in written] == ["log-start-offset-checkpoint.tmp"]
    world.files.on_call = None
    world.files = world.files.crash_clone()
    world.tree.expire_session(world.session)
    world.start()
    assert world.replica("orders").log.log_start_offset == 3


def test_a_full_disk_delays_the_answer_that_records_are_deleted(world: World) -> None:
    client = world.connect()
    for _ in range(5):
        client.ask(produce(batch(b"x")), 9)
    world.files.capacity_bytes = world.files.used_bytes
    delete_records(client, 3)
    world.turn()
    assert len(client.answers) == 5
    world.files.capacity_bytes += 1_000_000
    world.advance(60_000)
    assert client.answers[-1].topics[0].partitions[0].low_watermark == 3
    world.kill_and_restart()
    assert world.replica("orders").log.log_start_offset == 3


def test_a_disk_that_fails_does_not_say_that_records_are_deleted(world: World) -> None:
    client = world.connect()
    for _ in range(5):
        client.ask(produce(batch(b"x")), 9)
    world.files.on_call = failing({"sync"}, "log-start-offset-checkpoint")
    delete_records(client, 3, timeout_ms=100)
    world.turn()
    (directory,) = world.node.replicas.logs.directories
    assert directory.offline_reason is not None
    world.files.on_call = None
    world.advance(100)
    answer = client.answers[-1].topics[0].partitions[0]
    assert (answer.error_code != 0, answer.low_watermark) == (True, -1)


def test_a_reader_below_what_retention_drops_hears_of_it_at_once(world: World) -> None:
    client, reader = world.connect(), world.connect()
    for _ in range(5):
        client.ask(produce(batch(b"x")), 9)
    log = world.replica("orders").log
    reader.send(fetch(("orders", 0, 2), max_wait_ms=10_000_000, min_bytes=1_000_000), 11)
    world.turn()
    assert reader.answers == []
    log.roller.roll(world.now.wall_ms)
    log.update_config(replace(log.config, retention_bytes=0))
    world.advance(400_000)
    assert log.log_start_offset == log.offsets.log_start_saved == 5
    ((answer,),) = [topic.partitions for topic in reader.answers[0].responses]
    assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
