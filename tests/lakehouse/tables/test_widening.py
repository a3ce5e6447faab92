"""An integer column becomes doubles: in every file at once, exactly or not at all."""

from __future__ import annotations

from copy import copy
from typing import Any

import pytest
from deltalake import DeltaTable

from strandline.errors import InvalidSetting
from strandline.lakehouse.deadletters.replaying import replay
from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.tables import rewriting, widening
from strandline.lakehouse.tables.catalogs import entry_of
from strandline.lakehouse.tables.definition import parse_partitioning
from strandline.lakehouse.tables.errors import SchemaMoved
from strandline.lakehouse.tables.iceberg import IcebergBackend
from strandline.lakehouse.tables.identity import BatchIdentity, OffsetRange
from strandline.lakehouse.tables.opening import side_partitioning
from strandline.lakehouse.tables.rewriting import Rewritten
from tests.lakehouse.tables.conftest import MakeTable
from tests.lakehouse.tables.table_world import TOPIC, TableWorld


@pytest.fixture
def table(make_table: MakeTable) -> TableWorld:
    """Rows of integers in two files, one of them late, and one letter."""
    table = make_table(event_time="t", watermark_ms=0, partition_by=parse_partitioning("day(t)"))
    table.batch("q", 0, [{"t": 90_000_000, "a": 1}])
    table.batch("q", 1, [{"t": 99_000_000, "a": None}, {"t": 1, "a": 3}, {"a": 2.5}], start=1)
    assert (table.offsets(), table.late(), table.letters()) == ([0, 1], [2], [3])
    return table


def test_the_letters_of_a_widened_column_become_rows(table: TableWorld) -> None:
    rows = [table.rows(side) for side in (None, "late")]
    assert table.store.widen("a") == 3
    table.reopen()
    assert [table.rows(side) for side in (None, "late")] == rows
    assert str(table.store.state().schema.field("a").type) == "double"
    assert replay(table.store) == (1, 0)
    assert [row["a"] for row in table.rows()] == [1.0, None, 2.5]
    table.batch("q", 2, [{"t": 99_000_000, "a": 0.5}, {"t": 2, "a": 0.25}], start=4)
    assert [row["a"] for row in table.rows()] == [1.0, None, 2.5, 0.5]
    assert [row["a"] for row in table.rows("late")] == [3.0, 0.25]
    assert [record.kind for record in table.store.history()] == [
        "batch",
        "replay",
        "widening",
        "batch",
        "batch",
    ]


def test_the_formats_own_readers_see_doubles(table: TableWorld) -> None:
    table.store.widen("a")
    for side in (None, "late"):
        directory = table.spec.directory(side)
        if table.spec.format == "delta":
            rows = DeltaTable(str(directory)).to_pyarrow_dataset().to_table(columns=["a"])
        else:
            backend = IcebergBackend(
                directory,
                side_partitioning(table.spec, side),
                catalog=entry_of(table.spec, side),
            )
            rows = backend.load().table.scan(selected_fields=("a",)).to_arrow()
        assert str(rows.schema.field("a").type) == "double"
        expected = [None, 1.0] if side is None else [3.0]
        assert sorted(rows.column("a").to_pylist(), key=str) == sorted(expected, key=str)


def test_a_batch_of_the_narrow_column_is_written_again(table: TableWorld) -> None:
    written = table.task([{"t": 99_000_000, "a": 7}], start=4)
    table.store.widen("a")
    identity = BatchIdentity("q", 2, (OffsetRange(TOPIC, 0, 4, 5),))
    with pytest.raises(SchemaMoved):
        table.store.commit(identity, [written])
    again = table.task([{"t": 99_000_000, "a": 7}], start=4)
    assert table.store.commit(identity, [again]).rows == 1


def test_a_query_may_go_on_meanwhile(table: TableWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches are committed, and files joined, between the writing and its commit."""
    query = copy(table)
    query.reopen()
    written: list[str] = []

    def rewrite_and_go_on(directory: Location, files: Any, *words: Any, **more: Any) -> Rewritten:
        written.extend(each.path.name for each in files)
        done = rewriting.rewrite(directory, files, *words, **more)
        number = query.store.state().sequence
        if number < 4:
            query.batch("q", number, [{"t": 99_000_000, "a": number}], start=number + 2)
        elif number == 4:
            assert query.store.compact(min_files=4).files_before == 4
        return done

    monkeypatch.setattr(widening, "rewrite", rewrite_and_go_on)
    assert table.store.widen("a") == 2
    assert len(written) == len(set(written)) == 6, "each file was written again once"
    monkeypatch.undo()
    table.reopen()
    assert [row["a"] for row in table.rows()] == [1.0, None, 2.0, 3.0]
    assert [row["a"] for row in table.rows("late")] == [3.0]
    named = {each.path.name for side in (None, "late") for each in table.store.files(side)}
    copies = [each.name for each in table.spec.place.local.rglob("*widen*.parquet")]
    assert set(copies) == named, "copies of files that were joined meanwhile are gone"


def test_what_would_be_rounded_is_refused(table: TableWorld) -> None:
    table.batch("q", 2, [{"t": 99_000_000, "a": (1 << 53) + 1}], start=4)
    before = sorted(table.spec.place.local.rglob("*.parquet"))
    with pytest.raises(InvalidSetting, match="no double exactly"):
        table.store.widen("a")
    assert sorted(table.spec.place.local.rglob("*.parquet")) == before
    assert str(table.store.state().schema.field("a").type) == "int64"


@pytest.mark.parametrize("column", ["missing", "kafka_offset", "t"])
def test_other_columns_are_refused(table: TableWorld, column: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        table.store.widen(column)
    assert caught.value.name == "column"
