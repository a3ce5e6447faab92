"""A log directory from first start to clean shutdown, with every disk call failing once."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

import pytest

from strandline.errors import StorageError
from strandline.storage.clean_shutdown import CleanShutdown
from strandline.storage.files import DiskFull, Files, LockHeld
from strandline.storage.flush_plan import ClosePlan
from strandline.storage.log_directory import CLEANER_OFFSETS, LogDirectory
from strandline.storage.log_to_load import LogToLoad
from strandline.storage.memory_files import MemoryFiles
from strandline.storage.meta_properties import ForeignDirectory
from strandline.storage.real_files import RealFiles
from strandline.types import BrokerId, Offset, TopicId, TopicPartition
from tests.storage.failing import failing_call

US = (BrokerId(1), "cluster-A")
HEX = "0123456789abcdef0123456789abcdef"
ORDERS = TopicPartition("orders", 0)
PAYMENTS = TopicPartition("pay.ments-eu", 11)
TOPIC_ID = TopicId(int=7)
LOG_END = Offset(1_000)


@dataclass
class FakeLog:
    """A log that remembers how it was loaded and does as it is told."""

    found: LogToLoad
    topic_partition: TopicPartition
    recovery_point: Offset
    log_start_offset: Offset
    high_watermark: Offset
    topic_id: TopicId = TOPIC_ID
    log_end_offset: Offset = LOG_END
    is_refused: bool = False
    close_failure: StorageError | None = None
    events: list[str] = field(default_factory=list)

    def begin_close(self) -> ClosePlan:
        return ClosePlan(MemoryFiles(), (), None, (), self.close_failure)

    def end_close(self, plan: ClosePlan) -> None:
        self.events.append(f"close {self.topic_partition}")
        if plan.failure is not None:
            raise plan.failure


Directory: TypeAlias = LogDirectory[FakeLog]


def load_log(found: LogToLoad) -> FakeLog:
    return FakeLog(
        found,
        found.topic_partition,
        found.recovery_point,
        found.log_start_offset,
        found.high_watermark,
    )


def opened(files: Files, path: str) -> Directory:
    directory: Directory = LogDirectory(files, path)
    assert directory.open(*US), directory.offline_reason
    return directory


def started(files: Files, path: str) -> Directory:
    directory = opened(files, path)
    assert directory.load_logs(load_log), directory.offline_reason
    return directory


def shutdown(broker_epoch: int, *logs: TopicPartition) -> CleanShutdown:
    """The marker beside these logs."""
    held = frozenset((TOPIC_ID, at.partition) for at in logs)
    return CleanShutdown(broker_epoch, logs=held)


@pytest.fixture(params=["memory", "real"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Files, str]:
    if request.param == "memory":
        return MemoryFiles(), "/var/data/logs"
    return RealFiles(), str(tmp_path / "var" / "logs")


def filled(files: Files, path: str) -> None:
    """A directory with two partitions, checkpoints that say something, and a crash."""
    directory = started(files, path)
    for topic_partition, log_start, recovery, watermark in (
        (ORDERS, 5, 100, 90),
        (PAYMENTS, 0, 7, 3),
    ):
        files.make_directory(f"{path}/{topic_partition}")
        log = load_log(
            LogToLoad(topic_partition, "", Offset(0), Offset(0), Offset(0), needs_recovery=True)
        )
        log.log_start_offset, log.high_watermark = Offset(log_start), Offset(watermark)
        log.recovery_point = Offset(recovery)
        directory.add(log)
    files.sync_directory(path)
    assert directory.write_recovery_points()
    assert directory.write_log_starts()
    assert directory.write_high_watermarks()
    directory.set_cleaner_offset(ORDERS, Offset(44))
    directory.close()


def test_the_first_start_makes_the_directory_ours(disk: tuple[Files, str]) -> None:
    files, path = disk
    directory = started(files, path)
    assert files.list_directory(path) == [".lock", "meta.properties"]
    assert directory.clean_shutdown is None
    assert directory.logs == {}
    assert directory.meta is not None
    assert (directory.meta.broker_id, directory.meta.cluster_id) == US


def test_checkpoints_are_kafkas_and_tell_the_next_start(disk: tuple[Files, str]) -> None:
    files, path = disk
    filled(files, path)
    assert files.read_bytes(f"{path}/recovery-point-offset-checkpoint") == (
        b"0\n2\norders 0 100\npay.ments-eu 11 7\n"
    )
    assert files.read_bytes(f"{path}/log-start-offset-checkpoint") == b"0\n1\norders 0 5\n"
    assert files.read_bytes(f"{path}/replication-offset-checkpoint") == (
        b"0\n2\norders 0 90\npay.ments-eu 11 3\n"
    )
    assert files.read_bytes(f"{path}/cleaner-offset-checkpoint") == b"0\n1\norders 0 44\n"

    directory = started(files, path)
    assert directory.logs[ORDERS].found == LogToLoad(
        ORDERS,
        f"{path}/orders-0",
        Offset(100),
        Offset(5),
        Offset(90),
        needs_recovery=True,
        cleaned_to=Offset(44),
    )
    assert directory.logs[PAYMENTS].found == LogToLoad(
        PAYMENTS, f"{path}/{PAYMENTS}", Offset(7), Offset(0), Offset(3), needs_recovery=True
    )
    assert directory.cleaner_offsets == {ORDERS: 44}


def test_a_clean_shutdown_saves_the_next_start_the_recovery(disk: tuple[Files, str]) -> None:
    files, path = disk
    filled(files, path)
    directory = started(files, path)
    directory.logs[ORDERS].recovery_point = Offset(120)
    assert directory.close_clean(17)
    again = started(files, path)
    assert again.clean_shutdown == shutdown(17, ORDERS, PAYMENTS)
    assert not files.exists(f"{path}/.kafka_cleanshutdown")
    assert not again.logs[ORDERS].found.needs_recovery
    assert again.logs[ORDERS].found.recovery_point == 120


def test_a_clean_shutdown_happens_in_order() -> None:
    files = MemoryFiles()
    filled(files, "/logs")
    directory = started(files, "/logs")
    events: list[str] = []
    for log in directory.logs.values():
        log.events = events
        log.recovery_point = log.high_watermark = log.log_start_offset = Offset(1000)

    def note(operation: str, path: str) -> None:
        if operation == "rename":
            events.append(path.removeprefix("/logs/").removesuffix(".tmp"))

    files.on_call = note
    assert directory.close_clean(1)
    assert events == [
        "replication-offset-checkpoint",
        "close orders-0",
        "close pay.ments-eu-11",
        "recovery-point-offset-checkpoint",
        "log-start-offset-checkpoint",
        ".kafka_cleanshutdown",
    ]


def test_a_crash_while_loading_counts_as_a_crash() -> None:
    files = MemoryFiles()
    filled(files, "/logs")
    assert started(files, "/logs").close_clean(17)
    opened(files, "/logs")
    for seed in range(20):
        assert opened(files.crash_clone(Random(seed)), "/logs").clean_shutdown is None


def test_one_process_at_a_time(disk: tuple[Files, str]) -> None:
    files, path = disk
    first = opened(files, path)
    other: Directory = LogDirectory(files, path)
    with pytest.raises(LockHeld):
        other.open(*US)
    assert other.offline_reason is None
    first.close()
    opened(files, path)


def test_another_brokers_directory_is_refused_and_unlocked(disk: tuple[Files, str]) -> None:
    files, path = disk
    assert started(files, path).close_clean(17)
    for broker_id, cluster_id in ((2, "cluster-A"), (1, "cluster-B")):
        directory: Directory = LogDirectory(files, path)
        with pytest.raises(ForeignDirectory):
            directory.open(BrokerId(broker_id), cluster_id)
    # The refusal must not cost the owner its clean shutdown.
    assert opened(files, path).clean_shutdown == shutdown(17)


def test_directories_are_sorted_by_name_and_foreign_ones_left_alone(
    disk: tuple[Files, str],
) -> None:
    files, path = disk
    names = [
        "orders-0",
        "pay.ments-eu-11",
        f"orders-1.{HEX}-delete",
        f"orders-2.{HEX}-stray",
        f"orders-3.{HEX}-future",
        "__cluster_metadata-0",
        "lost+found",
    ]
    for name in names:
        files.make_directory(f"{path}/{name}")
    files.open(f"{path}/bootstrap.checkpoint", create=True)
    files.open(f"{path}/notadirectory-0", create=True)
    directory = started(files, path)
    assert directory.contents.partitions == (ORDERS, PAYMENTS)
    assert directory.contents.deleted == (f"{path}/{names[2]}",)
    assert directory.contents.strays == (f"{path}/{names[3]}",)
    assert directory.contents.futures == (f"{path}/{names[4]}",)
    assert directory.contents.unknown == (f"{path}/{names[5]}", f"{path}/{names[6]}")
    for name in (names[3], *names[5:]):
        assert any(name in warning for warning in directory.warnings)
    assert set(directory.logs) == {ORDERS, PAYMENTS}
    assert set(directory.futures) == {TopicPartition("orders", 3)}
    for name in names:
        assert files.is_directory(f"{path}/{name}")
    assert directory.offline_reason is None


def test_a_directory_of_kraft_opens(disk: tuple[Files, str]) -> None:
    files, path = disk
    files.make_directory(f"{path}/orders-0")
    files.make_directory(f"{path}/__cluster_metadata-0")
    meta = b"#\n#Sat Nov 21 02:10:00 UTC 2026\ncluster.id=cluster-A\n"
    meta += b"directory.id=t7xrRA7xSLyKjbfFqXnkUg\nnode.id=1\nversion=1\n"
    files.write_atomically(f"{path}/meta.properties", meta)
    files.write_atomically(f"{path}/.kafka_cleanshutdown", b'{"version":0,"brokerEpoch":9}')
    files.write_atomically(f"{path}/recovery-point-offset-checkpoint", b"0\n1\norders 0 33\n")
    directory = started(files, path)
    assert directory.clean_shutdown == CleanShutdown(9)
    assert directory.logs[ORDERS].found.recovery_point == 33
    assert files.read_bytes(f"{path}/meta.properties") == meta


@pytest.mark.parametrize(
    "name", ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint"]
)
def test_tables_that_can_be_done_without_are_ignored_when_damaged(name: str) -> None:
    files = MemoryFiles()
    filled(files, "/logs")
    files.write_atomically(f"/logs/{name}", b"0\n7\n")
    directory = started(files, "/logs")
    assert any(name in warning for warning in directory.warnings)
    found = directory.logs[ORDERS].found
    assert 0 in (found.recovery_point, found.log_start_offset)


@pytest.mark.parametrize("name", ["replication-offset-checkpoint", "cleaner-offset-checkpoint"])
def test_other_damaged_tables_take_the_directory_offline(name: str) -> None:
    files = MemoryFiles()
    filled(files, "/logs")
    files.write_atomically(f"/logs/{name}", b"1\n0\n")
    directory: Directory = LogDirectory(files, "/logs")
    assert not directory.open(*US)
    assert directory.offline_reason is not None
    assert name in directory.offline_reason


def test_nothing_is_written_before_every_log_is_loaded() -> None:
    """A table of the logs loaded so far would lose what is known of the others (KAFKA-1647)."""
    files = MemoryFiles()
    filled(files, "/logs")
    names = [n for n in files.list_directory("/logs") if n.endswith("checkpoint")]
    before = {name: files.read_bytes(f"/logs/{name}") for name in names}

    def fail_second(found: LogToLoad) -> FakeLog:
        if found.topic_partition == PAYMENTS:
            raise StorageError("Cannot read: it is a test.")
        return load_log(found)

    directory = opened(files, "/logs")
    assert directory.remaining_to_load == 2
    assert not directory.load_logs(fail_second)
    assert directory.remaining_to_load == 1
    assert directory.offline_reason == "Cannot read: it is a test."
    assert not directory.write_recovery_points()
    assert not directory.write_log_starts()
    assert not directory.write_high_watermarks()
    assert not directory.close_clean(1)
    assert {name: files.read_bytes(f"/logs/{name}") for name in names} == before
    assert not files.exists("/logs/.kafka_cleanshutdown")


def test_r18_a_shutdown_before_loading_is_clean_only_if_the_last_one_was() -> None:
    """KAFKA-15375."""
    files = MemoryFiles()
    filled(files, "/logs")
    assert not opened(files, "/logs").close_clean(1)
    assert not files.exists("/logs/.kafka_cleanshutdown")
    assert started(files, "/logs").close_clean(2)
    assert opened(files, "/logs").close_clean(3)
    assert opened(files, "/logs").clean_shutdown == shutdown(3, ORDERS, PAYMENTS)


def test_a_log_that_fails_to_close_spoils_the_clean_shutdown_of_its_directory_only() -> None:
    files = MemoryFiles()
    filled(files, "/logs")
    directory = started(files, "/logs")
    directory.logs[ORDERS].close_failure = StorageError("Cannot sync: it is a test.")
    assert not directory.close_clean(1)
    assert directory.offline_reason == "Cannot sync: it is a test."
    assert directory.logs[PAYMENTS].events == [f"close {PAYMENTS}"]
    assert not files.exists("/logs/.kafka_cleanshutdown")
    assert opened(files, "/logs").clean_shutdown is None


def test_forgotten_partitions_leave_every_table_durably() -> None:
    files = MemoryFiles()
    filled(files, "/logs")
    directory = started(files, "/logs")
    directory.forget([ORDERS])
    after = started(files.crash_clone(Random(1)), "/logs")
    found = after.logs[ORDERS].found
    assert (found.recovery_point, found.log_start_offset, found.high_watermark) == (0, 0, 0)
    assert after.cleaner_offsets == {}
    assert after.logs[PAYMENTS].found.recovery_point == 7


def test_a_directory_that_cannot_be_loaded_for_want_of_space_is_offline() -> None:
    """Neither loaded nor offline, its partitions would be made anew elsewhere (I-08, KIP-112)."""
    files = MemoryFiles()
    files.make_directory("/data")
    directory: Directory = LogDirectory(files, "/data")
    files.capacity_bytes = 0
    assert not directory.open(*US)
    assert directory.offline_reason is not None
    assert "No space left" in directory.offline_reason
    directory.close()
    files.capacity_bytes = 1 << 20
    files.make_directory("/data/orders-0")
    again: Directory = LogDirectory(files, "/data")
    assert again.open(*US)

    def no_room(found: LogToLoad) -> FakeLog:
        raise DiskFull(f"Cannot append {found.topic_partition}: No space left on device.")

    assert not again.load_logs(no_room)
    assert again.offline_reason is not None
    assert "No space left" in again.offline_reason


def test_an_offline_directory_stays_offline_with_its_first_reason() -> None:
    files = MemoryFiles()
    filled(files, "/logs")
    directory = started(files, "/logs")
    directory.go_offline("The disk is gone.")
    directory.go_offline("Another thing.")
    for operation in (
        directory.write_recovery_points,
        directory.write_log_starts,
        directory.write_high_watermarks,
        lambda: directory.set_cleaner_offset(ORDERS, Offset(1)),
        lambda: directory.forget([PAYMENTS]),
    ):
        with pytest.raises(StorageError, match="The disk is gone"):
            operation()
    assert not directory.load_logs(load_log)
    assert not directory.close_clean(1)
    assert directory.offline_reason == "The disk is gone."


# ── every disk call failing, and a crash at every one ──────────────────────────────────────────


def whole_life(files: MemoryFiles, directory: Directory) -> bool:
    """Open, load, move the offsets, shut down cleanly. Whether all of it worked."""
    if not (directory.open(*US) and directory.load_logs(load_log)):
        return False
    for log in directory.logs.values():
        log.recovery_point = log.high_watermark = log.log_start_offset = Offset(1000)
    return directory.close_clean(17)


def calls_of_a_life() -> int:
    files = MemoryFiles()
    filled(files, "/logs")
    calls: list[str] = []
    files.on_call = lambda operation, _path: calls.append(operation)
    assert whole_life(files, LogDirectory(files, "/logs"))
    return len(calls)


CALLS = calls_of_a_life()
OLD_ORDERS, NEW_ORDERS = (100, 5, 90), (1000, 1000, 1000)


@pytest.mark.parametrize("calls", range(CALLS + 1))
def test_any_failing_call_is_survived_with_old_or_new_tables(calls: int) -> None:
    files = MemoryFiles()
    filled(files, "/logs")
    files.on_call = failing_call(calls + 1, sticky=True)
    directory: Directory = LogDirectory(files, "/logs")
    clean = whole_life(files, directory)
    assert clean == (calls == CALLS)
    assert (directory.offline_reason is None) == clean
    for image in (files.kill_clone(), *(files.crash_clone(Random(seed)) for seed in range(8))):
        after = started(image, "/logs")
        found = after.logs[ORDERS].found
        offsets = (found.recovery_point, found.log_start_offset, found.high_watermark)
        for now, old, new in zip(offsets, OLD_ORDERS, NEW_ORDERS, strict=True):
            assert now in (old, new)
        if not found.needs_recovery:
            assert offsets == NEW_ORDERS
        if clean:
            assert offsets == NEW_ORDERS
            assert not found.needs_recovery


class CaseIgnoringFiles(MemoryFiles):
    """A file system that keeps the case of names and finds them by any, as APFS and NTFS do."""

    def find(self, path: str) -> Any:
        node: Any = self.root
        for name in filter(None, path.split("/")):
            names = {each.lower(): below for each, below in getattr(node, "names", {}).items()}
            node = names.get(name.lower())
        return node


def test_a_file_system_that_ignores_case_is_noticed(disk: tuple[Files, str]) -> None:
    files, path = disk
    assert not started(files, path).ignores_case
    assert started(CaseIgnoringFiles(), "/data").ignores_case


def test_a_file_of_the_probed_name_is_no_sign_that_case_is_ignored(disk: tuple[Files, str]) -> None:
    files, path = disk
    files.make_directory(path)
    files.open(f"{path}/.LOCK", create=True)
    assert not started(files, path).ignores_case


def test_a_cleaner_offset_that_could_not_be_lowered_is_lowered_later() -> None:
    """The table kept the higher one: after a crash, new records below it counted as compacted."""
    files = MemoryFiles()
    directory = started(files, "/logs")
    log = load_log(LogToLoad(ORDERS, "", Offset(0), Offset(0), Offset(0), needs_recovery=True))
    files.make_directory(f"/logs/{ORDERS}")
    directory.add(log)
    directory.set_cleaner_offset(ORDERS, Offset(44))
    log.log_end_offset = Offset(20)

    def fill(operation: str, path: str) -> None:
        if CLEANER_OFFSETS in path:
            raise DiskFull(f"Cannot {operation} {path}: No space left on device.")

    files.on_call = fill
    for _ in range(2):
        with pytest.raises(DiskFull):
            directory.settle_cleaner_offset(log)
    files.on_call = None
    directory.settle_cleaner_offset(log)
    assert directory.cleaner_offsets[ORDERS] == 20
    directory.close()
    assert opened(files, "/logs").cleaner_offsets[ORDERS] == 20
