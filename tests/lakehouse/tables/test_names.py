"""The names of a table's own columns: no engine keeps them, and every reader finds them by name."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyiceberg.table import StaticTable

from strandline.errors import InvalidSetting
from strandline.lakehouse.deadletters.listing import list_letters
from strandline.lakehouse.tables.definition import division_names, parse_partitioning
from strandline.lakehouse.tables.names import FIRST, NAMES, RESERVED_BY_ENGINES
from tests.lakehouse.tables.conftest import MakeTable
from tests.lakehouse.tables.table_world import TableWorld

PREFIXES = ("_", "$", "metadata$", "filename", "rowid", "file_row_number", "__")


def test_no_name_is_kept_by_an_engine() -> None:
    names = {*NAMES.own, NAMES.offset_end}
    assert not names & RESERVED_BY_ENGINES
    assert not [name for name in names if name.startswith(PREFIXES)]
    assert FIRST.own & RESERVED_BY_ENGINES == {"_partition"}, "why they are called otherwise now"


@pytest.mark.parametrize("field", sorted(NAMES.own | {"_file", "_POS", "_partition", "_deleted"}))
def test_a_field_with_such_a_name_is_a_dead_letter_and_its_neighbours_are_rows(
    make_table: MakeTable, field: str
) -> None:
    table = make_table()
    table.batch("q", 0, [{"a": 1}, {"a": 2, field: 3}, {"a": 4, "o": {field: 5}}])
    assert table.offsets() == [0, 2]
    [letter] = list_letters(table.store)
    assert (letter.offset, letter.error_class) == (1, "UnknownField")
    assert repr(field) in letter.error
    assert table.rows()[1]["o"] == {field: 5}, "within an object no engine minds"


@pytest.mark.parametrize(
    ("division", "field"),
    [
        ("day(t)", {"t_day": "Monday"}),
        ("hour(t)", {"t_hour": "10"}),
        ("month(t)", {"T_Month": 1}),
        ("year(t)", {"t_year": 2013}),
        ("bucket(4, k)", {"k_bucket": 7}),
        ("truncate(2, k)", {"k_trunc": "zz"}),
    ],
)
def test_a_field_called_like_the_tables_division_is_a_dead_letter(
    make_table: MakeTable, division: str, field: dict[str, object]
) -> None:
    """Delta would put the division in its place, Iceberg would take no such column."""
    columns = {"t": "timestamp", "k": "string"}
    table = make_table(columns=columns, partition_by=parse_partitioning(division))
    table.batch("q", 0, [{"t": 0, "k": "a"}, {"t": 0, "k": "a", **field}, {"o": field}])
    assert (table.offsets(), table.letters()) == ([0, 2], [1])
    with pytest.raises(InvalidSetting, match="one of the table's own columns"):
        TableWorld.spec_in(
            table.spec.place.local,
            columns={**columns, **dict.fromkeys(field, "string")},
            partition_by=parse_partitioning(division),
        )


def test_what_a_transform_takes_in_may_be_called_like_a_division(tmp_path: Path) -> None:
    spec = TableWorld.spec_in(
        tmp_path,
        columns={"t": "timestamp"},
        partition_by=parse_partitioning("day(t)"),
        select="select * from batch",
    )
    assert "t_day" not in spec.reserved
    assert division_names(spec) == {"t_day"}


@pytest.mark.parametrize("field", ["_deleted", "deleted", "_topic", "_key"])
def test_a_field_of_a_table_by_key_cannot_be_taken_for_a_tombstone(
    make_table: MakeTable, field: str
) -> None:
    table = make_table(mode="upsert", buckets=1)
    table.batch("q", 0, [{"a": 1, field: True}, {"a": 2}], keys=[b"x", b"y"])
    expected = [1] if field.lower() in RESERVED_BY_ENGINES else [0, 1]
    assert table.offsets() == expected
    table.batch("q", 1, [None], keys=[b"y"], start=2)
    assert table.offsets() == expected[:-1]


def read_with_their_libraries(table: TableWorld) -> list[str]:
    if table.spec.format == "delta":
        delta = DeltaTable(str(table.spec.directory()))
        return list(delta.to_pyarrow_dataset().schema.names)
    newest = max(Path(table.spec.directory(), "metadata").glob("*.metadata.json"))
    return list(StaticTable.from_metadata(str(newest)).scan().to_arrow().schema.names)


def test_all_columns_by_name_in_other_readers(make_table: MakeTable) -> None:
    """DuckDB reads the files; deltalake and pyiceberg the tables."""
    table = make_table(keep_key=True)
    table.batch("q", 0, [{"a": 1}, {"a": 2}], keys=[b"x", b"y"])
    assert {"a", *NAMES.own} == set(read_with_their_libraries(table))
    [file] = table.store.files()
    assert set(pq.read_schema(file.path).names) == {"a", *NAMES.own}
    columns = ", ".join(sorted(NAMES.own))
    found = duckdb.sql(
        f"select a, {columns} from read_parquet('{file.path}') order by a"
    ).fetchall()
    assert [(row[0], row[1], row[2], row[3], row[5]) for row in found] == [
        (1, b"x", 0, 0, "flights"),
        (2, b"y", 1, 0, "flights"),
    ]
