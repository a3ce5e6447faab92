"""Tables of the first version get the names of today: in one step, whatever ends the process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from click.testing import CliRunner
from deltalake import DeltaTable

from strandline.cli.main import cli
from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.tables import upgraded, upgrading
from strandline.lakehouse.tables.committing import COMMITTED, REPLAYED
from strandline.lakehouse.tables.definition import DEAD_LETTERS, LATE, UPGRADE_FILE, TableSpec
from strandline.lakehouse.tables.errors import BadTable, FencedWriter
from strandline.lakehouse.tables.identity import BatchIdentity, OffsetRange
from strandline.lakehouse.tables.names import FIRST, NAMES
from strandline.lakehouse.tables.spec import load_spec, save_spec
from strandline.lakehouse.tables.store import TableStore, open_store
from strandline.lakehouse.tables.transforms import parse_transform
from tests.lakehouse.tables.table_world import TOPIC, TableWorld, Value
from tests.lakehouse.tables.test_crashes import Crash, crash_at

VALUES: list[Value] = [{"t": 10_000_000, "a": 1}, b"bad", {"t": 10_000_000, "a": 3}]
LATER: list[Value] = [{"t": 20_000_000, "a": 4}, b"bad", {"t": 1, "a": 6}]
FIELDS: dict[str, Any] = {
    "event_time": "t",
    "watermark_ms": 1000,
    "partition_by": (parse_transform("day(_timestamp)"), parse_transform("_topic")),
}


def table_of_the_first_version(directory: Path, **fields: Any) -> TableWorld:
    """With two commits: rows, dead letters and a late row."""
    table = TableWorld(directory, **{"version": 1, **fields})
    save_spec(table.spec)
    table.batch("q", 0, VALUES, keys=[b"x", b"y", b"z"])
    table.batch("q", 1, LATER, start=3, keys=[b"x", b"y", b"u"])
    return table


def places(store: TableStore, side: str | None = None) -> list[int]:
    """The offsets of all rows, under the names that the definition says."""
    return sorted(
        row[store.spec.names.offset] for row in store.dataset(side).to_table().to_pylist()
    )


@pytest.mark.parametrize("name", ["my lake", "C#"])
def test_iceberg_of_an_earlier_release_goes_on_where_its_path_was_escaped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Its metadata stays where it is, beside the table, and names files in both ways."""
    with monkeypatch.context() as earlier:
        earlier.setattr(Location, "uri", property(lambda place: f"file://{quote(place.path)}"))
        table = TableWorld(tmp_path / name / "t", format="iceberg")
        table.batch("q", 0, [{"a": 1}, b"bad"])
    table.reopen()
    table.batch("q", 1, [{"a": 2}, b"bad"], start=2)
    table.reopen()
    assert (table.offsets(), table.letters()) == ([0, 2], [1, 3])
    assert table.store.compact(min_files=2).files_before == 4
    table.reopen()
    table.store.vacuum(now_ms=10**15, older_than_ms=0)
    assert (table.offsets(), table.letters()) == ([0, 2], [1, 3])


def check_whole(directory: Path) -> TableStore:
    """That the table is of one version and has everything once, as another process sees it."""
    store = open_store(load_spec(directory))
    assert (places(store), places(store, DEAD_LETTERS), places(store, LATE)) == (
        [0, 2, 3],
        [1, 4],
        [5],
    )
    own = {name for name in store.state().schema.names if name in FIRST.own | NAMES.own}
    assert own == {field.name for field in store.spec.own_columns()}
    return store


def go_on(directory: Path) -> None:
    """What was committed is known, and what comes is there once."""
    table = TableWorld(directory, **_fields(load_spec(directory)))
    assert table.batch("q", 1, LATER, start=3).outcome == REPLAYED
    assert table.batch("q", 2, [{"a": 7}, b"bad"], start=6).outcome == COMMITTED
    assert places(table.store) == [0, 2, 3, 6]
    assert places(table.store, DEAD_LETTERS) == [1, 4, 7]
    table.store.compact(min_files=2)
    assert places(open_store(table.spec)) == [0, 2, 3, 6]


def _fields(spec: TableSpec) -> dict[str, Any]:
    return {name: getattr(spec, name) for name in ("version", "format", "mode", *FIELDS)}


