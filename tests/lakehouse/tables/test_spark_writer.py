"""Batches that Delta's own writer for Spark puts into a table: the same rows, exactly once as well,
beside commits of this package that never go through Spark."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from strandline.errors import InvalidSetting
from strandline.lakehouse.tables import commit_lock
from strandline.lakehouse.tables.backend import Change, Conflict
from strandline.lakehouse.tables.committing import COMMITTED, NOTHING_NEW, REPLAYED
from strandline.lakehouse.tables.definition import DEAD_LETTERS, LATE, parse_partitioning
from strandline.lakehouse.tables.delta import DeltaBackend
from strandline.lakehouse.tables.delta_spark import SparkDeltaBackend, check_jars
from strandline.lakehouse.tables.errors import BadTable, FencedWriter, RangeOverlap
from strandline.lakehouse.tables.identity import BatchIdentity, Frontier, OffsetRange
from strandline.lakehouse.tables.store import TableStore, open_store
from strandline.lakehouse.tables.written import WrittenFile
from strandline.types import TopicPartition
from tests.lakehouse.conftest import DELTA_JARS
from tests.lakehouse.results.result_world import ResultWorld
from tests.lakehouse.tables.table_world import TOPIC, TableWorld, Value
from tests.lakehouse.tables.test_crashes import Crash, crash_at

pytestmark = pytest.mark.skipif(not DELTA_JARS, reason="the jars of Delta's writer are not there")

DAY_MS = 86_400_000
FIELDS: dict[str, Any] = {
    "columns": {"at": "timestamp", "s": "string", "n": "long"},
    "event_time": "at",
    "watermark_ms": DAY_MS,
    "partition_by": parse_partitioning("day(at), truncate(2, s), bucket(3, n)"),
    "keep_key": True,
}
FIRST: list[Value] = [
    {"at": "2026-03-01T05:00:00.123456Z", "s": "ü=% :/", "n": 1, "deep": {"a": [1, 2], "b": "x"}},
    {"at": "0001-02-03T04:05:06Z", "s": None, "n": -(2**63), "deep": {"a": []}},
    {
        "at": None,
        "s": "",
        "n": None,
        "_metadata": {"file_name": 1},
        "_strandline_file": "a",
        "`": 2,
    },
    b"poison",
    {"at": "2026-03-01T23:59:59.999999Z", "s": "ü=%!", "n": 2**63 - 1, "list": [{"c": True}]},
]
SECOND: list[Value] = [
    {"at": "2026-03-03T00:00:00Z", "s": "𝄞 clef", "n": 5, "deep": {"z": 1.5}, "new": "column"},
    {"at": "2026-02-01T00:00:00Z", "s": "late", "n": 6},
    None,
    {"n": "no number"},
]


class SparkWorld(TableWorld):
    """A table that Spark writes. `plain` is its store without Spark, as other commands have it."""

    def __init__(self, spark: SparkSession, directory: Path, **fields: Any) -> None:
        self.spark = spark
        super().__init__(directory, **{"writer": "spark", **fields})
        self.reopen()

    def reopen(self) -> TableStore:
        self.store = open_store(self.spec, spark=self.spark)
        return self.store

    @property
    def plain(self) -> TableStore:
        return open_store(self.spec)

    def by(self, backend: SparkDeltaBackend) -> TableStore:
        return TableStore(self.spec, backend)


class Interrupted(SparkDeltaBackend):
    """Something happens when Delta has written its files, and before it commits them."""

    def __init__(self, world: SparkWorld, between: Callable[[], object]) -> None:
        super().__init__(world.spark, world.spec.directory(), world.spec.partition_by)
        self.between = between

    def _check(self, paths: Sequence[str], given: Sequence[WrittenFile]) -> None:
        super()._check(paths, given)
        between, self.between = self.between, lambda: None
        between()


@pytest.fixture
def make_table(spark: SparkSession, tmp_path: Path) -> Callable[..., SparkWorld]:
    numbers = count()
    return lambda **fields: SparkWorld(spark, tmp_path / f"table-{next(numbers)}", **fields)


MakeTable = Callable[..., SparkWorld]


def seeded(table: SparkWorld, batches: int = 1) -> SparkWorld:
    """With rows, which our own writer committed: that takes less time."""
    table.store = table.plain
    for number in range(batches):
        table.batch("q", number, [{"a": number}], start=number)
    table.reopen()
    return table


def sorted_rows(table: TableWorld, side: str | None = None) -> pa.Table:
    rows = table.store.dataset(side).to_table()
    return rows.select(sorted(rows.column_names)).sort_by("kafka_offset")


def test_its_rows_letters_and_history_are_those_of_our_own_writer(
    make_table: MakeTable, tmp_path: Path
) -> None:
    """With types, names and values that go wrong easily; then cared for without Spark."""
    ours, theirs = TableWorld(tmp_path / "ours", **FIELDS), make_table(**FIELDS)
    for table in (ours, theirs):
        keys = [b"k", b"\x00\xff", None, b"", b"k"]
        assert table.batch("q", 0, FIRST, keys=keys, epoch=3).rows == 4
        assert table.batch("q", 1, SECOND, start=5, epoch=4).outcome == COMMITTED
    for side in (None, LATE, DEAD_LETTERS):
        assert sorted_rows(theirs, side).equals(sorted_rows(ours, side)), side
    told = [
        [replace(each, at_ms=0, version=0, files_added=0) for each in table.store.history()]
        for table in (ours, theirs)
    ]
    assert told[0] == told[1]
    assert len(told[0]) == 2
    assert theirs.plain.state() == theirs.store.state()
    assert theirs.store.frontier(TopicPartition(TOPIC, 0)) == Frontier(0, 9, 4)

    def read_by_delta(table: TableWorld) -> list[Any]:
        rows = theirs.spark.read.format("delta").load(str(table.spec.directory()))
        columns = [
            "kafka_offset",
            "at_day",
            "nullif(s_trunc, '')",
            "n_bucket",
            "at",
            "s",
            "n",
            "new",
        ]
        return sorted(rows.selectExpr(*columns).collect())

    assert read_by_delta(theirs) == read_by_delta(ours)
    live = {each.path.local for each in theirs.plain.files()}
    assert data_files(theirs) == live, "what the tasks wrote is gone"
    assert all(path.parent != theirs.spec.directory().local for path in live), "Spark wrote it"

    before = theirs.offsets()
    theirs.batch("q", 2, [SECOND[0], SECOND[0]], start=9)
    assert theirs.plain.compact(min_files=2).files_before > 1
    theirs.reopen()
    assert theirs.offsets() == [*before, 9, 10]
    assert len(read_by_delta(theirs)) == len(theirs.offsets())
    theirs.plain.vacuum(now_ms=2**42, older_than_ms=0)
    assert data_files(theirs) == {each.path.local for each in theirs.plain.files()}
    assert theirs.batch("q", 3, SECOND, start=11).outcome == COMMITTED


def data_files(table: TableWorld) -> set[Path]:
    """What lies in the table's directory beside its log, also if only its checksum does."""
    found = [path for path in table.spec.directory().local.rglob("*part-*") if path.is_file()]
    return {
        path.with_name(path.name.removeprefix(".").removesuffix(".crc"))
        for path in found
        if "_delta_log" not in path.parts
    }


