"""A batch of a query is in its table once, whatever happens to its commit; and who may write."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.expressions import GreaterThanOrEqual

from strandline.errors import InvalidSetting
from strandline.lakehouse.locations.errors import StoreTrouble
from strandline.lakehouse.results import committing
from strandline.lakehouse.results.committing import Batch, ResultCommitter
from strandline.lakehouse.results.errors import UnfitRows
from strandline.lakehouse.results.format import ResultStreamWriter
from strandline.lakehouse.results.merging import _Limits
from strandline.lakehouse.tables.backend import Backend, Change, OutcomeUnknown, Snapshot
from strandline.lakehouse.tables.committing import COMMITTED, REPLAYED
from strandline.lakehouse.tables.errors import BadTable, FencedWriter
from strandline.lakehouse.tables.iceberg import IcebergSnapshot
from strandline.lakehouse.tables.store import TableStore
from tests.lakehouse.locations.s3_server import Fault, S3Server
from tests.lakehouse.results.result_world import SCHEMA, ResultWorld, spark_schema

TIME = pa.timestamp("us", "UTC")
KEYED = {"keys": "city"}


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


def test_a_table_that_lost_its_marks_is_refused(tmp_path: Path) -> None:
    """No batch could be known again."""
    world = ResultWorld(path=str(tmp_path / "counts"))
    world.batch("q", 0, [("B", 1)])
    for path in (world.store.spec.directory().local / "_delta_log").glob("*.json"):
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(line for line in lines if '"txn"' not in line))
    with pytest.raises(BadTable, match="counts has lost its marks"):
        world.batch("q", 0, [("B", 1)])
    assert world.rows() == [("B", 1)]


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
    assert [each.rows for each in touched(changed, store.files())] == [1]
    snapshot = store.snapshot_at(None)
    if isinstance(snapshot, IcebergSnapshot):  # another reader of Iceberg passes over files, too
        # Its annotations are those of what it keeps, and not of what it takes.
        later = GreaterThanOrEqual("w.s", window(2)["s"])  # type: ignore[call-arg, arg-type]
        assert len(list(snapshot.table.scan(row_filter=later).plan_files())) == 1


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


@pytest.mark.parametrize("division", ["city", "truncate(2, city)"])
def test_empty_text_is_a_key_of_its_own_in_divisions(
    options: dict[str, str], division: str
) -> None:
    """Delta's log takes the division of such a row for null, and its row stayed for ever."""
    world = ResultWorld(**options, keys="city", partition_by=division)
    for number in range(3):
        world.batch("q", number, [(city, number) for city in ("", None, "B")])
    assert world.rows() == [("", 2), ("B", 2), (None, 2)]
    assert world.proof().is_good


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


def test_rows_that_replace_all_have_each_key_once(options: dict[str, str]) -> None:
    """They were taken as they came, and the table had two rows of a key."""
    world = ResultWorld(**options, keys="city")
    world.job([("B", 1), ("C", 1)], overwrite=True)
    with pytest.raises(UnfitRows, match=r"two rows of one key \(city=B\)"):
        world.job([("B", 2), ("B", 3)], overwrite=True)
    with pytest.raises(UnfitRows, match=r"two rows of one key \(city=None\)"):
        world.batch("q", 0, [(None, 2), ("C", 1), (None, 3)], replaces=True)
    assert world.rows() == [("B", 1), ("C", 1)]
    assert world.files() == 2
    world.batch("q", 0, [(None, 2), ("B", 3)], replaces=True)
    assert world.rows() == [("B", 3), (None, 2)]


def test_a_batch_that_comes_behind_new_columns_is_known(
    options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that is late commits a batch between the new columns of its successor's and that."""
    world = ResultWorld(**options)
    world.batch("q", 0, [("B", 1)])
    wider = {**SCHEMA, "share": pa.float64()}
    committer = world.committer(wider)
    backend = committer.store.backend
    evolve = backend.evolve

    def and_then_another_commits(*given: Any) -> None:
        evolve(*given)
        monkeypatch.undo()
        world.batch("q", 1, [("C", 1)])

    monkeypatch.setattr(backend, "evolve", and_then_another_commits)
    done = committer.commit(Batch("q", 1, False), [world.task([("C", 1, 0.5)], wider)])
    assert done.outcome == REPLAYED
    assert world.rows() == [("B", 1, None), ("C", 1, None)]
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


def test_every_so_often_small_files_are_joined(
    options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a commit; what goes wrong with that is no fault of the batch."""
    monkeypatch.setattr(committing, "TIDY_EVERY", 4)
    world = ResultWorld(**options)
    for number in range(4):
        world.batch("q", number, [("B", number)])
    assert [each.kind for each in world.store.history(2)] == ["compaction", "batch"]
    assert len(world.store.files()) == 1
    monkeypatch.setattr(TableStore, "compact", trouble)
    for number in range(4, 8):
        assert world.batch("q", number, [("B", number)]).outcome == COMMITTED
    assert len(world.rows()) == 8
    assert world.proof().is_good


def trouble(*_: object, **__: object) -> None:
    raise StoreTrouble("The store is too busy.")


def test_what_an_abort_removes(options: dict[str, str]) -> None:
    """Spark calls it after a failed commit too, which may have been made: then nothing goes."""
    schema = spark_schema(SCHEMA)
    rows = pa.RecordBatch.from_pydict({"city": ["B"], "count": pa.array([1], pa.int32())})
    writer = ResultStreamWriter(options, schema, complete=False)
    written = [writer.write(iter([rows])) for _ in range(2)]
    writer.abort([written[0], None], 0)
    world = ResultWorld(**options)
    assert world.files() == 1
    writer.abort([written[1]], 0)
    assert world.files() == 1
    with pytest.raises(BadTable, match="did not tell its tasks for which query they write"):
        writer.commit([written[1]], 0)
    other = ResultStreamWriter(options, schema, complete=False)  # as Spark makes it for the commit
    other.commit([replace(written[1], query_id="q")], 0)
    other.abort([written[1], None], 0)
    assert world.rows() == [("B", 1)], "what the table names stays"


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


def test_a_doubled_batch_is_found(options: dict[str, str]) -> None:
    """Written past the rules: the proof sees it."""
    world = ResultWorld(**options)
    world.batch("q", 0, [("B", 1)])
    committer: ResultCommitter = world.committer()
    write = world.task([("B", 1)])
    committer._propose(committer._backend.load(), Batch("q", 0, False), list(write.files))
    assert "Batch 0 of query q is in the table more than once." in world.proof().wrong
