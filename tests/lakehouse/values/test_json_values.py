"""JSON values: exact columns, or a fault that says what is wrong with one record."""

from __future__ import annotations

import datetime
import json
import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.errors import InvalidSetting
from strandline.lakehouse.tables.names import NAMES as OWN
from strandline.lakehouse.tables.names import TIMESTAMP
from strandline.lakehouse.values import json_values
from strandline.lakehouse.values.decoding import Decoded
from strandline.lakehouse.values.json_values import JsonDecoder

NOTHING = pa.schema([])
MOMENT = datetime.datetime(2013, 1, 1, 10, 0, tzinfo=datetime.UTC)


def decode(decoder: JsonDecoder, *values: object) -> Decoded:
    data = [json.dumps(item).encode() if isinstance(item, dict) else item for item in values]
    return decoder.decode(pa.array(data, pa.binary()))


def rows(found: Decoded) -> list[tuple[int, dict[str, Any]]]:
    return list(zip(found.rows.to_pylist(), found.columns.to_pylist(), strict=True))


BAD: list[tuple[object, str, str]] = [
    (b"", "BadValue", "not JSON"),
    (b"nope", "BadValue", "not JSON"),
    (b"[1]", "BadValue", "no object"),
    (b"null", "BadValue", "no object"),
    (b"{} {}", "BadValue", "not JSON"),
    (b'{"a":1}}\n{"i":1,"v":{"a":2}', "BadValue", "not JSON"),
    (b'{"a":1},"v":{"a":2}', "BadValue", "not JSON"),
    (b'{"a":NaN}', "BadValue", "NaN is not JSON"),
    (b'{"d":-Infinity}', "BadValue", "-Infinity is not JSON"),
    (b'{"a":1,"a":2}', "BadValue", "'a' is there twice"),
    (b'{"o":{"x":1,"x":2}}', "BadValue", "'x' is there twice"),
    (b"\xff", "BadValue", "not UTF-8"),
    (b'{"s":"\xff"}', "BadValue", "not UTF-8"),
    (b'{"s":"\\ud800"}', "WrongType", "surrogate"),
    (b'{"z":' + b"[" * 100_000, "BadValue", "nested too deeply"),
    ({"a": 1 << 63}, "WrongType", "9223372036854775808 in field a needs more than 64"),
    ({"new": 1 << 64}, "WrongType", "more than 64 bits"),
    ({"a": 1.5}, "WrongType", "The field a is int64 and cannot hold 1.5"),
    ({"a": "1"}, "WrongType", "The field a is int64 and cannot hold '1'"),
    ({"a": True}, "WrongType", "cannot hold true"),
    ({"s": 1}, "WrongType", "cannot hold 1"),
    ({"d": "x"}, "WrongType", "cannot hold 'x'"),
    ({"o": 1}, "WrongType", "The field o is an object and cannot hold 1"),
    ({"o": {"x": "y"}}, "WrongType", "The field o.x is int64"),
    ({"l": ["x"]}, "WrongType", "The field l[] is int64"),
    ({"l": {}}, "WrongType", "The field l is a list"),
    ({"t": "yesterday"}, "WrongType", "cannot hold 'yesterday'"),
    ({"t": 1.5}, "WrongType", "cannot hold 1.5"),
    ({"day": "2013-02-30"}, "WrongType", "cannot hold '2013-02-30'"),
    ({"day": 15706}, "WrongType", "cannot hold 15706"),
    ({"t": 253_402_300_800_000}, "WrongType", "cannot hold 253402300800000"),
    ({"t": -(1 << 63)}, "WrongType", "cannot hold -9223372036854775808"),
    ({"t": "9999-12-31T23:59:59-01:00"}, "WrongType", "t has a time that is not within the years"),
    ({"t": "0000-12-31T23:59:59Z"}, "WrongType", "t has a time that is not within the years"),
    ({"day": "0000-12-31"}, "WrongType", "day has a time that is not within the years"),
    ({"A": 1}, "UnknownField", "differs from column 'a' in case only"),
    ({"kafka_offset": 1}, "UnknownField", "one of the table's own columns"),
    ({"_File": 1}, "UnknownField", "engines which read tables keep for themselves"),
    ({"a b": 1}, "UnknownField", "characters"),
    ({"": 1}, "UnknownField", "characters"),
    ({"o": {"a.b": 1}}, "UnknownField", "characters"),
    (b'{"\\ud800":1}', "UnknownField", "'\\ud800' has characters"),
    (b'{"o":{"\\ud800":null}}', "UnknownField", "'\\ud800' has characters"),
]
KNOWN = pa.schema(
    [
        ("a", pa.int64()),
        ("d", pa.float64()),
        ("s", pa.string()),
        ("b", pa.bool_()),
        ("t", TIMESTAMP),
        ("day", pa.date32()),
        ("o", pa.struct([("x", pa.int64())])),
        ("l", pa.list_(pa.field("element", pa.int64()))),
    ]
)
GOOD: dict[str, Any] = {"a": 1, "d": 2, "s": "é", "b": False, "o": {"x": 3}, "l": [4, None]}


