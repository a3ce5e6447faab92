"""Files joined, and merged into by key, in Spark's tasks: with the results of this process."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from strandline.lakehouse.pipeline import parts_in_spark
from strandline.lakehouse.pipeline.parts_in_spark import carrier_of
from strandline.lakehouse.tables.errors import BadTable
from strandline.lakehouse.tables.parts import here
from strandline.lakehouse.tables.transforms import parse_transform
from tests.lakehouse.tables.table_world import TableWorld


def test_merges_and_joins_in_tasks(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts_in_spark, "_SMALL_BYTES", 0)
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


def test_little_is_done_here(spark: SparkSession) -> None:
    carry = carrier_of(spark)
    assert carry(str, [1, 2], size=1000, undo=print) == ["1", "2"]


def test_what_was_done_is_undone_when_a_part_fails() -> None:
    undone: list[float] = []
    with pytest.raises(ZeroDivisionError):
        here(lambda part: 1 / part, [1, 2, 0], size=1, undo=undone.append)
    assert undone == [1.0, 0.5]
