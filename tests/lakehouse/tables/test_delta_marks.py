"""The marks of a Delta table, as this package reads them, against delta-rs looking them up."""

from __future__ import annotations

import json
import random
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction

from strandline.lakehouse.locations import stores
from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.tables import marks
from strandline.lakehouse.tables.delta_marks import MarkReader, Marks
from strandline.lakehouse.tables.delta_snapshot import DeltaSnapshot
from strandline.lakehouse.tables.delta_upkeep import FOR_GOOD_MS, dated, upkeep_properties
from strandline.lakehouse.tables.errors import BadTable
from strandline.lakehouse.tables.iceberg import IcebergSnapshot
from strandline.lakehouse.tables.identity import OffsetRange
from strandline.lakehouse.tables.spec import load_spec, save_spec
from strandline.lakehouse.tables.store import open_store
from strandline.types import TopicPartition
from tests.lakehouse.tables.table_world import TOPIC, TableWorld


def _log(table: TableWorld) -> Path:
    return table.spec.directory().local / "_delta_log"


def _looked_up(table: TableWorld, names: Iterable[str]) -> dict[str, int | None]:
    """What delta-rs says of each name."""
    fresh = DeltaTable(str(table.spec.directory()))
    return {name: fresh.transaction_version(name) for name in names}


def _read(table: TableWorld) -> Marks:
    """All marks, read anew."""
    version = DeltaTable(str(table.spec.directory())).version()
    return MarkReader(Location.parse(table.spec.directory().local)).at(version)


def _has_all(table: TableWorld, marks: Marks) -> bool:
    assert marks.complete
    return dict(marks.values) == _looked_up(table, marks.values)


def _set_elsewhere(table: TableWorld, marks: dict[str, int], said: str = "") -> None:
    """A commit that this package did not make."""
    other = DeltaTable(str(table.spec.directory()))
    other.create_write_transaction(
        [],
        "append",
        other.schema(),
        commit_properties=CommitProperties(
            custom_metadata={"said": said},
            app_transactions=[Transaction(name, number) for name, number in marks.items()],
        ),
    )


def _undated(table: TableWorld) -> set[str]:
    """Marks of the table's own that a checkpoint of Spark's leaves out, if it has the property."""
    newest: dict[str, int | None] = {}
    for path in sorted(_log(table).glob("*.json")):
        for line in path.read_text().splitlines():
            if (mark := json.loads(line).get("txn")) is not None:
                newest[mark["appId"]] = mark.get("lastUpdated")
    return {name for name, at in newest.items() if at is None and name.startswith("strandline/")}


def _as_earlier(table: TableWorld) -> set[str]:
    """Take the time off the table's own marks, as releases before left them; gives their names."""
    names = set()
    for path in _log(table).glob("*.json"):
        actions = [json.loads(line) for line in path.read_text().splitlines()]
        for mark in (action["txn"] for action in actions if "txn" in action):
            if mark["appId"].startswith("strandline/"):
                del mark["lastUpdated"]
                names.add(mark["appId"])
        path.write_text("".join(json.dumps(action) + "\n" for action in actions))
    return names


def test_a_mark_of_the_tables_own_has_a_time_that_never_passes() -> None:
    assert dated("8f14e45f-ceea-467f-a9f0-000000000000", 5) == 5
    for name in (marks.SEQUENCE, marks.WRITER, marks.WATERMARK, marks.side_mark("late")):
        assert dated(name, 5) == FOR_GOOD_MS
    kept = upkeep_properties(None, for_spark=True)
    assert "delta.setTransactionRetentionDuration" not in kept, "Delta's writer dates all marks"


def test_marks_of_the_tables_own_are_not_forgotten(tmp_path: Path) -> None:
    """By delta-rs here, which forgets those of queries; by Spark in `test_spark_writer`."""
    table = TableWorld(tmp_path / "t", columns={"n": "long"})
    for partition in range(2):
        table.batch("q", partition, [{"n": 1}, b"bad"], partition=partition)
    assert _undated(table) == set()
    before = _read(table)
    table.store.checkpoint()
    assert _read(table) == before
    assert before.undated == frozenset()