def test_rows_letters_late_rows_and_partitions(tmp_path: Path, table_format: str) -> None:
    before = table_of_the_first_version(tmp_path, format=table_format, **FIELDS)
    rows = before.store.dataset().to_table().to_pylist()
    partitions = sorted(file.partition for file in before.store.files())
    written = len(before.store.files()) + 3
    assert before.store.upgrade() == written
    store = check_whole(tmp_path)
    spec = store.spec
    assert (spec.version, spec.names) == (2, NAMES)
    assert list(map(str, spec.partition_by)) == ["day(kafka_timestamp)", "kafka_topic"]
    names = FIRST.renamed(NAMES)
    assert sorted(store.dataset().to_table().to_pylist(), key=str) == sorted(
        ({names.get(name, name): value for name, value in row.items()} for row in rows), key=str
    )
    assert sorted(file.partition for file in store.files()) == partitions
    assert store.history(1)[0].kind == "upgrade"
    letter = store.dataset(DEAD_LETTERS).to_table().to_pylist()[0]
    assert letter["kafka_offset_end"] == letter["kafka_offset"] + 1
    assert not (tmp_path / UPGRADE_FILE).exists()
    assert store.upgrade() == 0
    go_on(tmp_path)


def test_a_table_by_key(tmp_path: Path, table_format: str) -> None:
    before = table_of_the_first_version(tmp_path, format=table_format, mode="upsert", buckets=2)
    before.store.upgrade()
    table = TableWorld(tmp_path, format=table_format, mode="upsert", buckets=2)
    assert places(table.store) == [2, 3, 5]
    table.batch("q", 2, [{"a": 9}, None], start=6, keys=[b"z", b"x"])
    assert places(table.store) == [5, 6]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_the_old_or_the_new_wherever_it_crashes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table_format: str, *, after: bool
) -> None:
    """At each change in turn; once it has committed, the next process does what is left."""
    table_of_the_first_version(tmp_path, format=table_format, **FIELDS)
    crashed: list[str] = []
    versions: list[int] = []
    # How many changes go well before the crash. After one between the commit and the end, the
    # definition is written once more.
    for number in (0, 1, 0, 1) if after else (0, 1, 2, 1, 1, 1):
        with (
            pytest.raises(Crash),
            crash_at(monkeypatch, number, after=after, files=upgraded) as made,
        ):
            open_store(load_spec(tmp_path)).upgrade()
        crashed.append(made[-1])
        versions.append(load_spec(tmp_path).version)
        if after or versions[-1] == 1:
            check_whole(tmp_path)  # which lets the side tables follow
    sides = [] if after else ["rename", "rename"]
    assert crashed == ["replace_text", "rename", *sides, "replace_text", "remove"]
    assert versions == ([1, 2, 2, 2] if after else [1, 1, 2, 2, 2, 2])
    open_store(load_spec(tmp_path)).upgrade()
    assert json.loads((tmp_path / "table.json").read_text())["version"] == 2
    assert not (tmp_path / UPGRADE_FILE).exists()
    check_whole(tmp_path)
    go_on(tmp_path)


STAGES: dict[str, Callable[[Path], bool]] = {
    "files are written": lambda home: any((home / "data").glob("part-upgrade-*")),
    "the commit is announced": lambda home: (home / UPGRADE_FILE).exists(),
    "the definition is replaced": lambda home: '"version": 2' in (home / "table.json").read_text(),
}


