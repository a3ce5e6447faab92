"""What may differ between replicas, and what a crash may leave, is no finding."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.errors import InvalidSetting
from strandline.storage.log_directory import HIGH_WATERMARKS
from strandline.storage.real_files import RealFile, RealFiles
from strandline.storage.verify.directories import find_log_directories, take_inventory
from strandline.storage.verify.partition import audit_partition
from strandline.types import Offset
from tests.storage.verify.replicas import (
    ACCOUNTS,
    COMPACT,
    FILES,
    NOW_MS,
    ORDERS,
    Replicas,
    accounts,
    batch,
    orders,
)


@pytest.fixture
def replicas(tmp_path: Path) -> Replicas:
    return Replicas(tmp_path / "data")


def test_equal_replicas_are_sound(replicas: Replicas) -> None:
    replicas.write(ORDERS, orders())
    replicas.finish()
    (report,) = replicas.reports()
    assert report.findings == []
    assert report.notes == []
    assert (report.brokers, report.start_offset, report.end_offset) == ((1, 2, 3), 0, 180)
    assert report.records == 3 * 180


def test_retention_may_have_come_further_on_one_replica(replicas: Replicas) -> None:
    replicas.write(ORDERS, orders())
    for broker, start in ((1, 37), (2, 90)):
        log = replicas.logs[broker, ORDERS]
        log.advance_high_watermark_to(log.log_end_offset)
        log.retention.delete_records_to(Offset(start))
        log.retention.drop_below_start(NOW_MS)
    replicas.finish()
    assert replicas.audit() == []


def test_a_crash_may_bring_deleted_records_back_in_front_of_the_table_of_epochs(
    replicas: Replicas,
) -> None:
    replicas.write(ORDERS, orders())
    log = replicas.logs[2, ORDERS]
    log.advance_high_watermark_to(log.log_end_offset)
    log.retention.delete_records_to(Offset(76))
    log.leader_epochs.flush()
    replicas.finish(clean=False, log_starts={2: 0})
    assert (replicas.directory(2) / "leader-epoch-checkpoint").read_text() == "0\n2\n3 76\n4 132\n"
    assert replicas.audit() == []


def test_a_follower_may_lag_and_have_what_it_would_lose(replicas: Replicas) -> None:
    """Broker 3 led once, has records that no other replica got, and was stopped before it knew."""
    replicas.write(ORDERS, orders())
    replicas.write(ORDERS, [batch(180, epoch=4)], brokers=[3])
    replicas.write(ORDERS, [batch(180, epoch=5, prefix=b"w")], brokers=[1, 2])
    replicas.finish(high_watermarks={1: 183, 2: 180, 3: 180})
    assert replicas.audit() == []


@pytest.mark.parametrize("tail", [b"\0" * 5000, b"garbage" * 40, batch(180)[:-9], b"\xff"])
def test_what_a_crash_leaves_above_the_high_watermark_is_not_judged(
    replicas: Replicas, tail: bytes
) -> None:
    replicas.write(ORDERS, orders())
    replicas.finish(clean=False)
    path = replicas.segments(2)[-1]
    with path.open("ab") as log:
        log.write(tail)
    assert replicas.audit() == []


def test_damage_above_the_high_watermark_is_judged_after_a_clean_stop_only(
    tmp_path: Path,
) -> None:
    for name, clean in (("clean", True), ("crashed", False)):
        replicas = Replicas(tmp_path / name)
        replicas.write(ORDERS, orders())
        replicas.finish(clean=clean, high_watermarks={2: 177})
        path = replicas.segments(2)[-1]

        def change(data: bytearray) -> None:
            data[-3] ^= 1

        replicas.edit(path, change)
        assert [each.offset for each in replicas.audit()] == ([177] if clean else [])


@pytest.mark.parametrize("compacted", [(), (1,), (1, 2), (1, 2, 3)])
@pytest.mark.parametrize("with_cleaner_offsets", [True, False])
def test_compaction_may_have_come_further_on_one_replica(
    replicas: Replicas, compacted: tuple[int, ...], with_cleaner_offsets: bool
) -> None:
    """Without the cleaner's table, as after a crash before it was written, batches show it."""
    rounds = accounts()
    replicas.write(ACCOUNTS, rounds[:20], config=COMPACT)
    for broker in compacted:
        replicas.compact(broker)
    replicas.write(ACCOUNTS, rounds[20:], config=COMPACT)
    for broker in compacted[:1]:
        replicas.compact(broker)
    replicas.finish(with_cleaner_offsets=with_cleaner_offsets)
    (report,) = replicas.reports()
    assert report.findings == []
    assert report.notes == []


