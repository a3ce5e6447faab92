"""JSON whose names, numbers and times are not those of columns, by the policies of a definition."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from strandline.errors import InvalidSetting
from strandline.lakehouse.deadletters.listing import list_letters
from strandline.lakehouse.pipeline.batch import commit_batch
from strandline.lakehouse.pipeline.target import Target, batch_writer
from strandline.lakehouse.tables.definition import TableSpec
from strandline.lakehouse.tables.identity import BatchIdentity, OffsetRange
from strandline.lakehouse.tables.written import TaskWrite
from tests.lakehouse.tables.table_world import TOPIC, TableWorld, Value, kafka_rows

MOMENT = datetime.datetime(2026, 3, 1, 5, 30, tzinfo=datetime.UTC)


def committed(table: TableWorld, number: int, values: list[Value], start: int) -> Any:
    """One batch as a run commits it: written again if the table must become another first."""

    def write(target: Target) -> list[TaskWrite]:
        writer = batch_writer(target, "0")
        writer.write(kafka_rows(values, start=start))
        return [writer.finish()]

    ranges = (OffsetRange(TOPIC, 0, start, start + len(values)),)
    return commit_batch(table.spec, table.store, BatchIdentity("q", number, ranges), write)


def letters(table: TableWorld) -> dict[int, str]:
    return {each.offset: each.error for each in list_letters(table.store)}


def test_names_that_no_column_can_have_fill_one_with_underscores(tmp_path: Path) -> None:
    """On every level; two spellings of one column fill it from different records, never from one.
    The second batch is read at once, by Arrow."""
    table = TableWorld(tmp_path / "t")
    table.batch(
        "q",
        0,
        [
            {"http.status": 200, "user agent": {"a.b": [{"c d": 1}]}},
            {"http_status": 404},
            {"http.status": 1, "http_status": 2},
            {"http.status": 200, "HTTP status": 1},
        ],
    )
    assert [row["http_status"] for row in table.rows()] == [200, 404]
    assert table.rows()[0]["user_agent"] == {"a_b": [{"c_d": 1}]}
    assert "'http.status' and 'http_status' are of one column, http_status" in letters(table)[2]
    assert "differs from column 'http_status' in case only" in letters(table)[3]
    later: list[Value] = [{"http.status": each} for each in range(3000)]
    table.batch("q", 1, [*later, {"http_status": 7}, {"http.status": 1, "http_status": 2}], start=4)
    assert [row["http_status"] for row in table.rows()[2:]] == [*range(3000), 7]
    assert sorted(letters(table)) == [2, 3, 3005]


def test_a_name_with_half_a_pair_of_surrogates_is_told_of(tmp_path: Path) -> None:
    """It is no UTF-8, neither as a column nor in a letter."""
    table = TableWorld(tmp_path / "t")
    table.batch("q", 0, [b'{"\\ud800": 1}', b'{"\\ud800 a": 1, "\\ud800_a": 2}', {"a": 1}])
    assert table.offsets() == [2]
    assert "'\\ud800' has characters that a table's columns cannot have" in letters(table)[0]
    assert "are of one column, \\ud800_a" in letters(table)[1]


def test_exact_names_are_as_they_were(tmp_path: Path) -> None:
    """A definition of an earlier release says nothing of names, and means so."""
    table = TableWorld(tmp_path / "t", field_names="exact")
    table.batch("q", 0, [{"http.status": 200}])
    assert "characters that a table's columns cannot have" in letters(table)[0]
    text = table.spec.to_json().replace('"field_names": "exact",', "")
    assert TableSpec.from_json(text) == table.spec


def test_doubles_hold_all_numbers_and_a_column_of_longs_is_widened(tmp_path: Path) -> None:
    exact = TableWorld(tmp_path / "t")
    exact.batch("q", 0, [{"n": 1, "big": 2**60 + 1, "deep": {"n": 1}}])
    exact.spec = TableWorld.spec_in(tmp_path / "t", numbers="double")
    exact.reopen()
    done = committed(exact, 1, [{"n": 1.5, "new": 1}, {"deep": {"n": 1.5}}], 1)
    assert (done.rows, done.dead_letters) == (1, 1)
    assert [(row["n"], row["new"]) for row in exact.rows()] == [(1.0, None), (1.5, 1.0)]
    assert "deep.n is int64 and cannot hold 1.5" in letters(exact)[2]
    done = committed(exact, 2, [{"big": 1.5}], 3)
    assert (done.rows, done.dead_letters) == (0, 1), "a long that is no double is not rounded"
    assert exact.rows()[0]["big"] == 2**60 + 1


def test_decimals_keep_each_digit(tmp_path: Path) -> None:
    table = TableWorld(tmp_path / "t", numbers="decimal")
    table.batch("q", 0, [b'{"n": 1}', b'{"n": 0.1}', b'{"n": 9223372036854775807.000000000001}'])
    table.batch(
        "q", 1, [b'{"n": "2.50"}', b'{"n": 1e-19}', b'{"n": "x"}', b'{"n": 1.5e3}'], start=3
    )
    got = [row["n"] for row in table.rows()]
    exact = ["1", "0.1", "9223372036854775807.000000000001", "2.5", "1500"]
    assert got == [Decimal(each) for each in exact]
    assert sorted(letters(table)) == [4, 5]


@pytest.mark.parametrize(
    ("form", "good", "bad"),
    [
        ("%d.%m.%Y %H:%M", "01.03.2026 05:30", "2026-03-01T05:30:00Z"),
        ("%Y-%m-%dT%H:%M:%S.%f%z", "2026-03-01T06:30:00.000000+0100", "2026-03-01T05:30:00Z"),
        ("seconds", 1_772_343_000, "1772343000"),
        ("seconds", 1_772_343_000.0, True),
        ("micros", 1_772_343_000_000_000, 1e300),
        ("nanos", 1_772_343_000_000_000_000, "now"),
    ],
)
def test_times_are_read_in_the_format_of_their_column(
    tmp_path: Path, form: str, good: object, bad: object
) -> None:
    table = TableWorld(tmp_path / "t", time_formats={"at": form}, event_time="at", watermark_ms=0)
    table.batch("q", 0, [{"at": good}, {"at": bad}, {"at": None}])
    table.batch("q", 1, [{"at": good}], start=3)
    assert [row["at"] for row in table.rows()] == [MOMENT, None, MOMENT]
    assert list(letters(table)) == [1]


@pytest.mark.parametrize(
    ("form", "value", "beyond_us"),
    [
        ("nanos", 1_772_343_000_000_000_999, 0),
        ("nanos", 1_772_342_999_999_999_999, -1),
        ("seconds", 1_772_343_000.0000007, 1),
        ("micros", 1_772_343_000_000_000.5, None),
        (None, "2026-03-01T05:30:00.000001Z", 1),
        (None, "2026-03-01T05:30:00.0000009Z", None),
    ],
)
def test_what_times_have_beyond_microseconds(
    tmp_path: Path, form: str | None, value: object, beyond_us: int | None
) -> None:
    """As docs/tables.md says; None: a dead letter."""
    formats = {} if form is None else {"at": form}
    table = TableWorld(tmp_path / "t", columns={"at": "timestamp"}, time_formats=formats)
    table.batch("q", 0, [{"at": value}])
    expected = [] if beyond_us is None else [MOMENT + datetime.timedelta(microseconds=beyond_us)]
    assert [row["at"] for row in table.rows()] == expected
    assert table.letters() == ([0] if beyond_us is None else [])


def test_formats_that_are_none_are_refused(tmp_path: Path) -> None:
    for form in ("%H:%M", "days", "%Q", "%"):
        with pytest.raises(InvalidSetting, match="format"):
            TableWorld(tmp_path / "t", time_formats={"at": form})
    with pytest.raises(InvalidSetting, match="is no timestamp"):
        TableWorld(tmp_path / "t", time_formats={"at": "seconds"}, columns={"at": "long"})
