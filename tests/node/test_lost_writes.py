"""A sync that failed has lost what it was to write, also when the reason was a want of room."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from strandline.errors import ErrorCode, StorageError
from strandline.node.ledger.keeping import Reason
from strandline.storage.files import DiskFull, LostWrites, NoRoom, OutOfHandles
from strandline.storage.memory_inodes import Contents
from strandline.types import Offset, TopicPartition
from tests.node.followers import B, Cluster, from_leader
from tests.node.world import DATA

AT = TopicPartition("orders", 0)
FILE = f"{DATA}/orders-0/00000000000000000000.log"
LATER_MS = 30_000
"""Within it a log is loaded again that failed for want of something."""


def losing(
    cluster: Cluster, kind: type[StorageError], path: str = FILE
) -> Callable[[str, str], None]:
    """Syncs of the file fail once, and lie from then on (F-45)."""
    files = cluster.world.files

    def lose(operation: str, on: str) -> None:
        contents = files.find(path)
        if operation == "sync" and on == path and isinstance(contents, Contents):
            files.on_call = None
            contents.drops_syncs = True
            raise kind(f"Cannot sync {on}: it is a test.")

    return lose


def given_up(cluster: Cluster) -> bool:
    """Whether the directory is offline, and the partition not served, now and later."""
    world = cluster.world
    world.turn()
    world.advance(LATER_MS)
    return (
        world.directory.offline_reason is not None
        and world.node.replicas.find(AT) is None
        and cluster.produce(b"late").error_code == ErrorCode.KAFKA_STORAGE_ERROR
    )


@pytest.fixture
def flushing() -> Cluster:
    cluster = Cluster()
    cluster.create_topic("orders", replicas=(1,), **{"flush.messages": "3"})
    cluster.world.turn()
    return cluster


@pytest.mark.parametrize("kind", [DiskFull, NoRoom, StorageError])
def test_a_flush(flushing: Cluster, kind: type[StorageError]) -> None:
    """The log came back under the same registration; its recovery point passed the lost bytes."""
    flushing.world.files.on_call = losing(flushing, kind)
    for number in range(3):
        assert flushing.produce(b"m%d" % number).error_code == 0
    assert given_up(flushing)
    assert not flushing.world.node.stop(1), "no marker tells the next start that all is well"


def test_a_flush_that_found_no_handle_is_tried_again(flushing: Cluster) -> None:
    world = flushing.world
    refused: list[str] = []

    def starve(operation: str, path: str) -> None:
        if operation == "sync" and path == FILE and not refused:
            refused.append(path)
            raise OutOfHandles(f"Cannot sync {path}: Too many open files.")

    world.files.on_call = starve
    for number in range(3):
        assert flushing.produce(b"m%d" % number).error_code == 0
    world.advance(LATER_MS)
    assert refused
    assert world.directory.offline_reason is None
    assert flushing.produce(b"m").error_code == 0


def test_a_truncation(cluster: Cluster) -> None:
    cluster.set_state(leader=B)
    replica, world = cluster.replica(), cluster.world
    for number in range(3):
        replica.check_following().append(from_leader(number, b"m"), world.now)
    world.files.on_call = losing(cluster, DiskFull)
    with pytest.raises(LostWrites) as raised:
        replica.check_following().truncate_to(Offset(1), world.now, Reason.DIVERGED)
    replica.fail(raised.value)
    world.turn()
    world.advance(LATER_MS)
    assert world.directory.offline_reason is not None
    assert world.node.replicas.find(AT) is None


def test_a_flush_that_was_under_way_when_the_log_was_loaded_again(flushing: Cluster) -> None:
    """Its result speaks of the same files, and of a log that is there no more."""
    world = flushing.world
    world.holds_syncs = True
    for number in range(3):
        assert flushing.produce(b"m%d" % number).error_code == 0
    flush = world.held_syncs.popleft()
    replica = flushing.replica()
    replica.fail(OutOfHandles("Too many open files."))
    world.turn()
    world.advance(LATER_MS)
    assert flushing.replica() is not replica, "it was loaded again"
    world.node.log_synced(flush.token, LostWrites(f"Cannot sync {FILE}: No space left."), world.now)
    world.turn()
    assert world.directory.offline_reason is not None
    assert world.node.replicas.find(AT) is None


def test_a_log_that_failed_before_for_want_of_something_is_not_loaded_again(
    flushing: Cluster,
) -> None:
    replica = flushing.replica()
    assert flushing.produce(b"m").error_code == 0
    replica.fail(OutOfHandles("Too many open files."))
    replica.fail(LostWrites(f"Cannot sync {FILE}: No space left on device."))
    assert not replica.log.health.may_reload
    assert given_up(flushing)


def test_the_sync_of_a_log_that_is_loaded_again(flushing: Cluster) -> None:
    world = flushing.world
    assert flushing.produce(b"m").error_code == 0
    flushing.replica().fail(OutOfHandles("Too many open files."))
    world.files.on_call = losing(flushing, DiskFull)
    assert given_up(flushing)
