"""Tables read by their names: in programs, in SQL, in Spark; now, at a commit, and since one."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession
from pyspark.sql.datasource import EqualTo, GreaterThan, In, IsNull, LessThan, StringStartsWith

import strandline
from strandline.cli.main import cli
from strandline.errors import InvalidSetting
from strandline.lakehouse.query.filters import expression_of
from strandline.lakehouse.tables.definition import parse_partitioning
from strandline.lakehouse.tables.errors import TableMissing
from strandline.lakehouse.tables.spec import save_spec
from strandline.lakehouse.tables.store import TableStore
from tests.lakehouse.tables.table_world import TableWorld


def orders(tables: Path, **fields: object) -> TableWorld:
    """The table `orders` with three commits, the last of which has a new column."""
    table = TableWorld(tables / "orders", name="orders", columns={"city": "string"}, **fields)
    save_spec(table.spec)
    table.batch("q", 0, [{"n": 1, "city": "B"}, {"n": 2, "city": "C"}])
    table.batch("q", 1, [{"n": 3, "city": "B"}, b"{"], start=2)
    table.batch("q", 2, [{"n": 4, "city": "B", "half": 0.5}], start=4)
    return table


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_rows_of_a_moment(tmp_path: Path, table_format: str) -> None:
    """A compaction moves no row into another commit."""
    world = orders(tmp_path, format=table_format)
    world.store.compact(min_files=2)
    table = strandline.open_table("orders", tmp_path)
    assert sorted(table.to_arrow()["n"].to_pylist()) == [1, 2, 3, 4]
    assert table.to_arrow(commit=1).column_names == [
        name for name in table.to_arrow().column_names if name != "half"
    ]
    assert sorted(table.to_arrow(["n"], commit=2)["n"].to_pylist()) == [1, 2, 3]
    assert table.to_arrow(["n"], since=2).to_pylist() == [{"n": 4}]
    assert table.to_arrow(["n"], commit=2, since=1).to_pylist() == [{"n": 3}]
    assert table.to_arrow(["n"], since=4).num_rows == 0
    where = (pc.field("city") == "B") & (pc.field("n") > 1)
    assert sorted(table.to_pandas(["n"], where=where)["n"]) == [3, 4]
    with pytest.raises(InvalidSetting, match=r"no commit 9, or none any more\. The commits 1 to"):
        table.to_arrow(commit=9)
    with pytest.raises(InvalidSetting, match="has no column 'm'"):
        table.to_arrow(["m"])


def test_since_the_beginning_is_refused_when_the_first_commits_are_not_known_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders(tmp_path)
    table = strandline.open_table("orders", tmp_path)
    assert sorted(table.to_arrow(["n"], since=0)["n"].to_pylist()) == [1, 2, 3, 4]
    history = TableStore.history
    for known in (2, 0):
        with monkeypatch.context() as patched:
            patched.setattr(TableStore, "history", lambda store, n=known: history(store)[:n])
            with pytest.raises(InvalidSetting, match=r"no commit 1, or none any more\."):
                table.to_arrow(since=0)
    save_spec(TableWorld(tmp_path / "new", name="new").spec)
    assert strandline.open_table("new", tmp_path).to_arrow(since=0).num_rows == 0


def test_a_table_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    orders(tmp_path)
    monkeypatch.setenv("STRANDLINE_TABLES", str(tmp_path))
    assert strandline.open_table("orders").spec.name == "orders"
    assert strandline.open_table(str(tmp_path / "orders")).spec.name == "orders"
    with pytest.raises(TableMissing, match=r"no table 'other' in .*STRANDLINE_TABLES"):
        strandline.open_table("other")


def test_sql_without_spark(tmp_path: Path) -> None:
    """Side tables too; a statement that is wrong, or reaches for files, is refused."""
    orders(tmp_path)

    def ask(sql: str, *options: str, code: int = 0) -> str:
        where = ("--tables", str(tmp_path))
        ended = CliRunner().invoke(cli, ["table", "query", sql, *where, *options])
        assert ended.exit_code == code, ended.output
        return str(ended.output)

    counting = "select city, count(*) as orders from orders group by city order by city"
    assert ask(counting).split() == ["CITY", "ORDERS", "B", "3", "C", "1"]
    lines = ask(counting, "--json").splitlines()
    assert [json.loads(line) for line in lines] == [
        {"city": "B", "orders": 3},
        {"city": "C", "orders": 1},
    ]
    assert "BadValue" in ask("select error_class, payload from orders__dead_letters")
    assert ask("select count(*) as n from orders__late").split() == ["N", "0"]
    assert "nothing" in ask("select * from nothing", code=2)
    secret = tmp_path / "secret.csv"
    secret.write_text("a\n1\n")
    assert "disabled" in ask(f"select * from read_csv('{secret}')", code=2)


def test_filters_mean_what_they_mean_to_spark(tmp_path: Path) -> None:
    schema = orders(tmp_path).store.dataset().schema
    rows = strandline.open_table("orders", tmp_path).dataset()
    for given, numbers in (
        (EqualTo(("city",), "B"), [1, 3, 4]),
        (GreaterThan(("n",), 2), [3, 4]),
        (In(("n",), (1, 9)), [1]),
        (StringStartsWith(("city",), "C"), [2]),
        (IsNull(("half",)), [1, 2, 3]),
    ):
        wanted = expression_of(given, schema)
        assert sorted(rows.to_table(filter=wanted)["n"].to_pylist()) == numbers, given
    structs = pa.array([{"a": {"b": 1}}, {"a": None}, None, {"a": {"b": 3}}])
    pq.write_table(pa.table({"s": structs}), tmp_path / "structs.parquet", row_group_size=2)
    nested = ds.dataset(tmp_path / "structs.parquet")
    for given, count in (
        (GreaterThan(("s", "a", "b"), 1), 1),
        (IsNull(("s", "a", "b")), 2),
        (IsNull(("s", "a")), 2),
        (IsNull(("s",)), 1),
    ):
        assert nested.count_rows(filter=expression_of(given, nested.schema)) == count, given
    assert expression_of(EqualTo(("s", "a"), {"b": 1}), nested.schema) is None
    for left_to_spark in (
        LessThan(("half",), 1.0),
        EqualTo(("city", "x"), 1),
        EqualTo(("other",), 1),
        EqualTo(("n",), "x"),
    ):
        assert expression_of(left_to_spark, schema) is None, left_to_spark


def test_a_null_is_in_no_list() -> None:
    rows = ds.dataset(pa.table({"n": [1, None, 2]}))
    for listed, found in (((1, None), [1]), ((None,), []), ((2, 1), [1, 2])):
        wanted = expression_of(In(("n",), listed), rows.schema)
        assert rows.to_table(filter=wanted)["n"].to_pylist() == found, listed


def test_spark_reads_a_table_by_its_name(spark: SparkSession, tmp_path: Path) -> None:
    """With filters handed over and without; at a commit, and since one."""
    orders(tmp_path, partition_by=parse_partitioning("city"))

    def numbers(where: str = "true", **options: object) -> list[int]:
        reader = spark.read.format("strandline_table").option("tables", str(tmp_path))
        rows = reader.options(**options).load("orders").where(where)  # type: ignore[arg-type]
        return sorted(row.n for row in rows.select("n").collect())

    assert numbers() == [1, 2, 3, 4]
    assert numbers(commit=2) == [1, 2, 3]
    assert numbers(since=1) == [3, 4]
    pushes = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(pushes, "true")
    try:
        assert numbers("city = 'B' and n > 1 and (half is null or half < 1)") == [3, 4]
        rows = spark.read.format("strandline_table").load(str(tmp_path / "orders"))
        filtered = rows.where("city = 'B' and n > 1 and half < 1")
        plan = filtered._jdf.queryExecution().executedPlan().toString()
        [left] = [line for line in plan.splitlines() if "Filter (" in line]
        assert "half" in left
        assert "city" not in left, "what pyarrow filters is not looked at again"
    finally:
        spark.conf.unset(pushes)
    assert numbers("city = 'B' and n > 1") == [3, 4]
