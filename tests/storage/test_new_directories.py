"""Directories of new logs, which are not synced when they are made (design note 0024).

Whatever a power failure leaves, a log that may hold something says to which topic it belongs; what
was flushed is there, and so is everything when only the process ends.
"""

from __future__ import annotations

from random import Random

import pytest

from strandline.config.topic import TopicConfig
from strandline.storage.checkpoint_file import DamagedCheckpoint, OffsetCheckpoint
from strandline.storage.files import Files
from strandline.storage.flush_plan import EpochsPlan, NamesPlan
from strandline.storage.log import Log
from strandline.storage.log_directory import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    RECOVERY_POINTS,
    LogDirectory,
)
from strandline.storage.log_to_load import LogToLoad
from strandline.storage.memory_files import MemoryFiles
from strandline.types import NO_TOPIC_ID, BrokerId, LeaderEpoch, Offset
from tests.storage.conftest import NOW_MS, PARTITION, TOPIC_ID, Kit

DIRECTORY = "/logs/orders-0"
CONFIG = TopicConfig(segment_bytes=1000)


def disk() -> MemoryFiles:
    files = MemoryFiles()
    files.make_directory("/logs")
    files.sync_directory("/")
    return files


def create(files: Files) -> Log:
    log = Log.create(files, DIRECTORY, PARTITION, CONFIG, now_ms=NOW_MS, random=Random(7))
    log.assign_topic_id(TOPIC_ID)
    return log


def load(files: Files, recovery_point: int = 0, *, clean: bool = False) -> Log:
    found = LogToLoad(
        topic_partition=PARTITION,
        directory=DIRECTORY,
        recovery_point=Offset(recovery_point),
        log_start_offset=Offset(0),
        high_watermark=Offset(0),
        needs_recovery=not clean,
    )
    return Log.load(files, found, CONFIG, now_ms=NOW_MS, random=Random(7))


def write(log: Log, count: int = 3) -> None:
    log.flusher.begin_epoch(LeaderEpoch(4), log.log_end_offset)
    for _ in range(count):
        Kit.append(log, *(b"value",) * 5, epoch=4)


def write_epochs(files: Files, log: Log) -> None:
    """As the node and its driver do."""
    table = log.leader_epochs.prepare()
    assert EpochsPlan((table,), *log.location.unsynced()).carry_out(files)
    log.location.note_durable()
    assert log.leader_epochs.adopt(table)
    assert NamesPlan((log.directory,)).carry_out(files)
    log.flusher.epochs_written(table)


def test_making_a_log_syncs_nothing() -> None:
    files = disk()
    calls: list[str] = []
    files.on_call = lambda operation, _path: calls.append(operation)
    create(files)
    assert not [each for each in calls if "sync" in each]


def test_a_process_that_ends_loses_nothing() -> None:
    files = disk()
    write(create(files))
    loaded = load(files)
    assert (loaded.topic_id, loaded.log_end_offset) == (TOPIC_ID, 15)


@pytest.mark.parametrize("seed", range(200))
def test_after_a_power_failure_records_without_a_topic_are_gone(seed: int) -> None:
    files = disk()
    write(create(files))
    crashed = files.crash_clone(Random(seed))
    loaded = load(crashed)
    assert loaded.topic_id in (TOPIC_ID, NO_TOPIC_ID)
    if loaded.topic_id == NO_TOPIC_ID:
        assert loaded.is_empty
        loaded.assign_topic_id(TOPIC_ID)
    write(loaded)
    loaded.check()


def test_both_ends_of_a_power_failure_are_reached() -> None:
    """Of the seeds above: the id survives or not, and records without it were dropped."""
    files = disk()
    write(create(files))
    found = [load(files.crash_clone(Random(seed))) for seed in range(200)]
    assert {each.topic_id for each in found} == {TOPIC_ID, NO_TOPIC_ID}
    assert any("none of it was synced" in str(each.recovery_report.notes) for each in found)