@pytest.mark.parametrize(("value", "kind", "words"), BAD)
def test_a_bad_value_is_a_fault_and_its_neighbours_are_rows(
    value: object, kind: str, words: str
) -> None:
    found = decode(JsonDecoder(KNOWN, reserved=OWN.reserved), GOOD, value, GOOD)
    [fault] = found.faults
    assert (fault.row, fault.kind) == (1, kind)
    assert words in fault.sentence
    assert [row for row, _ in rows(found)] == [0, 2]
    assert all({**row, **GOOD} == row for _, row in rows(found))


def test_what_the_fast_way_takes_needs_no_python(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_python(value: bytes) -> None:
        raise AssertionError(value)

    monkeypatch.setattr(json_values, "parse_object", no_python)
    values = [GOOD, {}, {"a": None}, b' {"a":\t1 , "l" : [ ] }', {"t": "2013-01-01T10:00:00Z"}]
    found = decode(JsonDecoder(KNOWN), *values)
    assert [row for row, _ in rows(found)] == [0, 1, 2, 3, 4]
    assert found.columns.column("t")[4].as_py() == MOMENT


def test_dates_are_iso_8601_at_any_depth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow's parser took numbers of days for them, and every text was a dead letter."""
    day, days = pa.date32(), pa.list_(pa.field("element", pa.date32()))
    columns = pa.schema([("day", day), ("o", pa.struct([("day", day), ("days", days)]))])
    values = [
        {"day": "2013-01-01", "o": {"day": "1969-12-31", "days": ["2000-02-29", None]}},
        {"day": None, "o": None},
        {"o": {"days": []}},
    ]
    first = {"day": datetime.date(1969, 12, 31), "days": [datetime.date(2000, 2, 29), None]}
    expected = [
        (0, {"day": datetime.date(2013, 1, 1), "o": first}),
        (1, {"day": None, "o": None}),
        (2, {"day": None, "o": {"day": None, "days": []}}),
    ]
    assert rows(decode(JsonDecoder(columns), *values)) == expected
    assert rows(decode(JsonDecoder(columns), *values, {"day": "no day"})) == expected
    monkeypatch.setattr(json_values, "parse_object", None)
    assert rows(decode(JsonDecoder(columns), *values)) == expected, "Python is not needed for it"


def test_columns_are_learned_from_the_first_values() -> None:
    found = decode(
        JsonDecoder(NOTHING),
        {"n": None, "e": {}, "l": [], "i": 1, "d": 1},
        {"i": 2, "d": 1.5, "o": {"x": [{"y": "z"}]}},
    )
    assert found.faults == []
    assert rows(found) == [
        (0, {"i": 1, "d": 1.0, "o": None}),
        (1, {"i": 2, "d": 1.5, "o": {"x": [{"y": "z"}]}}),
    ]


def test_a_column_of_the_table_is_not_widened() -> None:
    decoder = JsonDecoder(pa.schema([("a", pa.int64())]))
    assert [fault.row for fault in decode(decoder, {"a": 1}, {"a": 1.5}).faults] == [1]


def test_a_closed_table_takes_no_further_field() -> None:
    decoder = JsonDecoder(pa.schema([("a", pa.int64())]), evolve=False)
    [fault] = decode(decoder, {"a": 1}, {"a": 2, "b": None}).faults
    assert (fault.row, fault.kind) == (1, "UnknownField")


def test_required_fields() -> None:
    decoder = JsonDecoder(pa.schema([("a", pa.int64())]), required=frozenset({"a"}))
    found = decode(decoder, {"a": 1}, {}, {"a": None}, {"a": 0})
    assert [(fault.row, fault.kind) for fault in found.faults] == [
        (1, "MissingField"),
        (2, "MissingField"),
    ]
    assert [row for row, _ in rows(found)] == [0, 3]


def test_null_values_are_rows_of_nulls_in_their_place() -> None:
    found = decode(JsonDecoder(KNOWN), None, {"a": 1}, None)
    assert [(row, value["a"]) for row, value in rows(found)] == [(0, None), (1, 1), (2, None)]
    assert rows(decode(JsonDecoder(NOTHING), None, None)) == [(0, {}), (1, {})]


@pytest.mark.parametrize(
    "value",
    [
        "2013-01-01T10:00:00Z",
        "2013-01-01T10:00:00",
        "2013-01-01 10:00:00.000",
        "2013-01-01T12:00:00+02:00",
        1_357_034_400_000,
    ],
)
def test_times_are_iso_or_milliseconds(value: object) -> None:
    decoder = JsonDecoder(pa.schema([("t", TIMESTAMP)]))
    other = {"t": "2014-01-01T00:00:00Z"}
    found = decode(decoder, {"t": value}, other, {"t": value}, {"t": 0})
    assert [row["t"].year for _, row in rows(found)] == [2013, 2014, 2013, 1970]
    assert rows(found)[0][1]["t"] == MOMENT


@pytest.mark.parametrize(
    "far", ["0000-01-01T00:00:00Z", "9999-12-31T23:59:59-00:01", 253_402_300_800_000, -(1 << 62)]
)
def test_times_are_of_the_years_1_to_9999(far: object) -> None:
    """In fields of objects and in lists as well; the first and the last of them are rows."""
    times = pa.list_(pa.field("element", TIMESTAMP))
    columns = pa.schema([("t", TIMESTAMP), ("o", pa.struct([("t", TIMESTAMP), ("l", times)]))])
    first, last = "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"
    good = [
        {"t": first, "o": {"t": last, "l": [first, None]}},
        {"t": -62_135_596_800_000},
        {"t": 253_402_300_799_999},
    ]
    found = decode(
        JsonDecoder(columns), *good, {"t": far}, {"o": {"t": far}}, {"o": {"l": [far]}}, good[0]
    )
    assert [(fault.row, fault.kind) for fault in found.faults] == [
        (number, "WrongType") for number in (3, 4, 5)
    ]
    assert [row for row, _ in rows(found)] == [0, 1, 2, 6]
    assert rows(found)[0][1]["t"] == datetime.datetime(1, 1, 1, tzinfo=datetime.UTC)
    assert rows(found)[2][1]["t"].year == 9999
    assert rows(decode(JsonDecoder(columns), *good)) == rows(found)[:3]


def test_a_topic_whose_keys_are_data_does_not_make_a_column_of_each() -> None:
    records = [{f"k{number}": 1} for number in range(2_100)]
    found = decode(JsonDecoder(NOTHING), *records)
    assert len(found.columns.schema) == 2_000
    assert {fault.kind for fault in found.faults} == {"UnknownField"}
    assert len(found.faults) == 100


def test_json_has_no_binary_columns() -> None:
    with pytest.raises(InvalidSetting, match="binary column a"):
        JsonDecoder(pa.schema([("a", pa.binary())]))


SCALARS = st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.text(max_size=5)
NAMES = st.sampled_from(["a", "b", "c"])
OBJECTS = st.recursive(
    st.dictionaries(NAMES, SCALARS | st.floats(allow_nan=False, allow_infinity=False)),
    lambda inner: st.dictionaries(NAMES, inner | st.lists(inner, max_size=3) | SCALARS),
    max_leaves=8,
)


@settings(max_examples=60)
@given(st.lists(OBJECTS, max_size=8), st.integers(1, 4))
def test_every_value_is_an_equal_row_or_a_fault(records: list[dict[str, Any]], size: int) -> None:
    decoder = JsonDecoder(NOTHING)
    for start in range(0, len(records), size):
        some = records[start : start + size]
        found = decode(decoder, *some)
        faulty = {fault.row for fault in found.faults}
        assert sorted(faulty | set(found.rows.to_pylist())) == list(range(len(some)))
        assert len(found.faults) + found.columns.num_rows == len(some)
        for row, value in rows(found):
            assert shows(value, some[row]), (value, some[row])


def shows(read: Any, meant: Any) -> bool:
    """Whether a row says what the record does: nulls stand for absence, doubles for integers."""
    if meant is None or meant == {} or meant == []:
        return read in (None, {}, []) or all(part is None for part in _parts(read))
    if isinstance(meant, dict):
        return all(shows((read or {}).get(name), item) for name, item in meant.items()) and all(
            name in meant or shows(item, None) for name, item in (read or {}).items()
        )
    if isinstance(meant, list):
        if read is None:
            return all(shows(None, item) for item in meant)
        return len(read) == len(meant) and all(map(shows, read, meant))
    if isinstance(read, float) and not isinstance(meant, bool):
        return math.isclose(read, meant, rel_tol=0) or read == float(meant)
    return bool(type(read) is type(meant) and read == meant)


def _parts(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else list(value or ())
