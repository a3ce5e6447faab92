"""What a follower removes is kept, whatever the reason; and a disk that fails keeps no one."""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Any

import pytest

from strandline.errors import ErrorCode, StorageError
from strandline.node.ledger.keeping import Reason
from strandline.protocol.messages.inspect import InspectRequest
from strandline.records.batch import iterate_headers
from strandline.records.record import read_records
from strandline.types import Offset
from tests.node.followers import Cluster, from_leader
from tests.node.world import World, failing


def follow(cluster: Cluster, count: int = 3) -> Cluster:
    """Broker 2 leads `orders`, broker 1 follows and has so many records."""
    cluster.set_state(leader=2)
    for number in range(count):
        cluster.replica().check_following().append(
            from_leader(number, b"m%d" % number), cluster.world.now
        )
    cluster.world.turn()
    return cluster


def ledger(world: World, **arguments: object) -> Any:
    request = InspectRequest(subject="ledger", arguments=json.dumps(arguments).encode())
    answer = world.connect().ask(request, 0)
    return answer if answer.error_code else json.loads(answer.document)


def values(world: World, entry_id: str) -> list[bytes | None]:
    data = b64decode(ledger(world, id=entry_id)["data"])
    return [
        record.value
        for position, _ in iterate_headers(data)
        for record in read_records(data, position)
    ]


def test_a_truncation_is_kept_with_its_reason(cluster: Cluster) -> None:
    world = follow(cluster).world
    cluster.replica().check_following().followed_to(2, 0, world.now)
    cluster.replica().check_following().truncate_to(Offset(1), world.now, Reason.DIVERGED)
    assert cluster.offsets() == (1, 1)
    (entry,) = ledger(world)["entries"]
    assert entry["reason"] == Reason.DIVERGED
    assert (entry["broker"], entry["leader"]) == (1, 2)
    assert entry["leader_epoch"] == cluster.replica().leader_epoch
    assert (entry["from_offset"], entry["to_offset"], entry["high_watermark"]) == (1, 3, 2)
    assert not entry["unclean"]
    assert values(world, entry["id"]) == [b"m1", b"m2"]


def test_beginning_anew_is_kept(cluster: Cluster) -> None:
    world = follow(cluster).world
    cluster.replica().check_following().truncate_fully_to(Offset(7), world.now)
    (entry,) = ledger(world)["entries"]
    assert entry["reason"] == Reason.BELOW_LEADER
    assert values(world, entry["id"]) == [b"m0", b"m1", b"m2"]


def test_nothing_removed_is_nothing_kept(cluster: Cluster) -> None:
    world = follow(cluster).world
    cluster.replica().check_following().truncate_to(Offset(3), world.now, Reason.DIVERGED)
    cluster.replica().check_following().truncate_fully_to(Offset(7), world.now)
    cluster.replica().check_following().truncate_fully_to(Offset(9), world.now)
    assert len(ledger(world)["entries"]) == 1


def test_it_can_be_switched_off(make_cluster: Any) -> None:
    cluster = make_cluster("strandline.ledger.retention.bytes=0")
    cluster.create_topic()
    follow(cluster)
    cluster.replica().check_following().truncate_to(Offset(1), cluster.world.now, Reason.DIVERGED)
    assert ledger(cluster.world)["entries"] == []
    assert cluster.offsets()[0] == 1


@pytest.mark.parametrize("operation", ["create", "append", "sync", "rename", "list", "first read"])
def test_a_copy_that_fails_stops_nothing(
    cluster: Cluster, operation: str, caplog: pytest.LogCaptureFixture
) -> None:
    world = follow(cluster).world
    if operation == "first read":  # the truncation reads as well

        def once(called: str, path: str) -> None:
            if called == "read":
                world.files.on_call = None
                raise StorageError(f"Cannot read {path}: it is a test.")

        world.files.on_call = once
    else:
        part = "/data" if operation == "list" else "truncated-"
        world.files.on_call = failing({operation}, part)
    cluster.replica().check_following().truncate_to(Offset(1), world.now, Reason.DIVERGED)
    world.files.on_call = None
    assert cluster.offsets()[0] == 1
    assert cluster.replica().log.failure is None
    if operation != "list":
        assert "is not kept" in caplog.text


def test_old_entries_go_in_time(make_cluster: Any) -> None:
    cluster = make_cluster("strandline.ledger.retention.ms=600000")
    cluster.create_topic()
    world = follow(cluster).world
    cluster.replica().check_following().truncate_to(Offset(1), world.now, Reason.DIVERGED)
    world.advance(300_000)
    assert len(ledger(world)["entries"]) == 1
    world.advance(1_000_000)
    assert ledger(world)["entries"] == []


def test_entries_survive_a_restart(cluster: Cluster) -> None:
    world = follow(cluster).world
    cluster.replica().check_following().truncate_to(Offset(1), world.now, Reason.DIVERGED)
    before = ledger(world)["entries"]
    world.kill_and_restart()
    assert ledger(world)["entries"] == before


def test_questions_that_make_no_sense(world: World) -> None:
    assert ledger(world, id="1-2-3").error_code == ErrorCode.RESOURCE_NOT_FOUND
    assert ledger(world, id="1-2-3", position=-1).error_code == ErrorCode.INVALID_REQUEST
    assert ledger(world, nonsense=1).error_code == ErrorCode.INVALID_REQUEST
