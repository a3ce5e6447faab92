"""Small files joined and orphans removed, without a trace in the rows or the frontier."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from strandline.lakehouse.locations.errors import StoreTrouble
from strandline.lakehouse.pipeline.keeping import Keeper
from strandline.lakehouse.pipeline.options import RunOptions
from strandline.lakehouse.tables import iceberg_upkeep
from strandline.lakehouse.tables import store as store_module
from strandline.lakehouse.tables.backend import Conflict
from strandline.lakehouse.tables.caring import care_for
from strandline.lakehouse.tables.committing import REPLAYED
from strandline.lakehouse.tables.iceberg import IcebergSnapshot
from strandline.lakehouse.tables.parts import here
from strandline.lakehouse.tables.store import open_store
from strandline.lakehouse.tables.transforms import parse_transform
from tests.lakehouse.tables.conftest import MakeTable
from tests.lakehouse.tables.table_world import TableWorld

FAR = 4_000_000_000_000
"""A wall time beyond every file's age, in milliseconds."""


def filled(make_table: MakeTable, batches: int = 6) -> TableWorld:
    """Batches of a good row, a bad one and a late one, in two partitions, and growing columns.

    The first batch has no watermark before it, so that none of its rows is late.
    """
    table = make_table(
        columns={"k": "string"},
        partition_by=(parse_transform("k"),),
        event_time="t",
        watermark_ms=0,
    )
    for number in range(batches):
        value = {"k": "ab"[number % 2], "t": 1000 + number, f"c{number}": number}
        table.batch("q", number, [value, b"bad", {"t": 1, "k": "a"}], start=3 * number)
    return table


def test_joining_files_changes_nothing_but_the_files(make_table: MakeTable) -> None:
    table = filled(make_table)
    before = {side: table.rows(side) for side in (None, "dead_letters", "late")}
    state = table.store.state()
    result = table.store.compact(min_files=2)
    assert (result.files_before, result.files_after) == (6 + 6 + 5, 2 + 1 + 1)
    after = {side: table.rows(side) for side in before}
    assert after == before
    assert len(table.store.files()) == 2
    assert table.reopen().state().frontiers == state.frontiers
    assert table.store.state().watermark_us == state.watermark_us
    assert table.store.history()[0].kind == "compaction"
    assert table.batch("q", 6, [{"t": 5000}], start=18).rows == 1
    assert table.store.compact(min_files=5).files_before == 0


