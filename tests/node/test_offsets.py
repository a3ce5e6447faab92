"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords through the wire."""

from __future__ import annotations

from typing import Any

import pytest

from strandline.errors import ErrorCode
from strandline.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from strandline.protocol.messages.list_offsets import ListOffsetsPartition
from strandline.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.node.messages import batch, fetch, fetched, list_offsets, offsets, produce
from tests.node.world import WALL_MS, Client, World

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, TIERED, PENDING = range(-1, -7, -1)
FIRST_VERSION = {
    LATEST: 1, EARLIEST: 1, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, TIERED: 9, PENDING: 11,
}  # fmt: skip


@pytest.fixture
def client(world: World) -> Client:
    """Six records, two per batch, ten milliseconds apart; the newest is not the last."""
    client = world.connect()
    for start in (0, 40, 20):
        client.ask(produce(batch(b"a", b"b", timestamp=WALL_MS + start)), 9)
    return client


def look_up(client: Client, timestamp: int, version: int, **more: Any) -> tuple[int, int, int]:
    (topic,) = client.ask(list_offsets(timestamp, **more), version).topics
    (found,) = topic.partitions
    return int(found.error_code), int(found.offset), int(found.timestamp)


@pytest.mark.parametrize("version", range(1, 12))
def test_every_special_number_in_every_version(client: Client, version: int) -> None:
    expected = {
        LATEST: (6, -1),
        EARLIEST: (0, -1),
        MAX_TIMESTAMP: (3, WALL_MS + 41),
        EARLIEST_LOCAL: (0, -1),
        TIERED: (-1, -1),
        PENDING: (-1, -1),
    }
    for timestamp, (offset, found_at) in expected.items():
        if version < FIRST_VERSION[timestamp]:
            code, _, _ = look_up(client, timestamp, version)
            assert code == ErrorCode.UNSUPPORTED_VERSION
        else:
            assert look_up(client, timestamp, version) == (0, offset, found_at)
    code, _, _ = look_up(client, -7, version)
    assert code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("version", [1, 5, 6, 11])
@pytest.mark.parametrize(
    ("after", "offset", "found_after"),
    [(-100, 0, 0), (0, 0, 0), (1, 1, 1), (2, 2, 40), (40, 2, 40), (41, 3, 41), (42, -1, None)],
)
def test_by_time(
    client: Client, version: int, after: int, offset: int, found_after: int | None
) -> None:
    code, found, timestamp = look_up(client, WALL_MS + after, version)
    assert (code, found) == (0, offset)
    assert timestamp == (-1 if found_after is None else WALL_MS + found_after)


def test_an_empty_partition(world: World) -> None:
    client = world.connect()
    for timestamp, offset in ((LATEST, 0), (EARLIEST, 0), (MAX_TIMESTAMP, -1), (WALL_MS, -1)):
        assert look_up(client, timestamp, 7) == (0, offset, -1)


def test_epochs_and_unknown_partitions(world: World, client: Client) -> None:
    world.restart()
    client = world.connect()
    epoch = world.replica("orders").leader_epoch
    assert look_up(client, LATEST, 7, leader_epoch=epoch)[0] == 0
    assert look_up(client, LATEST, 7, leader_epoch=epoch - 1)[0] == ErrorCode.FENCED_LEADER_EPOCH
    assert look_up(client, LATEST, 7, leader_epoch=epoch + 1)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH
    code = look_up(client, LATEST, 7, partition=5)[0]
    assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_the_same_partition_twice_is_refused(client: Client) -> None:
    request = list_offsets(LATEST)
    request.topics[0].partitions.append(ListOffsetsPartition(partition_index=0, timestamp=LATEST))
    (topic,) = client.ask(request, 7).topics
    assert {p.error_code for p in topic.partitions} == {ErrorCode.INVALID_REQUEST}