@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_marks_without_a_time_get_one_with_the_next_commit(
    tmp_path: Path, has_checkpoint: bool
) -> None:
    """Also those of partitions that it has nothing of; and before Spark is told to forget marks."""
    table = TableWorld(tmp_path / "t", columns={"n": "long"})
    for partition in range(2):
        table.batch("q", partition, [{"n": 1}, b"bad"], partition=partition)
    names = _as_earlier(table)
    if has_checkpoint:
        DeltaTable(str(table.spec.directory())).create_checkpoint()
    before = _read(table)
    assert before.undated == _undated(table) == names
    DeltaTable(str(table.spec.directory())).alter.set_table_properties(
        {"delta.setTransactionRetentionDuration": "interval 6 days"}
    )
    table.reopen().checkpoint()
    properties = DeltaTable(str(table.spec.directory())).metadata().configuration
    assert properties["delta.setTransactionRetentionDuration"] == "interval 6 days"
    table.batch("q", 2, [{"n": 1}], start=2)
    assert _undated(table) == set()
    assert _read(table).undated == frozenset()
    moved = {name: value for name, value in _read(table).values.items() if "/1/" in name}
    assert moved == {name: value for name, value in before.values.items() if "/1/" in name}
    table.store.checkpoint()
    properties = DeltaTable(str(table.spec.directory())).metadata().configuration
    assert properties["delta.setTransactionRetentionDuration"] == "interval 7 days"
    assert table.reopen().state().frontiers.keys() == {
        TopicPartition(TOPIC, partition) for partition in range(2)
    }


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_a_table_that_lost_its_marks_is_refused(tmp_path: Path, table_format: str) -> None:
    """A batch would begin at the topic's first record, and double all rows."""
    table = TableWorld(tmp_path / "t", format=table_format)
    save_spec(table.spec)
    table.batch("q", 0, [{"n": 1}, {"n": 2}])
    snapshot = table.store.backend.load()
    if isinstance(snapshot, IcebergSnapshot):
        names = [each for each in snapshot.table.properties if each.startswith("strandline/")]
        with snapshot.table.transaction() as change:
            change.remove_properties(*names)
    else:
        for path in _log(table).glob("*.json"):
            lines = path.read_text().splitlines(keepends=True)
            path.write_text("".join(line for line in lines if '"txn"' not in line))
    table.reopen()
    with pytest.raises(BadTable, match=r"flights has lost its marks.* has commit 1, .*double"):
        table.batch("new", 0, [{"n": 1}, {"n": 2}])
    with pytest.raises(BadTable, match="has lost its marks"):
        table.store.declare_lost([OffsetRange(TOPIC, 0, 0, 2)])
    with pytest.raises(BadTable, match="has lost its marks") as refused:
        table.store.state()  # what `table status` and `verify` show
    assert table.offsets() == [0, 1]

    remedy = re.search(r"mv .* && mkdir .* && cp .* && ", str(refused.value))
    if remedy is None:
        assert "make another table" in str(refused.value)
        return
    subprocess.run(["bash", "-c", f"{remedy[0]} true"], check=True)
    assert open_store(load_spec(tmp_path / "t"), create=True).state().sequence == 0
    old = open_store(load_spec(tmp_path / "t-old"))
    assert old.dataset().count_rows() == 2


