"""Partition transforms: their text, and their values against Iceberg's own."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.transforms import parse_transform as iceberg_transform
from pyiceberg.types import (
    BinaryType,
    DateType,
    IcebergType,
    LongType,
    StringType,
    TimestamptzType,
)

from strandline.errors import InvalidSetting
from strandline.lakehouse.tables.definition import parse_partitioning
from strandline.lakehouse.tables.names import TIMESTAMP
from strandline.lakehouse.tables.transforms import Transform, TransformKind, parse_transform

TIMES = st.datetimes()
"""Made aware below."""
LONGS = st.integers(10 - (1 << 63), (1 << 63) - 1)
"""Without those whose floor to a width of 10 needs more than 64 bits: there, Java wraps as well."""
SOURCES: dict[str, tuple[pa.DataType, IcebergType, st.SearchStrategy[object]]] = {
    "timestamp": (
        TIMESTAMP,
        TimestamptzType(),
        TIMES.map(lambda at: at.replace(tzinfo=datetime.UTC)),
    ),
    "date": (pa.date32(), DateType(), st.dates()),
    "long": (pa.int64(), LongType(), LONGS),
    "string": (pa.string(), StringType(), st.text()),
    "binary": (pa.binary(), BinaryType(), st.binary()),
}
PAIRS = [
    *(("timestamp", word) for word in ("year", "month", "day", "hour", "bucket[16]", "identity")),
    *(("date", word) for word in ("year", "month", "day", "bucket[7]", "identity")),
    *(("long", word) for word in ("bucket[5]", "truncate[10]", "identity")),
    *(("string", word) for word in ("bucket[3]", "truncate[2]", "identity")),
    ("binary", "bucket[4]"),
]


def ours(word: str) -> Transform:
    kind, _, width = word.rstrip("]").partition("[")
    return Transform(TransformKind(kind), "x", int(width or 0))


def as_iceberg_counts(value: object) -> object:
    """Microseconds and days since 1970, as Iceberg's transforms take times."""
    if isinstance(value, datetime.datetime):
        epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
        return (value - epoch) // datetime.timedelta(microseconds=1)
    if isinstance(value, datetime.date):
        return value.toordinal() - datetime.date(1970, 1, 1).toordinal()
    return value


@pytest.mark.parametrize(("source", "word"), PAIRS)
def test_values_are_those_of_iceberg(source: str, word: str) -> None:
    arrow, iceberg, strategy = SOURCES[source]

    @given(st.lists(st.none() | strategy, max_size=5))
    def check(values: list[object]) -> None:
        theirs = iceberg_transform(word).transform(iceberg)
        expected = [theirs(as_iceberg_counts(value)) for value in values]
        assert ours(word).apply(pa.array(values, arrow)).to_pylist() == expected

    check()


@pytest.mark.parametrize(("source", "word"), [pair for pair in PAIRS if pair[0] != "binary"])
def test_what_delta_shows_is_read_back(source: str, word: str) -> None:
    arrow, _, strategy = SOURCES[source]
    transform = ours(word)

    @given(st.none() | strategy)
    def check(value: object) -> None:
        [made] = transform.apply(pa.array([value], arrow)).to_pylist()
        shown = transform.shown(made, arrow)
        kind = transform.result_type(arrow)
        # Delta's reader gives the column's type to the text of its log.
        read = None if shown is None else pa.scalar(shown, pa.string()).cast(kind).as_py()
        assert transform.from_shown(read) == made

    check()


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        ("year", ["1", "9999", None]),
        ("month", ["0001-01", "9999-12", None]),
        ("day", ["0001-01-01", "9999-12-31", None]),
        ("hour", ["0001-01-01-00", "9999-12-31-23", None]),
    ],
)
def test_times_beyond_the_calendar_lie_with_its_first_and_its_last(
    word: str, shown: list[str | None]
) -> None:
    """Rows that Spark made may have such, of which Python knows none."""
    transform = ours(word)
    values = transform.apply(
        pa.array([-(1 << 63), (1 << 63) - 1, None], pa.int64()).cast(TIMESTAMP)
    )
    assert [transform.shown(value, TIMESTAMP) for value in values.to_pylist()] == shown


def test_texts_are_read_and_written_back() -> None:
    text = "day(at), bucket(16, k), truncate(4, n), hour(at), month(b), year(b), plain"
    found = parse_partitioning(text)
    assert ", ".join(map(str, found)) == text
    assert [item.name for item in found] == [
        "at_day",
        "k_bucket",
        "n_trunc",
        "at_hour",
        "b_month",
        "b_year",
        "plain",
    ]


@pytest.mark.parametrize(
    "text", ["week(x)", "day()", "day(3, x)", "bucket(x)", "bucket(0, x)", "a b(c)", "day(x", "(x)"]
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        parse_transform(text)
    assert caught.value.name == "partition_by"


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("day", pa.string()),
        ("hour", pa.date32()),
        ("bucket[4]", pa.float64()),
        ("truncate[4]", TIMESTAMP),
        ("identity", pa.float64()),
        ("identity", pa.struct([("x", pa.int64())])),
    ],
)
def test_a_column_that_cannot_divide_is_refused(word: str, kind: pa.DataType) -> None:
    with pytest.raises(InvalidSetting, match="cannot be made of column x"):
        ours(word).result_type(kind)
