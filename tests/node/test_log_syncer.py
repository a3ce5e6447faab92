"""C-7: taking partitions over waits for no disk; entries of leader epochs are written later.

An entry must be durable before the recovery point passes the records of its epoch, and one that was
cut meanwhile must not come back.
"""

from __future__ import annotations

from collections import Counter

import pytest

from strandline.errors import ErrorCode, StorageError
from strandline.node import log_syncer
from strandline.node.ledger.keeping import Reason
from strandline.storage.files import DiskFull
from strandline.storage.flush_plan import EpochsPlan, FlushPlan, NamesPlan
from strandline.storage.leader_epochs import FILE_NAME, LeaderEpochs
from strandline.storage.log_parts import PartitionDirectory
from strandline.types import LeaderEpoch, Offset
from tests.current import current
from tests.node.followers import B, Cluster, from_leader
from tests.node.world import DATA, failing

_REASON = next(iter(Reason))
SYNCS = frozenset({"sync", "sync directory"})


def count_syncs(cluster: Cluster) -> Counter[str]:
    """Counts operations of the disk from now on that may take long."""
    counts: Counter[str] = Counter()

    def on_call(operation: str, path: str) -> None:
        del path
        counts[operation] += operation in SYNCS

    cluster.world.files.on_call = on_call
    return counts


def on_disk(cluster: Cluster, topic: str = "orders") -> list[tuple[int, int]]:
    path = f"{cluster.replica(topic).log.directory}/{FILE_NAME}"
    return [
        (each.epoch, each.start_offset)
        for each in LeaderEpochs.load(cluster.world.files, path).entries
    ]


def in_memory(cluster: Cluster, topic: str = "orders") -> list[tuple[int, int]]:
    return [
        (each.epoch, each.start_offset) for each in cluster.replica(topic).log.leader_epochs.entries
    ]


def carry_out_next(cluster: Cluster, kind: type) -> None:
    effect = cluster.world.held_syncs.popleft()
    assert isinstance(effect.plan, kind), effect
    cluster.world.sync(effect)
    cluster.world.turn()


def take_over(cluster: Cluster, topic: str = "orders") -> None:
    """Another led meanwhile."""
    cluster.set_state(topic, leader=B)
    cluster.set_state(topic, leader=1)


def test_c7_taking_over_syncs_nothing(cluster: Cluster) -> None:
    topics = [f"t{number}" for number in range(20)]
    for topic in topics:
        cluster.create_topic(topic)
        cluster.produce(b"m", topic=topic)
    cluster.world.holds_syncs = True
    syncs = count_syncs(cluster)
    for topic in topics:
        take_over(cluster, topic)
    assert not syncs.total()
    assert all(in_memory(cluster, topic) == [(0, 0), (2, 1)] for topic in topics)
    assert not cluster.world.held_syncs, "nothing is written in these epochs yet"
    for topic in topics:
        assert cluster.produce(b"m", topic=topic).error_code == 0
    assert not syncs.total()
    assert cluster.world.held_syncs


def test_c7_the_tables_of_a_turn_are_written_together(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_syncer, "TABLES_MAX", 4)
    topics = [f"t{number}" for number in range(6)]
    for topic in topics:
        cluster.create_topic(topic)
        cluster.produce(b"m", topic=topic)
        take_over(cluster, topic)
    cluster.world.synced.clear()
    replicas = [cluster.replica(topic) for topic in topics]
    for replica in replicas:
        replica.log.flusher.begin_epoch(LeaderEpoch(9), Offset(0))
        replica.log.flusher.wants_flush = True
        replica.note_flush()
    cluster.world.turn()
    sizes = [len(s.plan.tables) for s in cluster.world.synced if isinstance(s.plan, EpochsPlan)]
    assert sizes == [4, 2]
    assert all(on_disk(cluster, topic) == [(9, 0)] for topic in topics)
    assert not any(replica.log.flusher.epochs_due for replica in replicas)


