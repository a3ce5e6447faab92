"""A batch of a query is in its table once, whatever happens to its commit; and who may write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

import strandline
from strandline.cli.main import cli
from strandline.errors import InvalidSetting
from strandline.lakehouse.locations.errors import StoreTrouble
from strandline.lakehouse.results.columns import UnfitRows
from strandline.lakehouse.results.committing import Batch, ResultCommitter
from strandline.lakehouse.results.merging import _Limits
from strandline.lakehouse.tables.backend import Backend, Change, OutcomeUnknown, Snapshot
from strandline.lakehouse.tables.committing import COMMITTED, REPLAYED
from strandline.lakehouse.tables.definition import TableSpec
from strandline.lakehouse.tables.errors import BadTable, FencedWriter, TableMissing
from strandline.lakehouse.tables.spec import save_spec
from tests.lakehouse.locations.s3_server import Fault, S3Server
from tests.lakehouse.results.result_world import ResultWorld, Schema

TIME = pa.timestamp("us", "UTC")
KEYED = {"keys": "city"}


@pytest.fixture(params=["delta", "iceberg"])
def options(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    return {"path": "counts", "tables": str(tmp_path), "format": str(request.param)}


def test_batches_are_recognised(options: dict[str, str]) -> None:
    """Also one without rows: the numbers of a query are without gaps."""
    world = ResultWorld(**options)
    assert world.batch("q", 0, [("B", 1), ("C", 2)]).outcome == COMMITTED
    assert world.batch("q", 1, []).outcome == COMMITTED
    assert world.batch("q", 2, [("B", 3)]).outcome == COMMITTED
    files = world.files()
    assert world.batch("q", 2, [("B", 3)]).outcome == REPLAYED
    assert world.batch("q", 0, [("B", 1), ("C", 2)]).outcome == REPLAYED
    assert world.files() == files, "what a repetition wrote goes"
    assert world.rows() == [("B", 1), ("B", 3), ("C", 2)]
    world.store.compact(min_files=2)
    assert world.batch("q", 2, [("B", 3)]).outcome == REPLAYED
    assert world.batch("q", 3, [("D", 4)]).outcome == COMMITTED
    report = world.proof()
    assert report.is_good, report.sentences()
    assert [tuple(each) for each in report.queries] == [("q", 0, 3, 4)]
    assert [each.kind for each in world.store.history()][:2] == ["batch", "compaction"]


def test_rows_by_key(options: dict[str, str]) -> None:
    """A null is a key, fields of structs are parts of keys, and files without hits stay."""
    schema = {"w": pa.struct({"s": TIME, "e": TIME}), "city": pa.string(), "count": pa.int32()}
    world = ResultWorld(**options, keys="w, city")

    def window(minute: int) -> dict[str, Any]:
        return {"s": minute * 60_000_000, "e": (minute + 1) * 60_000_000}

    world.batch("q", 0, [(window(0), "B", 1), (window(1), None, 2), (None, "B", 3)], schema=schema)
    world.batch("q", 1, [(window(2), "B", 4)], schema=schema)
    world.batch(
        "q", 2, [(window(1), None, 20), (None, "B", 30), (window(1), "B", 5)], schema=schema
    )
    rows = world.store.dataset().to_table().to_pylist()
    assert sorted(row["count"] for row in rows) == [1, 4, 5, 20, 30]
    assert world.proof().is_good
    newest = world.store.history(1)[0]
    assert (newest.rows, newest.files_removed) == (3, 1), "the file of batch 1 stays"
    with pytest.raises(UnfitRows, match=r"two rows of one key \(w=None, city=C\)"):
        world.batch("q", 3, [(None, "C", 1), (None, "C", 2)], schema=schema)
    assert world.files() == 3
    store = world.store
    touched = _Limits(store.spec, store.snapshot_at(None)).touched
    changed = [
        store.spec.directory() / each.path
        for each in world.task([(window(2), "C", 1)], schema).files
    ]
    # pyiceberg notes no bounds of fields of structs.
    read = [1] if store.spec.format == "delta" else [1, 4]
    assert sorted(each.rows for each in touched(changed, store.files())) == read


def test_rows_by_key_in_divisions(options: dict[str, str]) -> None:
    world = ResultWorld(**options, keys="id", partition_by="bucket(2, id)")
    schema = {"id": pa.int32(), "n": pa.int32()}
    world.batch("q", 0, [(each, 0) for each in range(8)], schema=schema)
    world.batch("q", 1, [(each, 1) for each in range(6, 10)], schema=schema)
    found = {row["id"]: row["n"] for row in world.store.dataset().to_table().to_pylist()}
    assert found == {each: int(each > 5) for each in range(10)}
    assert world.proof().is_good
    world.batch("q", 2, [(100, 2)], schema=schema)
    assert world.store.history(1)[0].files_removed == 0, "its bounds exclude the key"


def test_a_complete_batch_replaces_all(options: dict[str, str]) -> None:
    world = ResultWorld(**options)
    world.batch("q", 0, [("B", 1)], replaces=True)
    world.batch("q", 1, [("B", 2), ("C", 1)], replaces=True)
    assert world.batch("q", 1, [("B", 2), ("C", 1)], replaces=True).outcome == REPLAYED
    assert world.rows() == [("B", 2), ("C", 1)]
    world.job([("X", 9)])
    world.batch("q", 2, [], replaces=True)
    assert world.rows() == []
    assert world.proof().is_good


def test_jobs(options: dict[str, str]) -> None:
    """They do not take the table from a query."""
    world = ResultWorld(**options)
    world.job([("B", 1)])
    world.batch("q", 0, [("C", 2)])
    world.job([("D", 3)])
    world.batch("q", 1, [("E", 4)])
    assert world.rows() == [("B", 1), ("C", 2), ("D", 3), ("E", 4)]
    world.job([("Z", 0)], overwrite=True)
    assert world.rows() == [("Z", 0)]
    kinds = [each.kind for each in world.store.history()]
    assert kinds == ["overwrite", "batch", "append", "batch", "append"]
    assert world.proof().is_good


class _Losing:
    """A backend the answers of whose commits are lost; with `at_once` also the commits."""

    def __init__(self, inner: Backend, *, at_once: bool) -> None:
        self._inner = inner
        self._at_once = at_once

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def commit(self, snapshot: Snapshot, change: Change) -> int:
        if not self._at_once:
            self._inner.commit(snapshot, change)
        raise OutcomeUnknown("No answer.")


@pytest.mark.parametrize("keys", [{}, KEYED])
def test_a_lost_answer(options: dict[str, str], keys: dict[str, str]) -> None:
    """The table knows whether the commit was made. If that cannot be said, no file goes."""
    world = ResultWorld(**options, **keys)
    world.batch("q", 0, [("B", 1)])
    committer = world.committer()
    committer._backend = _Losing(committer._backend, at_once=False)
    assert committer.commit(Batch("q", 1, False), [world.task([("B", 2)])]).outcome == COMMITTED
    committer = world.committer()
    committer._backend = _Losing(committer._backend, at_once=True)
    write = world.task([("B", 3)])
    with pytest.raises(StoreTrouble, match="will be seen in the table"):
        committer.commit(Batch("q", 2, False), [write])
    directory = world.store.spec.directory()
    assert all((directory / each.path).local.exists() for each in write.files)
    assert world.batch("q", 2, [("B", 3)]).outcome == COMMITTED
    assert world.rows() == ([("B", 3)] if keys else [("B", 1), ("B", 2), ("B", 3)])
    assert world.proof().is_good


def test_a_store(s3: S3Server, bucket: str) -> None:
    world = ResultWorld(path=f"s3://{bucket}/gold/counts", keys="city")
    world.batch("q", 0, [("B", 1), ("C", 1)])
    s3.plant(Fault("PUT", "/data/_delta_log/0", lose=True))
    assert world.batch("q", 1, [("B", 2)]).outcome == COMMITTED
    s3.plant()
    assert world.batch("q", 1, [("B", 2)]).outcome == REPLAYED
    assert world.rows() == [("B", 2), ("C", 1)]
    assert world.proof().is_good
    with pytest.raises(InvalidSetting, match="needs a catalog, which decides"):
        ResultWorld(path=f"s3://{bucket}/gold/other", format="iceberg").task([])


def test_a_name_in_a_catalog(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path / 'names.db'}"
    world = ResultWorld(
        path=str(tmp_path / "gold" / "counts"),
        catalog="sql",
        catalog_properties=json.dumps({"uri": uri}),
        namespace="gold",
    )
    world.batch("q", 0, [("B", 1)])
    from pyiceberg.catalog.sql import SqlCatalog

    named = SqlCatalog("strandline", uri=uri).load_table("gold.counts")
    assert named.scan().to_arrow().to_pylist() == [{"city": "B", "count": 1}]


def test_another_query(options: dict[str, str]) -> None:
    world = ResultWorld(**options)
    world.batch("first", 0, [("B", 1)])
    files = world.files()
    with pytest.raises(FencedWriter, match=r"written by another query than second.*takeover=true"):
        world.batch("second", 0, [("C", 1)])
    assert world.files() == files
    world.saying(takes_over=True).batch("second", 0, [("C", 1)])
    for again in (world, world.saying(takes_over=True)):
        with pytest.raises(FencedWriter, match="since batch 0 of query first; this one must stop"):
            again.batch("first", 1, [("D", 1)])
    together = world.saying(shared=True)
    together.batch("first", 1, [("D", 1)])
    together.batch("second", 1, [("E", 1)])
    assert together.batch("first", 1, [("D", 1)]).outcome == REPLAYED
    assert [row[0] for row in world.rows()] == ["B", "C", "D", "E"]
    assert world.proof().is_good


def test_a_gap(options: dict[str, str]) -> None:
    """As after the table was dropped, and its query went on."""
    world = ResultWorld(**options)
    with pytest.raises(BadTable, match=r"has none of this query, and would lack .* batch 0 on"):
        world.batch("q", 3, [("B", 1)])
    world.saying(accepts_gap=True).batch("q", 3, [("B", 1)])
    with pytest.raises(BadTable, match="has batch 3 of it, and would lack what came from batch 4"):
        world.batch("q", 5, [("B", 1)])
    report = world.proof()
    assert report.is_good
    assert "Batches 0 to 2 of query q are not in the table: the query was" in str(report.notes)


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
    assert world.proof().is_good


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
        ({"n": pa.int32()}, "keys names city, and the rows have no such column: they have n"),
        ({"city": pa.list_(pa.string())}, "keys names city: lists and maps are no keys"),
    ],
)
def test_rows_that_no_table_has(tmp_path: Path, schema: Schema, sentence: str) -> None:
    world = ResultWorld(path=str(tmp_path / "t"), keys="city")
    with pytest.raises(UnfitRows, match=sentence):
        world.task([], schema=schema)
    assert not (tmp_path / "t").exists(), "nothing is made for rows that do not fit"


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


def test_a_doubled_batch_is_found(options: dict[str, str]) -> None:
    """Written past the rules: the proof sees it."""
    world = ResultWorld(**options)
    world.batch("q", 0, [("B", 1)])
    committer: ResultCommitter = world.committer()
    write = world.task([("B", 1)])
    committer._propose(committer._backend.load(), Batch("q", 0, False), list(write.files))
    assert "Batch 0 of query q is in the table more than once." in world.proof().wrong