def test_a_replay_a_fresh_checkpoint_and_an_older_query(make_table: MakeTable) -> None:
    """As with our own writer, whichever of the two made the commit before."""
    table = make_table()
    table.batch("q", 0, [{"a": 0}, b"bad", {"a": 2}])
    assert open_store(table.spec).committed("q") == 0
    table.reopen()
    assert table.batch("q", 0, [{"a": 0}, b"bad", {"a": 2}]).outcome == REPLAYED
    table.store = table.plain
    assert table.batch("q", 0, [{"a": 0}, b"bad", {"a": 2}]).outcome == REPLAYED
    assert table.batch("fresh", 0, [{"a": 0}]).outcome == NOTHING_NEW
    table.reopen()
    result = table.batch("fresh", 1, [b"bad", {"a": 2}, {"a": 3}], start=1)
    assert result.ranges == (OffsetRange(TOPIC, 0, 3, 4),)
    assert table.batch("fresh", 2, [b"only a letter"], start=4).dead_letters == 1
    table.store = table.plain
    with pytest.raises(FencedWriter, match="Another query writes the table"):
        table.batch("q", 1, [{"a": 5}], start=5)
    assert table.batch("fresh", 3, [{"a": 5}], start=5).outcome == COMMITTED
    assert (table.offsets(), table.letters()) == ([0, 2, 3, 5], [1, 4])


