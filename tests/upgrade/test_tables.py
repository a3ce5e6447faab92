"""Tables that earlier releases made go on here under the names that they have, and back again."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pytest
from pyiceberg.table import StaticTable

from strandline.errors import InvalidSetting
from strandline.lakehouse.deadletters.listing import list_letters
from strandline.lakehouse.deadletters.replaying import replay
from strandline.lakehouse.tables.definition import DEAD_LETTERS, LATE, TableSpec
from strandline.lakehouse.tables.names import FIRST
from strandline.lakehouse.tables.spec import load_spec
from strandline.lakehouse.tables.store import drop_table, open_store
from strandline.types import TopicPartition
from tests.upgrade import old_tables
from tests.upgrade.releases import RELEASES, SOURCES, missing, unpack

BATCH = 5
"""Records: one row after a dead letter and two more, and a late one or, by key, two of a key."""


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    reason = missing(RELEASES["0.1.0"])
    if reason is not None:
        pytest.skip(reason)
    return unpack(RELEASES["0.1.0"], tmp_path_factory.mktemp("earlier"))


def write(sources: Path, directory: Path, table_format: str, mode: str, first: int) -> Any:
    """A batch from that offset on by those sources; the rows afterwards."""
    done = subprocess.run(
        [sys.executable, old_tables.__file__, directory, table_format, mode, str(first)],
        env={**os.environ, "PYTHONPATH": str(sources)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("mode", ["append", "upsert"])
@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_a_table_goes_on_under_its_names_and_back(
    earlier: Path, tmp_path: Path, table_format: str, mode: str
) -> None:
    directory = tmp_path / "t"
    write(earlier, directory, table_format, mode, 0)
    write(SOURCES, directory, table_format, mode, BATCH)
    rows = write(earlier, directory, table_format, mode, 2 * BATCH)
    late = mode == "append"
    spec = load_spec(directory)
    assert (spec.version, spec.names) == (1, FIRST)
    store = open_store(spec)
    frontier = store.frontier(TopicPartition(old_tables.TOPIC, 0))
    assert frontier is not None
    assert frontier.end == 3 * BATCH
    if mode == "append":
        # Nothing is late before there is a watermark.
        assert [row["_offset"] for row in rows] == sorted(
            (row["_offset"] for row in rows), key=lambda each: str({"_offset": each})
        )
        assert {row["_offset"] for row in rows} == {0, 2, 3, 4, 5, 7, 8, 10, 12, 13}
    else:
        assert {(row["_offset"], row["a"]) for row in rows} == {(12, 12), (13, 13), (14, 14)}
    assert store.dataset(LATE).count_rows() == (2 if late else 0)
    assert {each.offset for each in list_letters(store)} == {1, 6, 11}
    assert set(FIRST.own - {FIRST.key}) < set(store.state().schema.names)
    store.compact(min_files=2)
    assert store.widen("a") >= 1
    assert replay(store) == (0, 3)
    assert store.dataset().count_rows() == len(rows)
    assert FIRST.offset_end in store.dataset(DEAD_LETTERS).schema.names


ESCAPED = quote("my läke (1)")
"""What a URI makes of the name of a directory; so the earlier release called it."""


def by_pyiceberg(directory: Path) -> list[int]:
    """The offsets of the rows, by a reader that takes paths as they are."""
    newest = max((directory / "metadata").glob("*.metadata.json"))
    rows = StaticTable.from_metadata(str(newest)).scan(selected_fields=("_offset",)).to_arrow()
    return sorted(rows.column("_offset").to_pylist())


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_an_iceberg_table_is_led_out_of_a_directory_of_an_escaped_name(
    earlier: Path, tmp_path: Path, mode: str
) -> None:
    """The earlier release laid metadata there, and gave all files addresses there."""
    directory = tmp_path / unquote(ESCAPED) / "t"
    metadata = tmp_path / ESCAPED / "t" / "data" / "metadata"
    write(earlier, directory, "iceberg", mode, 0)
    before = set(metadata.iterdir())
    assert before, "there it lies"
    assert not (directory / "data" / "metadata").exists()
    store = open_store(load_spec(directory))
    assert store.dataset().count_rows() == (4 if mode == "append" else 3)
    [first] = store.snapshot_at(None).history(None)

    def offsets(rows: list[dict[str, int]]) -> list[int]:
        return sorted(row["_offset"] for row in rows)

    rows = write(SOURCES, directory, "iceberg", mode, BATCH)
    assert by_pyiceberg(directory / "data") == offsets(rows)
    assert {file.path.parent for file in store.files()} == {store.spec.directory()}
    assert store.dataset().count_rows() == len(rows)
    assert store.dataset(DEAD_LETTERS).count_rows() == 2
    assert len(store.snapshot_at(first.version).files()) > 0, "an older snapshot can be read"
    assert set(metadata.iterdir()) <= before, "nothing new comes there"

    rows = write(earlier, directory, "iceberg", mode, 2 * BATCH)
    assert write(SOURCES, directory, "iceberg", mode, 3 * BATCH) != rows
    store.compact(min_files=2)
    assert store.upgrade() > 0
    store = open_store(load_spec(directory))
    assert store.dataset().count_rows() == len(store.dataset().to_table()) > 0


def test_metadata_at_an_escaped_address_goes_when_nothing_names_it(
    earlier: Path, tmp_path: Path
) -> None:
    directory = tmp_path / unquote(ESCAPED) / "t"
    metadata = tmp_path / ESCAPED / "t" / "data" / "metadata"
    write(earlier, directory, "iceberg", "append", 0)
    write(SOURCES, directory, "iceberg", "append", BATCH)
    named = set(metadata.glob("*.avro"))
    left = metadata / f"left-{min(named).name}"
    shutil.copy(min(named), left)
    store = open_store(load_spec(directory))
    assert store.vacuum(now_ms=2**42, older_than_ms=0) == [str(left)]
    assert set(metadata.glob("*.avro")) == named, "the older snapshot needs them"
    drop_table(store.spec)
    assert not [each for each in tmp_path.rglob("*") if each.is_file()]


def test_a_table_that_is_made_now_is_refused_by_the_earlier_release(
    earlier: Path, tmp_path: Path
) -> None:
    """With a sentence, before anything is changed."""
    made = TableSpec(name="t", topics=("flights",), location=str(tmp_path / "t"))
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "table.json").write_text(made.to_json())
    with pytest.raises(AssertionError, match="has version 2; this program knows 1"):
        write(earlier, tmp_path / "t", "delta", "append", 0)
    assert [each.name for each in (tmp_path / "t").iterdir()] == ["table.json"]


def test_a_definition_without_a_version_is_of_the_first(tmp_path: Path) -> None:
    text = json.dumps({"name": "t", "topics": ["a"], "location": "/t", "event_time": "_timestamp"})
    assert TableSpec.from_json(text).names == FIRST
    with pytest.raises(InvalidSetting, match="called kafka_timestamp in tables that are made now"):
        TableSpec.from_json(text.replace('"name"', '"version": 2, "name"'))