@pytest.mark.parametrize("seed", range(4))
def test_marks_are_those_of_the_log(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    table = TableWorld(tmp_path / "t", columns={"n": "long"})
    starts = [0] * 3
    run = 0
    for number in range(25):
        partition, run = chance.randrange(3), run + chance.randrange(2)
        table.batch(f"q{run}", number, [{"n": 1}], start=starts[partition], partition=partition)
        starts[partition] += 1
        match chance.randrange(6):
            case 0:
                table.store.checkpoint()
            case 1:
                table.reopen()
            case 2:
                _set_elsewhere(table, {chance.choice("xyz"): chance.randrange(100)})
        snapshot = table.store.backend.load()
        assert isinstance(snapshot, DeltaSnapshot)
        anew = _read(table)
        assert _has_all(table, anew)
        assert {name: snapshot.mark(name) for name in anew.values} == dict(anew.values)
    assert table.store.backend.load().mark("another") is None


def test_a_commit_looks_no_mark_up_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = TableWorld(tmp_path / "t", columns={"n": "long"})
    table.batch("q", 0, [{"n": 0}])

    def refuse(*_: object) -> str:
        raise AssertionError("The log was read for a mark.")

    monkeypatch.setattr(stores, "read_text", refuse)
    monkeypatch.setattr(DeltaTable, "transaction_version", refuse)
    for number in range(1, 5):
        table.batch("q", number, [{"n": number}], start=number)
    assert table.offsets() == [*range(5)]


def test_marks_are_in_all_parts_of_a_checkpoint(tmp_path: Path) -> None:
    table = TableWorld(tmp_path / "t", columns={"n": "long"})
    for partition in range(4):
        table.batch("q", partition, [{"n": 0}], partition=partition)
    table.store.checkpoint()
    before = _read(table)
    version = DeltaTable(str(table.spec.directory())).version()
    whole = _log(table) / f"{version:020}.checkpoint.parquet"
    rows = pq.read_table(whole)
    for part, piece in enumerate((rows.slice(0, 5), rows.slice(5)), 1):
        pq.write_table(
            piece, whole.with_name(f"{version:020}.checkpoint.{part:010}.{2:010}.parquet")
        )
    whole.unlink()
    note = _log(table) / "_last_checkpoint"
    note.write_text(json.dumps({"version": version, "size": rows.num_rows, "parts": 2}))
    assert _read(table) == before
    assert _has_all(table, before)


@pytest.mark.parametrize(
    "note",
    ['{"version": 3, "size": 9, "v2Checkpoint": {"path": "x"}}', '{"versi', '{"version": 99}'],
)
def test_what_is_not_read_here_is_looked_up(tmp_path: Path, note: str) -> None:
    table = TableWorld(tmp_path / "t", columns={"n": "long"})
    for number in range(3):
        table.batch("q", number, [{"n": 0}], start=number)
    known = DeltaTable(str(table.spec.directory()))
    (_log(table) / "_last_checkpoint").write_text(note)
    directory = table.spec.directory()
    marks = MarkReader(directory).at(known.version())
    assert marks == Marks({})
    snapshot = DeltaSnapshot(known, directory, (), marks)
    assert snapshot.mark("q") == 2
    assert snapshot.mark("none") is None


def test_a_commit_that_was_cleaned_away_is_not_asked_for(tmp_path: Path) -> None:
    table = TableWorld(tmp_path / "t", columns={"n": "long"})
    table.batch("q", 0, [{"n": 0}])
    reader = MarkReader(table.spec.directory())
    version = DeltaTable(str(table.spec.directory())).version()
    before = reader.at(version)
    for number in range(1, 4):
        table.batch("q", number, [{"n": 0}], start=number)
    table.store.checkpoint()
    (_log(table) / f"{version + 1:020}.json").unlink()
    now = reader.at(version + 3)
    assert _has_all(table, now)
    assert (before.values["q"], now.values["q"]) == (0, 3)


def test_values_with_line_ends_of_unicode_are_no_ends_of_actions(tmp_path: Path) -> None:
    """In what is read of commits that others made, and of statistics."""
    table = TableWorld(tmp_path / "t", columns={"s": "string"})
    table.batch("q", 0, [{"s": "one\u2028two\u0085three"}])
    _set_elsewhere(table, {"x": 1}, said="one\u2028two\u0085three")
    assert any("\u2028" in each.read_text("utf-8") for each in _log(table).glob("*.json"))
    assert _has_all(table, _read(table))