def test_c7_the_entry_is_durable_before_the_recovery_point_passes_its_records(
    cluster: Cluster,
) -> None:
    cluster.create_topic("eager", flush_messages="1")
    world, log = cluster.world, cluster.replica("eager").log
    cluster.produce(b"m0", topic="eager")
    assert (log.recovery_point, on_disk(cluster, "eager")) == (1, [(0, 0)])
    take_over(cluster, "eager")
    world.holds_syncs = True
    cluster.produce(b"m1", topic="eager")
    assert current(log.flusher.epochs_due)
    carry_out_next(cluster, EpochsPlan)
    assert on_disk(cluster, "eager") == [(0, 0), (2, 1)], "in force, but its name is not durable"
    assert current(log.flusher.epochs_due)
    assert log.recovery_point == 1
    carry_out_next(cluster, NamesPlan)
    assert not log.flusher.epochs_due
    world.files.sync_directory("/")
    crashed = world.files.crash_clone()
    table = LeaderEpochs.load(crashed, f"{log.directory}/{FILE_NAME}")
    assert [tuple(each) for each in table.entries] == [(0, 0), (2, 1)]
    carry_out_next(cluster, FlushPlan)
    assert log.recovery_point == 2
    assert not world.held_syncs


def test_c7_a_flush_that_cannot_wait_writes_the_entry_itself(cluster: Cluster) -> None:
    cluster.produce(b"m0")
    take_over(cluster)
    cluster.world.holds_syncs = True
    cluster.produce(b"m1")
    plan = cluster.replica().log.flusher.flush_plan()
    assert plan is not None
    assert plan.up_to == 2
    assert on_disk(cluster) == [(0, 0), (2, 1)]
    carry_out_next(cluster, EpochsPlan)  # late, and void
    assert not cluster.world.held_syncs
    assert on_disk(cluster) == [(0, 0), (2, 1)]


def test_c7_an_entry_that_was_cut_meanwhile_does_not_come_back(cluster: Cluster) -> None:
    """Batches of an older epoch may be appended there: recovery would take them for truncated."""
    cluster.produce(b"m0")
    take_over(cluster)
    cluster.world.holds_syncs = True
    cluster.produce(b"m1")
    cluster.set_state(leader=B)
    cluster.replica().check_following().truncate_to(Offset(1), cluster.world.now, _REASON)
    assert in_memory(cluster) == [(0, 0)]
    carry_out_next(cluster, EpochsPlan)
    assert on_disk(cluster) == [(0, 0)]
    assert not cluster.world.held_syncs


def test_c7_an_entry_whose_name_may_be_durable_is_cut_from_the_file(cluster: Cluster) -> None:
    cluster.produce(b"m0")
    take_over(cluster)
    cluster.world.holds_syncs = True
    cluster.produce(b"m1")
    carry_out_next(cluster, EpochsPlan)
    assert on_disk(cluster) == [(0, 0), (2, 1)]
    cluster.set_state(leader=B)
    cluster.replica().check_following().truncate_to(Offset(1), cluster.world.now, _REASON)
    assert on_disk(cluster) == [(0, 0)]
    carry_out_next(cluster, NamesPlan)
    assert on_disk(cluster) == in_memory(cluster) == [(0, 0)]
    assert not cluster.replica().log.flusher.epochs_due


def test_c7_an_epoch_without_records_is_cut_without_writing(cluster: Cluster) -> None:
    cluster.produce(b"m0")
    take_over(cluster)
    cluster.set_state(leader=B)
    syncs = count_syncs(cluster)
    cluster.replica().check_following().truncate_to(Offset(1), cluster.world.now, _REASON)
    assert in_memory(cluster) == on_disk(cluster) == [(0, 0)]
    assert not syncs.total()


def test_c7_a_deleted_partition_forgets_its_table(cluster: Cluster) -> None:
    cluster.create_topic("doomed")
    cluster.produce(b"m0", topic="doomed")
    take_over(cluster, "doomed")
    cluster.world.holds_syncs = True
    cluster.produce(b"m1", topic="doomed")
    replicas = cluster.world.node.replicas
    replicas.remove(cluster.world.node.metadata.image.topics["doomed"], cluster.world.now)
    carry_out_next(cluster, EpochsPlan)
    assert not cluster.world.held_syncs
    assert not cluster.world.bugs
    assert cluster.world.directory.offline_reason is None


