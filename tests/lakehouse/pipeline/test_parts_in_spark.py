"""Files written again in Spark's tasks: with the results of this process."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from strandline.errors import InvalidSetting
from strandline.lakehouse.deadletters import replaying
from strandline.lakehouse.deadletters.listing import LetterFilter
from strandline.lakehouse.deadletters.replaying import replay
from strandline.lakehouse.pipeline import parts_by_command, parts_in_spark
from strandline.lakehouse.pipeline.parts_by_command import (
    TooMuchHere,
    carrying_by_command,
    only_little,
)
from strandline.lakehouse.pipeline.parts_in_spark import carrier_of
from strandline.lakehouse.spark_options import SparkOptions
from strandline.lakehouse.tables import parts, rewriting
from strandline.lakehouse.tables.errors import BadTable
from strandline.lakehouse.tables.parts import here
from strandline.lakehouse.tables.transforms import parse_transform
from tests.lakehouse.tables.table_world import TableWorld


def test_merges_and_joins_in_tasks(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts_in_spark, "SMALL_BYTES", 0)
    monkeypatch.setattr(parts_in_spark, "here", None)  # nothing is done in this process
    table = TableWorld(tmp_path / "keys", mode="upsert", buckets=4, columns={"n": "long"})
    table.store.carry_out_by(carrier_of(spark))
    keys = [b"%d" % each for each in range(20)]
    table.batch("q", 0, [{"n": 0}] * 20, keys=[*keys])
    table.batch("q", 1, [{"n": 1}] * 9 + [None], start=20, keys=[*keys[:10]])
    assert sorted(row["n"] for row in table.rows()) == [0] * 10 + [1] * 9

    gone = table.store.files()[0].path.local
    gone.unlink()
    with pytest.raises(BadTable, match=gone.name):
        table.batch("q", 2, [{"n": 2}] * 20, start=30, keys=[*keys])

    table = TableWorld(
        tmp_path / "rows", columns={"k": "string"}, partition_by=(parse_transform("k"),)
    )
    table.store.carry_out_by(carrier_of(spark))
    for number in range(3):
        table.batch("q", number, [{"k": "a"}, {"k": "b", f"c{number}": 1}], start=2 * number)
    before = table.rows()
    assert table.store.compact(min_files=2).files_after == 2
    assert table.rows() == before


def test_a_column_is_widened_and_letters_are_replayed_in_tasks(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the carrier of commands, which finds a session here and leaves it."""
    monkeypatch.setattr(parts_in_spark, "SMALL_BYTES", 0)
    monkeypatch.setattr(parts_by_command, "WORTH_A_SESSION_BYTES", 0)
    monkeypatch.setattr(parts_in_spark, "here", None)  # nothing is done in this process
    portions = partial(parts.portions, most=1)  # a task a file
    monkeypatch.setattr(rewriting, "portions", portions)
    monkeypatch.setattr(replaying, "portions", portions)
    table = TableWorld(tmp_path / "rows", columns={"b": "long"})
    table.batch("q", 0, [{"a": 1}])
    table.batch("q", 1, [{"a": 2}, {"a": 0.5}, {"b": "x"}], start=1)
    table.batch("q", 2, [{"a": 1.5}, {"b": "y"}], start=4)
    table.batch("q", 3, [{"b": "z"}], start=6)
    with carrying_by_command("test", SparkOptions(), print) as carrier:
        table.store.carry_out_by(carrier)
        assert table.store.widen("a") == 2
        table.reopen().carry_out_by(carrier)
        assert replay(table.store, LetterFilter(offset_end=5)) == (2, 1)
        assert (table.offsets(), table.letters()) == ([0, 1, 2, 4], [3, 5, 6])
        files = {each.path.name for each in table.store.files("dead_letters")}
        assert replay(table.store, LetterFilter(offset_start=6)) == (0, 1)
        assert {each.path.name for each in table.store.files("dead_letters")} == files
        assert [row["a"] for row in table.rows()] == [1.0, 2.0, 0.5, 1.5]
        table.batch("q", 4, [{"b": (1 << 53) + 1}, {"b": 1}], start=7)
        before = set(table.spec.place.local.rglob("*.parquet"))
        with pytest.raises(InvalidSetting, match="no double exactly"):
            table.store.widen("b")
        assert set(table.spec.place.local.rglob("*.parquet")) == before
        table.store.files()[0].path.local.write_bytes(b"")
        with pytest.raises(BadTable, match="are not what it was given"):
            table.store.widen("b")
    assert spark.range(2).count() == 2


def test_without_spark_only_little_is_done(tmp_path: Path) -> None:
    with pytest.raises(TooMuchHere):
        only_little(str, [1], size=1 << 30, undo=print)
    assert only_little(str, [1], size=1, undo=print) == ["1"]


def test_little_is_done_here(spark: SparkSession) -> None:
    carry = carrier_of(spark)
    assert carry(str, [1, 2], size=1000, undo=print) == ["1", "2"]


def test_what_was_done_is_undone_when_a_part_fails() -> None:
    undone: list[float] = []
    with pytest.raises(ZeroDivisionError):
        here(lambda part: 1 / part, [1, 2, 0], size=1, undo=undone.append)
    assert undone == [1.0, 0.5]
