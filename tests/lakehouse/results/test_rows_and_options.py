"""Which rows, options and tables go together, and what the commands say of tables of queries."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

import strandline
from strandline.cli.main import cli
from strandline.errors import InvalidSetting
from strandline.lakehouse.results.errors import UnfitRows
from strandline.lakehouse.tables.definition import TableSpec
from strandline.lakehouse.tables.errors import TableError, TableMissing
from strandline.lakehouse.tables.spec import save_spec
from tests.lakehouse.results.result_world import ResultWorld, Schema


def test_columns_follow_the_query(options: dict[str, str]) -> None:
    world = ResultWorld(**options)
    world.batch("q", 0, [("B", 1)])
    world.batch("q", 1, [("C", 2**40)], schema={"city": pa.string(), "count": pa.int64()})
    world.batch("q", 2, [(5, "D")], schema={"count": pa.int16(), "city": pa.string()})
    world.batch("q", 3, [("E",)], schema={"city": pa.string()})
    world.batch(
        "q",
        4,
        [("F", 6, {"x": 0.5})],
        schema={"city": pa.string(), "count": pa.int32(), "s": pa.struct({"x": pa.float32()})},
    )
    world.batch(
        "q",
        5,
        [("G", 7, {"x": 1, "y": 1})],
        schema={
            "city": pa.string(),
            "count": pa.int32(),
            "s": pa.struct({"x": pa.int32(), "y": pa.int32()}),
        },
    )
    assert [row[:2] for row in world.rows()] == [
        ("B", 1),
        ("C", 2**40),
        ("D", 5),
        ("E", None),
        ("F", 6),
        ("G", 7),
    ]
    assert world.rows()[-1][2] == {"x": 1.0, "y": 1}
    with pytest.raises(UnfitRows, match=r"count is double in the query and bigint .* table widen"):
        world.task([("H", 0.5)], schema={"city": pa.string(), "count": pa.float64()})
    with pytest.raises(UnfitRows, match="City differs from city of table counts in case only"):
        world.task([("H",)], schema={"City": pa.string()})
    with pytest.raises(UnfitRows, match=r"Column s has a value"):
        world.task(
            [("H", {"x": 2**60 + 1})],
            schema={"city": pa.string(), "s": pa.struct({"x": pa.int64()})},
        )
    assert world.store.widen("count")
    world.batch("q", 6, [("I", 0.5)], schema={"city": pa.string(), "count": pa.float64()})
    assert 0.5 in world.store.dataset().to_table()["count"].to_pylist()
    assert world.proof().is_good


@pytest.mark.parametrize("name", ["kafka_offset", "_offset"])
def test_a_column_that_is_called_as_one_of_records(tmp_path: Path, name: str) -> None:
    world = ResultWorld(path=str(tmp_path / "t"))
    world.batch("q", 0, [(7,)], schema={name: pa.int64()})
    assert world.rows() == [(7,)]


def test_a_column_that_is_called_like_the_tables_division(options: dict[str, str]) -> None:
    """Delta would put the division in its place."""
    schema = {"city": pa.string(), "at": pa.timestamp("us", "UTC")}
    world = ResultWorld(**options, partition_by="day(at)")
    world.batch("q", 0, [("B", 0)], schema=schema)
    with pytest.raises(UnfitRows, match="divided by what it calls at_day, and the rows have a col"):
        world.task([("B", 0, "x")], schema={**schema, "At_Day": pa.string()})
    assert len(world.rows()) == 1
    other = ResultWorld(**{**options, "path": "other"}, partition_by="day(at)")
    with pytest.raises(InvalidSetting, match="makes a column at_day, and the rows have one"):
        other.task([("B", 0, "x")], schema={**schema, "At_Day": pa.string()})


def test_a_table_that_keeps_its_columns(options: dict[str, str]) -> None:
    world = ResultWorld(**options, evolve="false")
    world.batch("q", 0, [("B", 1)])
    with pytest.raises(UnfitRows, match=r"counts has no column more, .*\(evolve\)"):
        world.task(
            [("B", 1, 1)], schema={"city": pa.string(), "count": pa.int32(), "more": pa.int32()}
        )


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        (
            {"city": pa.string(), "count(1)": pa.int32()},
            r"'count\(1\)' has characters .* alias\(\)",
        ),
        (
            {"city": pa.string(), "x": pa.timestamp("us")},
            "x is timestamp_ntz: cast it to timestamp",
        ),
        ({"city": pa.string(), "City": pa.string()}, "differs from column 'City' in case only"),
        ({"city": pa.string(), "x": pa.duration("us")}, "x has the type"),
        ({"city": pa.string(), "x": pa.list_(pa.struct([]))}, r"x\[\] is a struct without fields"),
        ({"n": pa.int32()}, "keys names city, and the rows have no such column: they have n"),
        ({"city": pa.list_(pa.string())}, "keys names city: lists and maps are no keys"),
    ],
)
def test_rows_that_no_table_has(tmp_path: Path, schema: Schema, sentence: str) -> None:
    world = ResultWorld(path=str(tmp_path / "t"), keys="city")
    with pytest.raises(UnfitRows, match=sentence):
        world.task([], schema=schema)
    assert not (tmp_path / "t").exists(), "nothing is made for rows that do not fit"


FAR_DAY = 3_000_000
"""Since 1970, in the year 10183."""


@pytest.mark.parametrize(
    ("kind", "unit"), [(pa.timestamp("us", "UTC"), 86_400_000_000), (pa.date32(), 1)]
)
def test_a_time_that_cannot_divide_a_table_is_refused(
    options: dict[str, str], kind: pa.DataType, unit: int
) -> None:
    """It ended a query with an OverflowError of a library's; a transform of it divides well."""
    schema = {"n": pa.int64(), "at": kind}
    held, far = (1, 20_000 * unit), (2, FAR_DAY * unit)
    world = ResultWorld(**options, partition_by="at")
    world.batch("q", 0, [held], schema=schema)
    with pytest.raises(TableError, match=r"at itself divides .* years 1 to 9999.*day\(at\)"):
        world.batch("q", 1, [held, far, held], schema=schema)
    assert [row[0] for row in world.rows()] == [1]
    assert world.files() == 1, "nothing is left"
    world.batch("q", 1, [(3, None)], schema=schema)
    by_day = ResultWorld(**{**options, "path": "by_day"}, partition_by="day(at)")
    by_day.batch("q", 0, [held, far], schema=schema)
    assert by_day.store.dataset().count_rows() == 2


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({}, "stands in start.. or save"),
        ({"path": "a", "table": "b"}, "table says b, and path .* a: give one"),
        ({"path": "a", "format": "parquet"}, "format is delta or iceberg, not 'parquet'"),
        ({"path": "a", "since": "1"}, "since is for reading"),
        ({"path": "a", "kees": "x"}, "kees is not an option .* did you mean keys?"),
        ({"path": "a", "queries": "two"}, "queries is one or many, not 'two'"),
        ({"path": "a", "vacuum": "1 minute"}, "vacuum cannot be less than 1 hour"),
        ({"path": "a", "partition_by": "day(ts)"}, "partition_by names ts, and the rows"),
        ({"path": "a", "keys": "city", "partition_by": "count"}, "divided by columns of its keys"),
    ],
)
def test_options_that_are_refused(tmp_path: Path, given: dict[str, str], sentence: str) -> None:
    with pytest.raises(InvalidSetting, match=sentence):
        ResultWorld(tables=str(tmp_path), **given).task([])


