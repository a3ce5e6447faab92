"""E12 (files that went to another machine's disk): what is not there is not committed, and told."""

from __future__ import annotations

import os
import re
import shutil
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from strandline.lakehouse.deadletters.replaying import replay
from strandline.lakehouse.tables.definition import DEAD_LETTERS, LATE
from strandline.lakehouse.tables.errors import BadTable, FilesMissing
from strandline.lakehouse.tables.identity import BatchIdentity, OffsetRange
from strandline.lakehouse.tables.made import MADE_FILE
from strandline.lakehouse.tables.presence import absent_files
from strandline.lakehouse.tables.spec import save_spec
from strandline.lakehouse.tables.store import drop_table, open_store
from strandline.lakehouse.tables.written import TaskWrite
from tests.lakehouse.tables.conftest import MakeTable
from tests.lakehouse.tables.table_world import TOPIC, TableWorld, Value

VALUES: list[Value] = [{"a": 1, "new": 2}, b"no JSON"]


def commit(table: TableWorld, written: TaskWrite, count: int) -> None:
    identity = BatchIdentity("q", 0, (OffsetRange(TOPIC, 0, 0, count),))
    table.store.commit(identity, [written])


def paths_of(table: TableWorld, written: TaskWrite) -> dict[str, Path]:
    """The one file of the rows, and that of the dead letters."""
    [rows], [letters] = written.files, written.dead_letters
    return {
        "rows": table.spec.directory().local / rows.path,
        "letters": table.spec.directory(DEAD_LETTERS).local / letters.path,
    }


@pytest.mark.parametrize("mode", ["append", "upsert"])
@pytest.mark.parametrize("which", ["rows", "letters"])
def test_e12_a_batch_whose_file_is_not_there_is_refused_and_nothing_is_committed(
    make_table: MakeTable, mode: str, which: str
) -> None:
    table = make_table(mode=mode)
    before = table.store.state()
    written = table.task(VALUES, keys=[b"x", b"y"])
    paths_of(table, written)[which].unlink()
    elsewhere = replace(written, host="worker-7")
    with pytest.raises(FilesMissing) as refused:
        commit(table, TaskWrite.from_json(elsewhere.to_json()), len(VALUES))
    said = str(refused.value)
    assert "A task on host worker-7 wrote" in said
    assert str(paths_of(table, written)[which]) in said
    assert socket.gethostname() in said
    assert "--tables" in said
    table.reopen()
    assert table.store.state() == before, "not even a column came"
    assert (table.rows(), table.store.history()) == ([], [])
    assert table.store.discard([written]) == 1, "what is there of the batch can be removed"
    commit(table, table.task(VALUES, keys=[b"x", b"y"]), len(VALUES))
    assert (table.offsets(), table.letters()) == ([0], [1])


def test_e12_late_rows_that_are_not_there_are_refused(make_table: MakeTable) -> None:
    table = make_table(event_time="at", watermark_ms=0)
    table.batch("q", 0, [{"at": "2026-03-01T00:00:00Z"}])
    written = table.task([{"at": "2026-02-01T00:00:00Z"}], start=1)
    [late] = written.late
    (table.spec.directory(LATE).local / late.path).unlink()
    identity = BatchIdentity("q", 1, (OffsetRange(TOPIC, 0, 1, 2),))
    with pytest.raises(FilesMissing, match="it is not there"):
        table.store.commit(identity, [written])
    assert table.reopen().state().sequence == 1


def test_e12_a_file_of_another_size_or_footer_is_refused(make_table: MakeTable) -> None:
    table = make_table()
    written = table.task([{"a": 1}, {"a": 2}])
    [item] = written.files
    path = table.spec.directory().local / item.path
    whole = path.read_bytes()
    for content, said in (
        (whole[:-5], f"it has {len(whole) - 5:,} bytes there, and not {len(whole):,}"),
        (whole[:-8] + bytes(8), "it cannot be read there"),
    ):
        path.write_bytes(content)
        with pytest.raises(FilesMissing, match=said):
            commit(table, written, 2)
    other = table.task([{"a": 3}], start=7)
    [shorter] = other.files
    os.replace(table.spec.directory().local / shorter.path, path)
    claims = replace(written, files=(replace(item, size=shorter.size),))
    with pytest.raises(FilesMissing, match="it has 1 rows there, and not 2"):
        commit(table, claims, 2)
    assert table.reopen().state().sequence == 0