def test_the_epoch_of_an_offset_is_told(world: World, client: Client) -> None:
    first = world.replica("orders").leader_epoch
    world.restart()
    client = world.connect()
    client.ask(produce(batch(b"c", timestamp=WALL_MS + 99)), 9)
    request = list_offsets(WALL_MS)
    assert client.ask(request, 7).topics[0].partitions[0].leader_epoch == first
    request = list_offsets(WALL_MS + 99)
    assert client.ask(request, 7).topics[0].partitions[0].leader_epoch == first + 1


def end_of_epoch(client: Client, epoch: int, version: int, current: int = -1) -> tuple[int, ...]:
    request = OffsetForLeaderEpochRequest(
        topics=[
            OffsetForLeaderTopic(
                topic="orders",
                partitions=[
                    OffsetForLeaderPartition(
                        partition=0, current_leader_epoch=current, leader_epoch=epoch
                    )
                ],
            )
        ]
    )
    (topic,) = client.ask(request, version).topics
    (found,) = topic.partitions
    return int(found.error_code), int(found.leader_epoch), int(found.end_offset)


@pytest.mark.parametrize("version", [2, 3, 4])
def test_the_end_of_each_epoch(world: World, client: Client, version: int) -> None:
    first = world.replica("orders").leader_epoch
    world.restart()
    client = world.connect()
    client.ask(produce(batch(b"c")), 9)
    assert end_of_epoch(client, first, version) == (0, first, 6)
    assert end_of_epoch(client, first + 1, version) == (0, first + 1, 7)
    assert end_of_epoch(client, first + 5, version) == (0, -1, -1)
    fenced = ErrorCode.FENCED_LEADER_EPOCH
    assert end_of_epoch(client, first, version, current=first)[0] == fenced
    unknown = ErrorCode.UNKNOWN_LEADER_EPOCH
    assert end_of_epoch(client, first, version, current=first + 7)[0] == unknown


def delete(client: Client, offset: int, topic: str = "orders") -> tuple[int, int]:
    request = DeleteRecordsRequest(
        topics=[
            DeleteRecordsTopic(
                name=topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)]
            )
        ],
        timeout_ms=10,
    )
    (result,) = client.ask(request, 2).topics
    (found,) = result.partitions
    return int(found.error_code), int(found.low_watermark)


def test_i40_a_deletion_does_not_wait_if_a_fetcher_saves_the_log_start(
    world: World, client: Client
) -> None:
    """It saves those of all logs, since followed ones have moved in the same turn."""
    item = DeleteRecordsPartition(partition_index=0, offset=3)
    topic = DeleteRecordsTopic(name="orders", partitions=[item])
    client.send(DeleteRecordsRequest(topics=[topic], timeout_ms=10_000), 2)
    assert world.node.replicas.logs.save_log_starts()
    world.turn()
    [answer] = client.answers[-1:]
    assert answer.topics[0].partitions[0].low_watermark == 3


def test_deleted_records_are_gone_for_good(world: World, client: Client) -> None:
    assert delete(client, 3) == (0, 3)
    assert delete(client, 1) == (0, 3), "the start never moves back"
    assert look_up(client, EARLIEST, 7) == (0, 3, -1)
    answer = client.ask(fetch(("orders", 0, 2)), 11)
    assert fetched(answer)["orders", 0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert offsets(client.ask(fetch(("orders", 0, 3)), 11))[-1] == 5
    for offset in (7, -2):
        assert delete(client, offset)[0] == ErrorCode.OFFSET_OUT_OF_RANGE
    assert delete(client, -1) == (0, 6)
    world.restart()
    assert look_up(world.connect(), EARLIEST, 7) == (0, 6, -1)


def test_deleting_is_refused_where_it_makes_no_sense(world: World, client: Client) -> None:
    world.create_topic("compacted", cleanup_policy="compact")
    assert delete(client, 0, "compacted")[0] == ErrorCode.POLICY_VIOLATION
    assert delete(client, 0, "__consumer_offsets")[0] == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert delete(client, 0, "missing")[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
