"""A batch is in the table once: replays, fresh checkpoints, second writers, holes, other logs."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from strandline.lakehouse.deadletters.listing import list_letters
from strandline.lakehouse.tables.backend import Change, Conflict
from strandline.lakehouse.tables.committing import COMMITTED, NOTHING_NEW, REPLAYED
from strandline.lakehouse.tables.definition import parse_partitioning
from strandline.lakehouse.tables.errors import (
    BadTable,
    FencedWriter,
    RangeGap,
    RangeOverlap,
    TableExists,
    TopicRecreated,
)
from strandline.lakehouse.tables.identity import BatchIdentity, Frontier, OffsetRange
from strandline.lakehouse.tables.opening import open_backend
from strandline.lakehouse.tables.store import TableStore, open_store
from strandline.types import TopicPartition
from tests.lakehouse.tables.conftest import MakeTable
from tests.lakehouse.tables.table_world import TOPIC, TableWorld

PLACE = TopicPartition(TOPIC, 0)


def test_a_batch_lands_with_its_frontier_and_its_history(make_table: MakeTable) -> None:
    table = make_table()
    topic_id = str(uuid4())
    result = table.batch("q", 0, [{"a": 1}, b"bad", {"a": 2}], start=5, epoch=3, topic_id=topic_id)
    assert (result.outcome, result.sequence, result.rows, result.dead_letters) == (
        COMMITTED,
        1,
        2,
        1,
    )
    assert table.offsets() == [5, 7]
    assert table.letters() == [6]
    assert table.reopen().frontier(PLACE) == Frontier(5, 8, 3, topic_id)
    assert table.store.state().frontiers == {PLACE: Frontier(5, 8, 3, topic_id)}
    assert table.store.committed("q") == 0
    [record] = table.store.history()
    assert record.ranges == (OffsetRange(TOPIC, 0, 5, 8, 3, topic_id),)
    assert (record.kind, record.query_id, record.batch_id, record.rows) == ("batch", "q", 0, 2)


def test_a_replayed_batch_is_skipped_and_its_files_are_gone(make_table: MakeTable) -> None:
    table = make_table()
    table.batch("q", 0, [{"a": 1}, b"bad"])
    before = sorted(table.spec.place.local.rglob("*.parquet"))
    table.reopen()
    assert table.batch("q", 0, [{"a": 1}, b"bad"]).outcome == REPLAYED
    assert table.offsets() == [0]
    assert table.letters() == [1]
    assert sorted(table.spec.place.local.rglob("*.parquet")) == before


def test_committing_the_very_same_files_again_keeps_them(make_table: MakeTable) -> None:
    table = make_table()
    written = table.task([{"a": 1}, b"bad"])
    identity = BatchIdentity("q", 0, (OffsetRange(TOPIC, 0, 0, 2),))
    table.store.commit(identity, [written])
    assert table.store.commit(identity, [written]).outcome == REPLAYED
    assert table.offsets() == [0]
    assert table.letters() == [1]


def test_a_fresh_checkpoint_repeats_and_skips_nothing(make_table: MakeTable) -> None:
    table = make_table()
    table.batch("old", 41, [{"a": 0}, {"a": 1}, b"bad"])
    assert table.batch("new", 0, [{"a": 0}, {"a": 1}]).outcome == NOTHING_NEW
    result = table.batch("new", 1, [{"a": 1}, b"bad", {"a": 3}], start=1)
    assert result.outcome == COMMITTED
    assert result.ranges == (OffsetRange(TOPIC, 0, 3, 4),)
    assert table.offsets() == [0, 1, 3]
    assert table.letters() == [2]


def test_files_written_against_an_older_table_are_refused(make_table: MakeTable) -> None:
    table = make_table()
    written = table.task([{"a": 0}, {"a": 1}])
    table.batch("other", 0, [{"a": 0}])
    with pytest.raises(RangeOverlap, match="has offset 0 of flights-0, which the table has"):
        table.store.commit(BatchIdentity("q", 0, (OffsetRange(TOPIC, 0, 0, 2),)), [written])
    assert table.store.discard([written]) == 1
    assert table.batch("q", 0, [{"a": 0}, {"a": 1}]).outcome == COMMITTED
    assert table.offsets() == [0, 1]


def test_a_file_beyond_the_ranges_of_its_batch_is_refused(make_table: MakeTable) -> None:
    table = make_table()
    written = table.task([{"a": 0}, {"a": 1}])
    with pytest.raises(BadTable, match="offset 1 of flights-0, which is not in"):
        table.store.commit(BatchIdentity("q", 0, (OffsetRange(TOPIC, 0, 0, 1),)), [written])


def test_a_hole_is_refused_unless_it_is_declared(make_table: MakeTable) -> None:
    table = make_table()
    table.batch("q", 0, [{"a": 0}])
    with pytest.raises(RangeGap, match=r"begins at offset 5 .* ends at 1: 4 offsets"):
        table.batch("q", 1, [{"a": 5}], start=5)
    with pytest.raises(RangeGap):
        table.batch("q", 1, [{"a": 5}], start=5, lost=(OffsetRange(TOPIC, 0, 1, 4),))
    result = table.batch("q", 1, [{"a": 5}], start=5, lost=(OffsetRange(TOPIC, 0, 0, 5),))
    assert result.ranges == (OffsetRange(TOPIC, 0, 1, 6),)
    [gone] = list_letters(table.store)
    assert (gone.offset, gone.offset_end, gone.error_class) == (1, 5, "LostRange")
    assert table.store.history()[0].lost == (OffsetRange(TOPIC, 0, 1, 5),)


def test_a_declared_loss_leaves_the_table_to_its_query(make_table: MakeTable) -> None:
    table = make_table()
    table.batch("q", 0, [{"a": 0}])
    gone = [OffsetRange(TOPIC, 0, 1, 9)]
    assert table.store.declare_lost(gone).ranges == (OffsetRange(TOPIC, 0, 1, 9),)
    assert table.store.declare_lost(gone).outcome == NOTHING_NEW
    assert table.batch("q", 1, [{"a": 9}], start=9).outcome == COMMITTED
    assert table.offsets() == [0, 9]
    assert table.letters() == [1]


def test_another_topic_of_the_same_name_is_refused(make_table: MakeTable) -> None:
    table = make_table()
    table.batch("q", 0, [{"a": 0}], topic_id=str(uuid4()))
    with pytest.raises(TopicRecreated, match="deleted and created again"):
        table.batch("q", 1, [{"a": 1}], start=1, topic_id=str(uuid4()))


def test_a_log_whose_epoch_went_back_is_refused(make_table: MakeTable) -> None:
    table = make_table()
    table.batch("q", 0, [{"a": 0}], epoch=7)
    with pytest.raises(TopicRecreated, match="leader epoch at offset 2 is 6"):
        table.batch("q", 1, [{"a": 1}], start=1, epoch=6)


def test_a_query_that_lost_the_table_is_fenced_for_good(make_table: MakeTable) -> None:
    table = make_table()
    table.batch("first", 0, [{"a": 0}])
    table.batch("second", 0, [{"a": 1}], start=1)
    for _ in range(2):
        with pytest.raises(FencedWriter, match="Another query writes the table flights"):
            table.batch("first", 1, [{"a": 2}], start=2)
    assert table.batch("second", 1, [{"a": 2}], start=2).outcome == COMMITTED
    assert table.offsets() == [0, 1, 2]


def test_two_incarnations_of_one_driver_commit_a_batch_once(make_table: MakeTable) -> None:
    table = make_table()
    mine = table.task([{"a": 0}])
    theirs = table.task([{"a": 0}])
    identity = BatchIdentity("q", 0, (OffsetRange(TOPIC, 0, 0, 1),))
    other = open_store(table.spec)
    table.store.state()
    other.state()
    assert other.commit(identity, [theirs]).outcome == COMMITTED
    assert table.store.commit(identity, [mine]).outcome == REPLAYED
    assert table.offsets() == [0]


def test_a_commit_behind_new_columns_is_looked_at(
    make_table: MakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The columns come in a change of their own. What another query commits between that and the
    batch was there twice, and its letters were owed to no table any more."""
    table = make_table()
    table.batch("first", 0, [{"a": 0}])
    other = open_store(table.spec)
    identity = BatchIdentity("second", 0, (OffsetRange(TOPIC, 0, 1, 3),))
    theirs = table.task([{"a": 1}, b"bad"], start=1)
    backend = table.store.backend
    evolve = backend.evolve

    def and_then_another_commits(*given: Any) -> None:
        evolve(*given)
        monkeypatch.undo()
        assert other.commit(identity, [theirs]).outcome == COMMITTED

    monkeypatch.setattr(backend, "evolve", and_then_another_commits)
    with pytest.raises(FencedWriter):
        table.batch("first", 1, [{"a": 1, "b": "new"}, b"bad"], start=1)
    table.reopen()
    assert (table.offsets(), table.letters()) == ([0, 1], [2])