def test_tables_that_are_not_the_querys(tmp_path: Path) -> None:
    there = {"tables": str(tmp_path)}
    with pytest.raises(TableMissing, match="create=false forbids"):
        ResultWorld(path="a", create="false", **there).task([])
    ResultWorld(path="a", **there).batch("q", 0, [("B", 1)])
    with pytest.raises(InvalidSetting, match=r"format says iceberg, and the table a .* delta"):
        ResultWorld(path="a", format="iceberg", **there).task([])
    with pytest.raises(InvalidSetting, match="keys says city, and the table a was made with none"):
        ResultWorld(path="a", keys="city", **there).task([])
    save_spec(TableSpec(name="orders", topics=("orders",), location=str(tmp_path / "orders")))
    with pytest.raises(InvalidSetting, match=r"has the records of orders .* no query can write it"):
        ResultWorld(path="orders", **there).task([])


def test_commands(tmp_path: Path) -> None:
    """What a table of topics has besides is refused; the proof finds what is wrong."""
    tables = ["--tables", str(tmp_path)]
    world = ResultWorld(path="counts", tables=str(tmp_path), keys="city")
    for number in range(3):
        world.batch("q", number, [("B", number), ("C", 1)])

    def run(*words: str) -> tuple[int, str]:
        done = CliRunner().invoke(cli, ["table", *words, *tables])
        return done.exit_code, done.output

    assert "of queries" in run("list")[1]
    code, text = run("status", "counts")
    assert code == 0
    assert "delta, upsert by city" in text
    assert "2 in 1 file" in text
    assert json.loads(run("status", "counts", "--json")[1])["queries"][0]["batch_id"] == 2
    assert "batch 2 of q" in run("history", "counts")[1]
    assert "files of rows" in run("explain", "counts")[1]
    assert run("compact", "counts")[0] == 0
    for words in (
        ["run"],
        ["doctor"],
        ["rebuild"],
        ["diff"],
        ["upgrade"],
        ["dead-letters", "list"],
    ):
        code, text = run(*words, "counts")
        assert (code, "has the results of Spark's queries" in text) == (2, True), words
    checkpoint = tmp_path / "ck"
    for log in ("offsets", "commits"):
        (checkpoint / log).mkdir(parents=True)
        for number in range(3):
            (checkpoint / log / str(number)).touch()
    assert "is no checkpoint" in run("verify", "counts", "--checkpoint", str(checkpoint))[1]
    (checkpoint / "metadata").write_text('{"id":"q"}')
    assert run("verify", "counts", "--checkpoint", str(checkpoint))[0] == 0
    (checkpoint / "commits" / "2").unlink()
    text = run("verify", "counts", "--checkpoint", str(checkpoint))[1]
    assert "Batch 2 is in the table and not yet committed" in text
    (checkpoint / "commits" / "4").touch()
    code, text = run("verify", "counts", "--checkpoint", str(checkpoint))
    assert (code, "Batches 3 to 4 are committed in" in text) == (1, True)
    table = strandline.open_table("counts", tmp_path)
    assert table.verify().is_good
    assert not table.verify(checkpoint=checkpoint).is_good
    with pytest.raises(InvalidSetting, match="since is for tables of topics"):
        table.to_arrow(since=1)
    assert sorted(table.to_arrow(commit=1)["count"].to_pylist()) == [0, 1]
    next(iter(world.store.files())).path.local.unlink()
    code, text = run("verify", "counts")
    assert (code, "1 of 1 files that the table names" in text) == (1, True)
    assert run("drop", "counts", "--yes")[0] == 0
    assert not (tmp_path / "counts").exists()