@pytest.mark.parametrize("seed", range(100))
@pytest.mark.parametrize("steps", [1, 2])
def test_what_was_flushed_has_its_topic(seed: int, steps: int) -> None:
    """Epochs first and then records, as the node does it, or both by one plan."""
    files = disk()
    log = create(files)
    write(log)
    if steps == 2:
        write_epochs(files, log)
        assert load(files.crash_clone(Random(seed))).topic_id == TOPIC_ID
    plan = log.flusher.flush_plan()
    assert plan is not None
    assert plan.carry_out(files)
    assert log.flusher.mark_flushed(plan, NOW_MS)
    assert log.location.is_durable
    loaded = load(files.crash_clone(Random(seed)), recovery_point=15)
    assert (loaded.topic_id, loaded.log_end_offset) == (TOPIC_ID, 15)


@pytest.mark.parametrize("seed", range(100))
def test_a_table_of_epochs_is_not_durable_before_the_topic(seed: int) -> None:
    """A truncation writes the table at once: the id must be there before."""
    files = disk()
    log = create(files)
    write(log)
    log.flusher.begin_epoch(LeaderEpoch(5), Offset(15))
    log.truncation.truncate_to(Offset(10), NOW_MS)
    crashed = files.crash_clone(Random(seed))
    loaded = load(crashed)
    assert loaded.topic_id == TOPIC_ID or loaded.is_empty


@pytest.mark.parametrize("seed", range(50))
def test_a_clean_end_makes_an_empty_log_durable(seed: int) -> None:
    files = disk()
    create(files).close_clean()
    assert load(files.crash_clone(Random(seed)), clean=True).topic_id == TOPIC_ID


def test_after_the_process_ended_the_next_one_syncs_what_it_found() -> None:
    files = disk()
    write(create(files))
    plan = load(files).flusher.flush_plan()
    assert plan is not None
    assert plan.carry_out(files)
    for seed in range(50):
        crashed = files.crash_clone(Random(seed))
        assert load(crashed, recovery_point=15).topic_id == TOPIC_ID


def test_a_damaged_topic_id_of_a_log_that_was_flushed_is_refused() -> None:
    files = disk()
    log = create(files)
    write(log)
    log.close_clean()
    file = files.open(f"{DIRECTORY}/partition.metadata")
    file.truncate(3)
    for clean in (True, False):
        with pytest.raises(DamagedCheckpoint, match=r"partition\.metadata"):
            load(files, recovery_point=15, clean=clean)


def test_a_log_of_an_old_kafka_without_a_topic_id_keeps_its_records() -> None:
    """Until Kafka 2.8 there was no such file; but there were leader epochs."""
    files = disk()
    log = Log.create(files, DIRECTORY, PARTITION, CONFIG, now_ms=NOW_MS, random=Random(7))
    write(log)
    log.leader_epochs.flush_assigned()
    loaded = load(files)
    assert (loaded.topic_id, loaded.log_end_offset) == (NO_TOPIC_ID, 15)
    loaded.assign_topic_id(TOPIC_ID)
    assert load(files.crash_clone(Random(3))).topic_id == TOPIC_ID


def test_what_a_lost_directory_was_promised_does_not_hold_for_its_successor() -> None:
    """I-07: else its first records counted as synced, and as committed, after a power failure."""
    files = disk()
    directory: LogDirectory[Log] = LogDirectory(files, "/logs")
    directory.open(BrokerId(1), "cluster")
    directory.load_logs(lambda found: load(files))
    log = create(files)
    write(log)
    log.advance_high_watermark_to(Offset(15))
    directory.add(log)
    directory.set_cleaner_offset(PARTITION, Offset(5))
    assert directory.close_clean(broker_epoch=1)
    files.remove_tree(DIRECTORY)
    again: LogDirectory[Log] = LogDirectory(files, "/logs")
    again.open(BrokerId(1), "cluster")
    again.load_logs(lambda found: load(files))
    assert not again.logs
    again.finish_forgetting()
    for table in (RECOVERY_POINTS, HIGH_WATERMARKS, CLEANER_OFFSETS):
        assert not OffsetCheckpoint(files, f"/logs/{table}").read()