def test_c7_a_full_disk_delays_the_entry_and_nothing_else(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.produce(b"m0")
    take_over(cluster)
    cluster.world.files.on_call = failing({"append"}, FILE_NAME, DiskFull)
    assert cluster.produce(b"m1").error_code == 0
    assert "written later" in caplog.text
    assert cluster.replica().log.flusher.epochs_due
    cluster.world.files.on_call = None
    cluster.world.advance(20_000)
    assert not cluster.replica().log.flusher.epochs_due
    assert on_disk(cluster) == [(0, 0), (2, 1)]


@pytest.mark.parametrize("operation", ["append", "sync", "rename", "sync directory"])
def test_c7_a_disk_that_fails_takes_the_directory_offline(cluster: Cluster, operation: str) -> None:
    cluster.produce(b"m0")
    take_over(cluster)
    part = "orders-0" if operation == "sync directory" else FILE_NAME
    cluster.world.files.on_call = failing({operation}, part, StorageError)
    cluster.produce(b"m1")
    cluster.world.files.on_call = None
    assert cluster.world.directory.offline_reason
    assert cluster.produce(b"m2").error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_c7_a_follower_writes_the_leaders_epochs_behind_as_well(cluster: Cluster) -> None:
    cluster.produce(b"m0")
    cluster.set_state(leader=B)
    cluster.world.holds_syncs = True
    syncs = count_syncs(cluster)
    records = from_leader(1, b"m1", leader_epoch=1)
    cluster.replica().check_following().append(records, cluster.world.now)
    cluster.world.turn()
    assert in_memory(cluster) == [(0, 0), (1, 1)]
    assert not syncs.total()
    carry_out_next(cluster, EpochsPlan)
    carry_out_next(cluster, NamesPlan)
    assert on_disk(cluster) == [(0, 0), (1, 1)]


def test_c7_a_clean_stop_writes_what_is_left(cluster: Cluster) -> None:
    cluster.produce(b"m0")
    take_over(cluster)
    cluster.replica().log.close_clean()
    assert on_disk(cluster) == [(0, 0), (2, 1)]
    assert f"{DATA}/orders-0" == cluster.replica().log.directory


def test_a_flush_that_found_a_file_gone_is_asked_for_again(cluster: Cluster) -> None:
    """As when retention drops a segment while its sync waits for a thread."""
    world, replica = cluster.world, cluster.replica()
    cluster.produce(b"m0")
    world.turn()
    world.holds_syncs = True
    replica.log.roller.roll(world.now.wall_ms)
    replica.note_flush()
    world.turn()
    while not isinstance(world.held_syncs[0].plan, FlushPlan):
        carry_out_next(cluster, type(world.held_syncs[0].plan))
    world.node.log_synced(world.held_syncs.popleft().token, False, world.now)
    world.holds_syncs = False
    world.advance(20_000)  # nothing is written meanwhile
    assert replica.log.recovery_point == 1


@pytest.mark.parametrize("kind", [StorageError, DiskFull])
def test_a_new_directory_that_cannot_be_looked_into_is_no_bug(
    cluster: Cluster, kind: type[StorageError], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it owes to the disk is asked when its leader epochs are to be written (note 0024)."""

    def refuse(directory: PartitionDirectory) -> None:
        raise kind(f"Cannot open {directory.path}: the test says so.")

    cluster.create_topic("new")
    with monkeypatch.context() as without_disk:
        without_disk.setattr(PartitionDirectory, "unsynced", refuse)
        assert cluster.produce(b"m", topic="new").error_code == 0
    assert not cluster.world.bugs
    if kind is DiskFull:
        assert cluster.replica("new").log.flusher.epochs_due
        cluster.world.advance(20_000)
        assert not cluster.replica("new").log.flusher.epochs_due
    else:
        assert cluster.world.directory.offline_reason is not None