def test_delta_itself_refuses_a_commit_after_another_of_ours(make_table: MakeTable) -> None:
    """Its transaction has read the marks that the other commit set, or the columns."""
    table = seeded(make_table())
    plain = DeltaBackend(table.spec.directory(), ())

    def conflict_with(between: Callable[[], object]) -> str:
        backend = Interrupted(table, between)
        written = table.task([{"a": 1}], start=1)
        change = Change(adds=written.files, marks={"strandline/sequence": 2})
        with pytest.raises(Conflict) as refused:
            backend.commit(backend.load(), change)
        table.store.discard([written])
        return str(refused.value)

    same_mark = Change(marks={"strandline/sequence": 1})
    said = conflict_with(lambda: plain.commit(plain.load(), same_mark))
    assert "DELTA_CONCURRENT_TRANSACTION" in said
    wider = pa.schema([*table.store.state().schema, pa.field("b", pa.int64())])
    said = conflict_with(lambda: plain.evolve(plain.load(), wider))
    assert "DELTA_METADATA_CHANGED" in said
    backend = Interrupted(table, lambda: None)
    stale = backend.load()
    plain.commit(plain.load(), same_mark)
    with pytest.raises(Conflict, match="moved on"):
        backend.commit(stale, Change(marks={"strandline/sequence": 2}))
    assert table.offsets() == [0]


def test_of_two_writers_at_once_one_commits(make_table: MakeTable) -> None:
    """The other has its files written, and looks at the table again: its batch is there already,
    or must be written again without the rows that the table now has."""
    table = seeded(make_table())
    other = table.store
    again = BatchIdentity("q", 1, (OffsetRange(TOPIC, 0, 1, 3),))
    mine, theirs = (table.task([{"a": 1}, {"a": 2}], start=1) for _ in range(2))
    store = table.by(Interrupted(table, lambda: other.commit(again, [theirs])))
    assert store.commit(again, [mine]).outcome == REPLAYED

    mine, theirs = (table.task([{"a": 3}, {"a": 4}], start=3) for _ in range(2))
    taken = BatchIdentity("other", 0, (OffsetRange(TOPIC, 0, 3, 5),))
    store = table.by(Interrupted(table, lambda: other.commit(taken, [theirs])))
    with pytest.raises(RangeOverlap):
        store.commit(BatchIdentity("new", 0, (OffsetRange(TOPIC, 0, 3, 5),)), [mine])
    assert table.offsets() == [0, 1, 2, 3, 4]
    assert [each.query_id for each in table.store.history()] == ["other", "q", "q"]