def test_a_change_of_a_table_that_moved_on_fails(make_table: MakeTable) -> None:
    table = make_table()
    first, second = open_backend(table.spec), open_backend(table.spec)
    stale = first.load()
    second.commit(second.load(), Change(marks={"strandline/x": 1}))
    with pytest.raises(Conflict):
        first.commit(stale, Change(marks={"strandline/x": 2}))
    assert first.load().mark("strandline/x") == 1


def test_partitions_are_committed_and_remembered_apart(make_table: MakeTable) -> None:
    table = make_table()
    table.batch("q", 0, [{"a": 0}], partition=3)
    table.batch("q", 1, [{"a": 1}, {"a": 2}], partition=1)
    assert table.store.state().frontiers == {
        TopicPartition(TOPIC, 1): Frontier(0, 2),
        TopicPartition(TOPIC, 3): Frontier(0, 1),
    }


@pytest.mark.parametrize(
    "change", [{"partition_by": parse_partitioning("kafka_topic")}, {"buckets": 3}]
)
def test_a_table_cannot_be_divided_otherwise_later(
    make_table: MakeTable, change: dict[str, Any]
) -> None:
    mode = "upsert" if "buckets" in change else "append"
    make_table(mode=mode).batch("q", 0, [{"a": 1}], keys=[b"k"])
    with pytest.raises(BadTable, match="that cannot change"):
        make_table(mode=mode, **change).store.state()


def test_a_table_cannot_take_the_place_of_one_of_the_other_format(
    make_table: MakeTable, tmp_path: Path, table_format: str
) -> None:
    make_table()
    other = {"delta": "iceberg", "iceberg": "delta"}[table_format]
    with pytest.raises(TableExists, match=f"(?i)is an? {table_format} table in"):
        TableStore(TableWorld.spec_in(tmp_path / "table", format=other)).create()
