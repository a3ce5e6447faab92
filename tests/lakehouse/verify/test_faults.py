"""Tables that were tampered with: the proof finds each fault, and nothing else; so does a diff."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from deltalake import DeltaTable, write_deltalake

from strandline.lakehouse.pipeline.options import RunOptions
from strandline.lakehouse.rebuild.diff import difference
from strandline.lakehouse.rebuild.job import open_rebuild, rebuild
from strandline.lakehouse.rebuild.rows import rows_of
from strandline.lakehouse.tables.definition import DEAD_LETTERS
from strandline.lakehouse.tables.errors import BadTable
from strandline.lakehouse.tables.identity import OffsetRange
from strandline.lakehouse.tables.store import open_store
from strandline.lakehouse.verify.report import Report, Verdict
from tests.lakehouse.pipeline.conftest import TableUnderTest, make_table

__all__ = ["make_table"]

MakeTable = Callable[..., TableUnderTest]


def wrong(report: Report) -> dict[Verdict, list[int]]:
    """The offsets of the examples by what is wrong with them."""
    found: dict[Verdict, list[int]] = {}
    for each in report.examples:
        found.setdefault(each.verdict, []).append(each.offset)
    return found


def test_rows_that_are_missing_doubled_or_foreign(make_table: MakeTable) -> None:
    table = make_table(columns={"n": "long"})
    table.produce([(None, {"n": each}) for each in range(20)] + [(None, b"poison")])
    table.run()
    assert table.verify().is_good

    delta = DeltaTable(str(table.spec.directory()))
    rows = delta.to_pyarrow_dataset().to_table().sort_by("kafka_offset")
    delta.delete("kafka_offset = 3")
    foreign = rows.slice(7, 1).set_column(
        rows.schema.get_field_index("kafka_offset"), "kafka_offset", [[400]]
    )
    also_dead = rows.slice(8, 1).set_column(
        rows.schema.get_field_index("kafka_offset"), "kafka_offset", [[20]]
    )
    for planted in (rows.slice(5, 2), foreign, also_dead):
        write_deltalake(str(table.spec.directory()), planted, mode="append")

    report = table.verify()
    assert not report.is_good
    assert wrong(report) == {
        Verdict.MISSING: [3],
        Verdict.DOUBLED: [5, 6, 20],
        Verdict.OUTSIDE: [400],
    }
    assert report.sentences()[-1] == "The table is not what its topics were."


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_e12_files_that_are_gone_are_findings(make_table: MakeTable, mode: str) -> None:
    """They were a traceback of Spark's, PATH_NOT_FOUND."""
    table = make_table(columns={"n": "long"}, mode=mode, buckets=1)
    table.produce([(b"%d" % each, {"n": each}) for each in range(4)] + [(b"k", b"poison")])
    table.run()
    [rows] = table.store.files()
    [letters] = table.store.files(DEAD_LETTERS)
    rows.path.local.unlink()
    report = table.verify()
    assert not report.is_good
    assert report.wrong == [
        "rows: 1 of 1 files that the table names, with 4 rows, are not what it was given: "
        f"{rows.path} is not there."
    ]
    assert report.total(Verdict.MISSING) == 4
    letters.path.local.unlink()
    assert len(table.verify().wrong) == 2
    with pytest.raises(BadTable, match="1 of 1 files that the table names"):
        rows_of(table.spark, table.store, None)


def test_keys_whose_rows_are_wrong(make_table: MakeTable) -> None:
    table = make_table(mode="upsert", buckets=1, columns={"n": "long"})
    table.produce([(key, {"n": 1}) for key in (b"a", b"b", b"c", b"d")])
    table.run()
    before = DeltaTable(str(table.spec.directory())).to_pyarrow_dataset().to_table()
    table.produce([(b"a", {"n": 2}), (b"b", None)])
    table.run()
    assert table.verify().is_good

    delta = DeltaTable(str(table.spec.directory()))
    delta.delete("n = 2 or kafka_offset = 2")
    before = before.sort_by("kafka_offset")
    for planted in (before.slice(0, 2), before.slice(3, 1)):
        write_deltalake(str(table.spec.directory()), planted, mode="append")
    assert wrong(table.verify()) == {
        Verdict.STALE: [0, 1],
        Verdict.MISSING: [2],
        Verdict.DOUBLED: [3],
    }


def test_a_table_made_again_shows_what_was_changed(make_table: MakeTable) -> None:
    table = make_table(event_time="at", watermark_ms=1000, columns={"n": "long"})
    table.produce([(None, {"n": each, "at": "2026-03-01T05:00:00Z"}) for each in range(10)])
    table.run()
    table.produce([(None, {"n": 10, "at": "2026-03-01T01:00:00Z"}), (None, b"poison")])
    table.run()
    ranges = (OffsetRange(table.topic, 0, 2, 12),)
    settings = RunOptions(bootstrap=table.bootstrap).read_settings(table.spec)
    told: list[tuple[int, int]] = []

    def made_again() -> None:
        rebuild(
            table.spark,
            table.spec,
            settings,
            ranges,
            rows_per_commit=6,
            tell=lambda done, of: told.append((done, of)),
        )

    made_again()
    assert told == [(6, 10), (10, 10)]
    rebuilt, known = open_rebuild(table.spec)
    assert known == ranges
    found = difference(table.spark, table.store, rebuilt, ranges)
    assert found.is_none, found
    assert found.same == 9

    delta = DeltaTable(str(table.spec.directory()))
    delta.update(updates={"n": "77"}, predicate="kafka_offset = 4")
    delta.delete("kafka_offset = 5 or kafka_offset = 0")
    made_again()
    found = difference(table.spark, open_store(table.spec), open_rebuild(table.spec)[0], ranges)
    assert (found.same, found.changed, found.only_rebuilt, found.only_live) == (7, 1, 1, 0)
    assert found.columns == {"n": 1}
    assert [(each["kind"], each["offset"]) for each in found.examples] == [
        ("changed", 4),
        ("only_rebuilt", 5),
    ]