def test_e12_a_host_is_told_by_each_task(make_table: MakeTable) -> None:
    written = make_table().task([{"a": 1}])
    assert written.host == socket.gethostname()
    assert TaskWrite.from_json(written.to_json()) == written


def test_files_that_a_table_lost_are_findings(make_table: MakeTable) -> None:
    """Of a table that an older version committed without a look, or whose disk is elsewhere."""
    table = make_table()
    for number in range(3):
        table.batch("q", number, [{"a": number}, b"no JSON"], start=2 * number)
    first, second, third = sorted(table.store.files(), key=lambda item: item.path)
    first.path.local.unlink()
    second.path.local.write_bytes(b"PAR1")
    found = absent_files([first, second, third])
    assert [(each.file, each.size) for each in found] == [(first, None), (second, 4)]
    assert [each.is_readable() for each in found] == [False, False]
    assert str(found[0]) == f"{first.path} is not there"
    assert str(found[1]) == f"{second.path} has 4 bytes, not {second.size:,}"
    said = r"2 of 3 files that the table names, with 2 rows, are not what it was given: .* 1 more"
    for use in (
        lambda: table.store.dataset(),
        lambda: table.store.compact(min_files=2),
        lambda: table.store.widen("a"),
    ):
        with pytest.raises(BadTable, match=said):
            use()
    table.store.files(DEAD_LETTERS)[0].path.local.unlink()
    with pytest.raises(BadTable, match="1 of 3 files"):
        replay(table.store)


def test_rows_by_key_in_a_file_that_is_gone_stop_the_batch(make_table: MakeTable) -> None:
    table = make_table(mode="upsert", buckets=1)
    table.batch("q", 0, [{"a": 1}], keys=[b"x"])
    table.store.files()[0].path.local.unlink()
    with pytest.raises(BadTable, match="1 of 1 files that the table names, with 1 rows"):
        table.batch("q", 1, [{"a": 2}], keys=[b"x"], start=1)
    assert table.reopen().state().sequence == 1


def test_a_directory_that_is_gone_has_no_files(make_table: MakeTable) -> None:
    table = make_table()
    table.batch("q", 0, [{"a": 1}])
    [only] = table.store.files()
    moved = replace(only, path=only.path.parent / "elsewhere" / only.path.name)
    assert [each.size for each in absent_files([moved])] == [None]


def test_a_table_whose_directory_is_gone_is_not_begun_anew(make_table: MakeTable) -> None:
    """Removed by hand, or on a disk that is not mounted: what was there can still come back."""
    table = make_table()
    table.batch("q", 0, [{"a": 1}])
    data, away = table.spec.directory().local, table.spec.place.local / "away"
    data.rename(away)
    data.mkdir()  # as a place to mount at
    for _ in range(2):
        with pytest.raises(BadTable) as refused:
            open_store(table.spec, create=True).state()
        assert list(data.iterdir()) == [], "nothing was made in its place"
    assert str(data) in str(refused.value)
    assert re.search("Put (it|them) back", str(refused.value))
    data.rmdir()
    away.rename(data)
    table.reopen()
    assert table.offsets() == [0]
    drop_table(table.spec)
    save_spec(table.spec)
    open_store(table.spec, create=True)
    assert (table.reopen().state().sequence, table.offsets()) == (0, [])


def test_a_table_that_is_not_in_its_catalog_is_not_begun_anew(
    make_table: MakeTable, table_format: str
) -> None:
    """Nor one of an earlier version, which is noted as made when it is opened."""
    table = make_table()
    table.batch("q", 0, [{"a": 1}])
    note = table.spec.place.local / MADE_FILE
    note.unlink()
    open_store(table.spec, create=True)
    if table_format == "iceberg":
        (table.spec.place.local / "catalog.db").unlink()
    else:
        shutil.rmtree(table.spec.directory().local / "_delta_log")
    with pytest.raises(BadTable, match=f"there was a table in .* remove {note}"):
        open_store(table.spec, create=True)
    note.unlink()
    assert open_store(table.spec, create=True).state().sequence == 0