def test_an_interrupted_swap_of_compacted_segments_is_seen_as_finished(replicas: Replicas) -> None:
    replicas.write(ACCOUNTS, accounts(), config=COMPACT)
    replicas.compact(1)
    replicas.finish(clean=False)
    first = replicas.segments(1, ACCOUNTS)[0]
    for kind in (".log", ".index", ".timeindex"):
        path = first.with_suffix(kind)
        path.rename(path.with_name(path.name + ".swap"))
    # What it replaces, and a later compaction that was not decided.
    other = replicas.directory(3, ACCOUNTS)
    first.write_bytes((other / first.name).read_bytes())
    (first.parent / f"{154:020d}.log.cleaned").write_bytes(b"half")
    assert replicas.audit() == []


def test_one_replica_alone_is_checked_by_itself(replicas: Replicas) -> None:
    replicas.write(ORDERS, orders())
    replicas.finish()
    assert replicas.audit(replicas.home / "broker-2") == []


def test_a_replica_without_a_high_watermark_is_noted(replicas: Replicas) -> None:
    replicas.write(ORDERS, orders())
    replicas.finish(clean=False)
    (Path(replicas.broker_directory(1)) / HIGH_WATERMARKS).unlink()
    (report,) = replicas.reports()
    assert report.findings == []
    assert report.notes == [
        "Nothing tells the high watermark of broker 1's replica, so it was not compared."
    ]


def test_a_replica_without_segments_is_empty(replicas: Replicas) -> None:
    """So a broker leaves the directory that is killed before it has made the first one."""
    replicas.write(ORDERS, orders())
    replicas.finish(clean=False, high_watermarks={1: 0, 2: 180, 3: 180})
    for each in replicas.directory(1).iterdir():
        each.unlink()
    (report,) = replicas.reports()
    assert (report.findings, report.notes) == ([], [])


def test_a_note_says_what_is_not_judged_where_there_is_something(replicas: Replicas) -> None:
    replicas.write(ORDERS, orders())
    replicas.finish(clean=False, high_watermarks={1: 180, 2: 3, 3: 0})
    (report,) = replicas.reports()
    assert report.findings == []
    assert [note.partition(": ")[0] for note in report.notes] == [
        "Broker 2 is running, or was not stopped cleanly",
        "Broker 3 is running, or was not stopped cleanly",
    ]
    for path in replicas.segments(3):
        path.write_bytes(bytes(len(path.read_bytes())))  # room that nothing was written to
    (report,) = replicas.reports()
    assert [note.partition(": ")[0] for note in report.notes] == [
        "Broker 2 is running, or was not stopped cleanly",
    ]


def test_directories_must_be_log_directories_of_different_replicas(
    replicas: Replicas, tmp_path: Path
) -> None:
    replicas.write(ORDERS, orders()[:3])
    replicas.finish()
    one = replicas.broker_directory(1)
    assert find_log_directories(FILES, [one, one]) == [one]
    for wrong, says in ((tmp_path, "no log directory"), (tmp_path / "not", "There is no")):
        with pytest.raises(InvalidSetting, match=says):
            find_log_directories(FILES, [str(wrong)])
    twin = tmp_path / "twin"
    twin.mkdir()
    for each in Path(one).iterdir():
        if each.is_file():
            (twin / each.name).write_bytes(each.read_bytes())
    (twin / "orders-0").mkdir()
    with pytest.raises(InvalidSetting, match="a copy of the other"):
        take_inventory(FILES, [one, str(twin)])
    assert not take_inventory(FILES, [one], frozenset({"nothing"})).partitions


class Restless(RealFiles):
    """A running broker's disk: each time that segments are listed, one has just been dropped."""

    def __init__(self, doomed: list[Path]) -> None:
        super().__init__()
        self.doomed = doomed

    def open(self, path: str, *, create: bool = False) -> RealFile:
        if self.doomed and path == str(self.doomed[0]):
            self.doomed.pop(0).unlink()
        return super().open(path, create=create)


@pytest.mark.parametrize(("dropped", "notes"), [(2, 0), (8, 1)])
def test_segments_that_go_while_they_are_read_are_no_findings(
    replicas: Replicas, dropped: int, notes: int
) -> None:
    replicas.write(ORDERS, orders())
    replicas.finish(clean=False)
    restless = Restless(replicas.segments(2)[:dropped])
    inventory = take_inventory(FILES, find_log_directories(FILES, [str(replicas.home)]))
    report = audit_partition(restless, ORDERS, inventory.partitions[ORDERS])
    assert report.findings == []
    assert len(report.notes) == notes