def test_what_a_batch_adds_meanwhile_stays(
    make_table: MakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(make_table)
    other = open_store(table.spec)
    joined = other._maintenance._join

    def join_late(*arguments: Any) -> object:
        result = joined(*arguments)
        if arguments[0] is None:
            table.batch("q", 6, [{"t": 5000, "k": "a"}, b"bad"], start=18)
        return result

    monkeypatch.setattr(other._maintenance, "_join", join_late)
    assert other.compact(min_files=2).files_before
    assert table.offsets() == [0, 2, 3, 6, 9, 12, 15, 18]
    assert table.letters() == [1, 4, 7, 10, 13, 16, 19]


def test_two_at_once_join_a_file_once(
    make_table: MakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(make_table)
    other = open_store(table.spec)
    commit = other._maintenance._replacing.commit

    def commit_late(*arguments: Any, **named: Any) -> object:
        table.store.compact(min_files=2)
        return commit(*arguments, **named)

    monkeypatch.setattr(other._maintenance._replacing, "commit", commit_late)
    assert other.compact(min_files=2).files_before == 0
    assert table.offsets() == [0, 2, 3, 6, 9, 12, 15]
    assert len(table.store.files()) == 2


def test_a_merge_by_key_meanwhile_undoes_the_joining_of_its_own_bucket_only(
    make_table: MakeTable,
) -> None:
    table = make_table(mode="upsert", buckets=2, columns={"n": "long"})
    keys = [b"%d" % each for each in range(20)]
    for number in range(3):
        table.batch("q", number, [{"n": 0}] * 20, start=20 * number, keys=keys)
        keys = [b"%d%s" % (number, each) for each in keys]  # new ones: no file is replaced
    other = open_store(table.spec)

    def changed_meanwhile(
        work: Callable[[Any], Any], parts: Sequence[Any], **named: Any
    ) -> list[Any]:
        done = here(work, parts, **named)
        table.batch("q", 3, [{"n": 1}], start=60, keys=[b"7"])
        return done

    other.carry_out_by(changed_meanwhile)
    before = len(other.files())
    assert before == 6
    result = other.compact(min_files=2)
    assert (result.files_before, result.files_after) == (3, 1)
    assert table.offsets() == sorted({*range(61)} - {7})
    live = {each.path.local for each in table.store.files()}
    left = {
        each
        for each in table.spec.directory().local.rglob("*.parquet")
        if "compact" in each.name and "_delta_log" not in each.parts
    }
    assert len(left & live) == 1
    assert left <= live, "what was joined in vain is gone"


def test_vacuum_removes_old_unreferenced_files(make_table: MakeTable) -> None:
    table = filled(make_table, batches=2)
    abandoned = table.task([{"t": 9000, "k": "a"}, b"bad"], start=6)
    paths = {str(table.spec.directory() / abandoned.files[0].path)}
    paths.add(str(table.spec.directory("dead_letters") / abandoned.dead_letters[0].path))
    newest_ms = max(os.stat(path).st_mtime_ns for path in paths) // 1_000_000
    assert table.store.vacuum(now_ms=newest_ms, older_than_ms=60_000) == []
    assert set(table.store.vacuum(now_ms=FAR, older_than_ms=0, dry_run=True)) >= paths
    assert all(Path(path).exists() for path in paths)
    assert set(table.store.vacuum(now_ms=FAR, older_than_ms=0)) >= paths
    assert not any(Path(path).exists() for path in paths)
    assert table.offsets() == [0, 2, 3]
    assert table.letters() == [1, 4]
    assert table.late() == [5]


def test_replaced_files_age_from_their_removal(make_table: MakeTable) -> None:
    table = filled(make_table, batches=2)
    old = [item.path.local for item in table.store.files("dead_letters")]
    for path in old:
        os.utime(path, (0, 0))
    table.store.compact(min_files=2)
    removed_ms = min(path.stat().st_mtime_ns for path in old) // 1_000_000
    assert removed_ms > 0


def test_what_another_process_has_removed_is_no_orphan(
    make_table: MakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the listing of a directory and the look at its files."""
    table = filled(make_table, batches=2)
    gone = table.spec.directory().local / "gone.parquet"
    left = table.spec.directory().local / "left.parquet"
    gone.symlink_to("nowhere")
    left.touch()
    assert table.store.vacuum(now_ms=FAR, older_than_ms=0) == [str(left)]


def test_trouble_of_a_shortening_is_none_of_the_batch(
    make_table: MakeTable, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is committed. Errors of a disk, and another writer that was faster, are left for later."""
    monkeypatch.setattr(store_module, "TIDY_EVERY", 1)
    table = make_table()
    for number, error in enumerate((OSError("no room"), Conflict("no luck"), StoreTrouble("no"))):
        with monkeypatch.context() as failing:
            failing.setattr(table.store.backend, "tidy", raising(error))
            assert table.batch("q", number, [{"a": number}], start=number).rows == 1
        assert f"The metadata of table flights is not shortened now: {error}" in caplog.text
    assert table.offsets() == [0, 1, 2]


def test_another_writer_that_is_first_does_not_end_the_care(
    make_table: MakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(keep_history_ms=3_600_000, vacuum_ms=3_600_000)
    monkeypatch.setattr(table.store.backend, "tidy", raising(Conflict("The table has moved on.")))
    assert care_for(table.store, now_ms=FAR).files == 0


def test_a_disk_without_room_ends_the_care_and_not_the_run(
    make_table: MakeTable, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table = make_table(vacuum_ms=3_600_000)
    store = open_store(table.spec)
    keeper = Keeper(store, RunOptions(bootstrap="nowhere:1"), lambda _: None)
    monkeypatch.setattr(store, "vacuum", raising(OSError("No space left on device")))
    keeper.maybe_keep()
    assert "The table is not cared for now: No space left" in caplog.text


def raising(error: Exception) -> Callable[..., None]:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


def test_snapshots_that_have_a_name_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Those of tags and of branches; Iceberg would let none of them be forgotten."""
    monkeypatch.setattr(iceberg_upkeep, "SNAPSHOTS_KEPT", 2)
    table = TableWorld(tmp_path / "table", format="iceberg")
    for number in range(3):
        table.batch(f"run-{number}", 0, [{"a": number}], start=number)
    snapshot = table.store.backend.load()
    assert isinstance(snapshot, IcebergSnapshot)
    first, second, *_ = [each.snapshot_id for each in snapshot.table.metadata.snapshots]
    snapshot.table.manage_snapshots().create_tag(first, "q4").create_branch(second, "b").commit()
    for number in range(3, 7):
        table.batch(f"run-{number}", 0, [{"a": number}], start=number)
    table.store.checkpoint()
    left = table.reopen().backend.load()
    assert isinstance(left, IcebergSnapshot)
    ids = {each.snapshot_id for each in left.table.metadata.snapshots}
    assert {first, second} <= ids
    assert len(ids) == 2 + 2
    assert table.store.committed("run-0") == 0, "its snapshot is kept"
    assert table.store.committed("run-3") is None
    assert not caplog.records


def test_a_shortened_history_forgets_nothing_that_counts(
    make_table: MakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "TIDY_EVERY", 2)
    monkeypatch.setattr(iceberg_upkeep, "SNAPSHOTS_KEPT", 2)
    table = make_table()
    for number in range(5):
        table.batch("q", number, [{"a": number}, b"bad"], start=2 * number)
    if table.spec.format == "iceberg":
        assert len(table.store.history()) == 3
    table.reopen()
    assert table.batch("q", 4, [{"a": 0}], start=8).outcome == REPLAYED
    assert table.batch("q", 5, [{"a": 0}], start=10).rows == 1
    assert table.offsets() == [0, 2, 4, 6, 8, 10]
    assert table.letters() == [1, 3, 5, 7, 9]