@pytest.mark.parametrize(
    ("table_format", "stage"),
    [*(("delta", stage) for stage in STAGES), ("iceberg", "the commit is announced")],
)
def test_the_old_or_the_new_after_kill_9(tmp_path: Path, table_format: str, stage: str) -> None:
    directory = tmp_path / "t"
    table_of_the_first_version(directory, format=table_format, **FIELDS)
    command = [sys.executable, "-m", "strandline.cli", "table", "upgrade", "t"]
    process = subprocess.Popen(
        [*command, "--tables", str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    until = time.monotonic() + 120
    while not STAGES[stage](directory) and process.poll() is None:
        assert time.monotonic() < until
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    check_whole(directory)
    again = CliRunner().invoke(cli, [*command[3:], "--tables", str(tmp_path)])
    assert again.exit_code == 0, again.output
    assert "kafka_topic, kafka_partition, kafka_offset" in again.output
    assert check_whole(directory).spec.version == 2
    go_on(directory)


def test_a_run_that_goes_on_meanwhile_is_refused(tmp_path: Path, table_format: str) -> None:
    """It has written files under the old names; nothing of them gets in."""
    table = table_of_the_first_version(tmp_path, format=table_format, **FIELDS)
    written = table.task([{"a": 7}], start=6)
    open_store(load_spec(tmp_path)).upgrade()
    ranges = (OffsetRange(TOPIC, 0, 6, 7),)
    for query in ("q", "another"):
        with pytest.raises(FencedWriter, match="was upgraded by another process: its column"):
            table.store.commit(BatchIdentity(query, 2, ranges), [written])
    with pytest.raises(FencedWriter, match="Run the command again"):
        table.store.compact(min_files=2)
    check_whole(tmp_path)
    go_on(tmp_path)


def test_an_upgrade_yields_to_commits_and_tries_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table_format: str
) -> None:
    table = table_of_the_first_version(tmp_path, format=table_format)
    offsets = count(6)
    rivals = [3]

    def announce_late(spec: TableSpec) -> None:
        upgraded.announce(spec)
        if rivals[0] > 0:
            rivals[0] -= 1
            offset = next(offsets)
            table.batch("q", offset, [{"a": offset}], start=offset)

    monkeypatch.setattr(upgrading, "announce", announce_late)
    with pytest.raises(FencedWriter, match="stop its query meanwhile"):
        open_store(load_spec(tmp_path)).upgrade()
    assert load_spec(tmp_path).version == 1
    assert places(table.store) == [0, 2, 3, 5, 6, 7, 8]
    rivals[0] = 1
    open_store(load_spec(tmp_path)).upgrade()
    store = open_store(load_spec(tmp_path))
    assert (store.spec.version, places(store)) == (2, [0, 2, 3, 5, 6, 7, 8, 9])
    assert not [path for path in tmp_path.rglob("part-upgrade-*") if path not in _named(store)], (
        "files of attempts that lost"
    )


def _named(store: TableStore) -> set[Path]:
    return {file.path.local for side in (None, DEAD_LETTERS) for file in store.files(side)}


def test_what_stands_in_the_way_is_named_and_nothing_is_changed(
    tmp_path: Path, table_format: str
) -> None:
    table = TableWorld(tmp_path, version=1, format=table_format)
    save_spec(table.spec)
    table.batch("q", 0, [{"Kafka_Topic": 1}])
    with pytest.raises(BadTable, match="column Kafka_Topic of its values"):
        table.store.upgrade()
    assert load_spec(tmp_path).version == 1
    assert places(open_store(load_spec(tmp_path))) == [0]


def test_a_definition_that_was_edited_instead_is_refused(tmp_path: Path, table_format: str) -> None:
    table_of_the_first_version(tmp_path, format=table_format)
    file = tmp_path / "table.json"
    file.write_text(file.read_text().replace('"version": 1', '"version": 2'))
    with pytest.raises(BadTable, match="strandline table upgrade"):
        open_store(load_spec(tmp_path)).state()


def test_a_delta_table_with_features_of_others_is_left_alone(tmp_path: Path) -> None:
    table = table_of_the_first_version(tmp_path)
    DeltaTable(tmp_path / "data").alter.add_constraint({"positive": "_offset >= 0"})
    with pytest.raises(BadTable, match="features that this package does not write"):
        table.reopen().upgrade()
    assert check_unchanged(tmp_path) == 1


def check_unchanged(directory: Path) -> int:
    assert not (directory / UPGRADE_FILE).exists()
    assert not list(directory.rglob("part-upgrade-*"))
    return load_spec(directory).version


def test_the_note_and_the_definition_survive_the_umask(tmp_path: Path) -> None:
    """Other users of the machine read the tables."""
    table = table_of_the_first_version(tmp_path)
    before = (tmp_path / "table.json").stat().st_mode
    table.store.upgrade()
    assert (tmp_path / "table.json").stat().st_mode == before
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]