def test_another_writers_commit_is_no_conflict(make_table: MakeTable) -> None:
    table = seeded(make_table(), 2)
    theirs = DeltaTable(str(table.spec.directory()))
    store = table.by(Interrupted(table, theirs.optimize.compact))
    written = table.task([{"a": 2}], start=2)
    result = store.commit(BatchIdentity("q", 2, (OffsetRange(TOPIC, 0, 2, 3),)), [written])
    assert (result.outcome, result.version) == (COMMITTED, theirs.version() + 1)
    assert table.offsets() == [0, 1, 2]
    assert [each.sequence for each in table.store.history()] == [3, 2, 1]


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="only Linux says who waits")
def test_spark_waits_while_another_process_commits(
    make_table: MakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delta's look at the log and its rename are two steps on a local file system: no writer may
    commit in between. To the JVM, this process is another one; its own mutex is taken away."""
    table = seeded(make_table())
    mine, theirs = (table.task([{"a": 1}], start=1) for _ in range(2))
    ranges = (OffsetRange(TOPIC, 0, 1, 2),)
    monkeypatch.setattr(commit_lock, "_in_this_process", nullcontext())
    lock = table.spec.directory().local / "_delta_log" / ".strandline.lock"
    is_held = threading.Event()
    commit = DeltaTable.create_write_transaction

    def commit_when_spark_waits(*arguments: Any, **options: Any) -> None:
        is_held.set()
        inode = f":{os.stat(lock).st_ino} "
        while not any("->" in line and inode in line for line in locks()):
            assert not waiting.done(), waiting.result()
        commit(*arguments, **options)

    def locks() -> list[str]:
        return Path("/proc/locks").read_text().splitlines()

    monkeypatch.setattr(DeltaTable, "create_write_transaction", commit_when_spark_waits)
    store = table.by(Interrupted(table, lambda: is_held.wait(60)))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(store.commit, BatchIdentity("spark", 0, ranges), [mine])
        assert table.plain.commit(BatchIdentity("ours", 0, ranges), [theirs]).outcome == COMMITTED
        with pytest.raises(RangeOverlap):
            waiting.result(60)
    assert table.offsets() == [0, 1]
    assert [each.query_id for each in table.store.history()] == ["ours", "q"]


def test_a_batch_lands_once_wherever_its_commit_crashes(
    make_table: MakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After every change of a table; then again, with the same checkpoint or a fresh one."""
    for number in count():
        table = make_table(event_time="at", watermark_ms=DAY_MS)
        first = table.task(FIRST, table.plain)
        table.plain.commit(BatchIdentity("q", 0, (OffsetRange(TOPIC, 0, 0, 5),)), [first])
        try:
            with crash_at(monkeypatch, number, after=True) as made:
                table.batch("q", 1, SECOND, start=5)
        except Crash:
            pass
        else:
            assert number == len(made) > 3, made
            break
        table.store = table.plain
        if number % 2:
            table.batch("fresh", 0, [*FIRST, *SECOND])
        else:
            table.batch("q", 1, SECOND, start=5)
        assert table.offsets() == [0, 1, 2, 4, 5, 7]
        assert table.letters() == [3, 8]
        assert table.late() == [6]


def test_another_spark_joins_files_and_leaves_what_the_table_knows(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Its checkpoint leaves out marks whose time has passed, and those that have none."""
    table = TableWorld(tmp_path / "t", columns={"n": "long"})
    for partition in range(2):
        table.batch("q", 0 if not partition else 1, [{"n": 1}, b"bad"], partition=partition)
    before = table.store.state()
    place = f"delta.`{table.spec.directory().spark}`"
    spark.sql(f"alter table {place} set tblproperties ('delta.checkpointInterval' = '1')")
    spark.sql(f"optimize {place}")
    log = (table.spec.directory() / "_delta_log").local
    version = table.reopen().state().version
    assert (log / f"{version:020}.checkpoint.parquet").exists()
    assert len(table.store.files()) == 1
    after = table.store.state()
    assert (after.frontiers, after.sequence) == (before.frontiers, before.sequence)
    assert table.batch("q", 1, [{"n": 1}, b"bad"], partition=1).outcome == REPLAYED
    assert table.batch("fresh", 0, [{"n": 1}, b"bad", {"n": 2}]).rows == 1
    assert table.offsets() == [0, 2, 0]


def test_a_key_of_a_time_is_there_once_after_another_spark_joined_its_files(
    spark: SparkSession, tmp_path: Path
) -> None:
    moment = datetime(2026, 3, 1, 1, 2, 3, 456_789, tzinfo=UTC)
    schema = {"at": pa.timestamp("us", "UTC"), "n": pa.int32()}
    world = ResultWorld(path=str(tmp_path / "times"), keys="at")
    for number in range(2):
        world.batch("q", number, [(moment - timedelta(days=number), 1)], schema=schema)
    spark.sql(f"optimize delta.`{world.store.spec.directory().spark}`")
    assert len(world.store.files()) == 1
    world.batch("q", 2, [(moment, 2)], schema=schema)
    assert [row[1] for row in world.rows()] == [1, 2]


def test_what_spark_s_writer_needs_is_said(make_table: MakeTable, spark: SparkSession) -> None:
    ours = make_table(writer="strandline")
    ours.batch("q", 0, [{"a": 0}])
    edited = SparkWorld(spark, ours.spec.place.local)
    with pytest.raises(BadTable, match=r"not made for Spark's writer, .*that cannot change"):
        edited.batch("q", 1, [{"a": 1}], start=1)
    assert edited.offsets() == [0]

    class NoDelta:
        """A JVM without these classes answers with packages."""

        def __getattr__(self, name: str) -> NoDelta:
            return self

    with pytest.raises(
        InvalidSetting, match=r"io\.delta:delta-spark_4\.2_2\.13:4\.4\.0.*--delta-jars"
    ):
        check_jars(NoDelta())
