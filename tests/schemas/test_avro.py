"""Avro values within limits: what is read, what is refused, and that nothing hangs or kills."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.schemas.avro import AvroSchema
from strandline.schemas.errors import BadSchema, Unreadable
from strandline.schemas.shown import json_text
from strandline.schemas.walk import Limits
from tests.schemas.values import ORDER, avro

LIMITS = Limits(items=1_000, depth=20)
ENDLESS = {"type": "record", "name": "A", "fields": [{"name": "next", "type": "A"}]}
LINKED = {"type": "record", "name": "A", "fields": [{"name": "next", "type": ["null", "A"]}]}
VALUE = {
    "id": -7,
    "at": datetime.datetime(2013, 1, 1, 10, tzinfo=datetime.UTC),
    "sum": Decimal("12.34"),
    "kind": "PAID",
    "note": "é",
    "tags": {"x": 0.5},
    "raw": b"\x01\xff",
}


def read(schema: object, data: bytes) -> object:
    return AvroSchema(json.dumps(schema)).read(data, LIMITS)


def test_a_value_is_what_was_written() -> None:
    assert read(ORDER, avro(ORDER, VALUE)) == VALUE


def test_every_cut_and_everything_that_follows_is_refused() -> None:
    data = avro(ORDER, VALUE)
    schema = AvroSchema(json.dumps(ORDER))
    for end in range(len(data)):
        with pytest.raises(Unreadable, match="The bytes end before the value does"):
            schema.read(data[:end], LIMITS)
    with pytest.raises(Unreadable, match="After the Avro value, 2 bytes are left"):
        schema.read(data + b"\x00\x00", LIMITS)


def doubled(levels: int) -> dict[str, Any]:
    """Records without a byte, each of two of those below it: 2 to the power of `levels` values."""
    found: dict[str, Any] = {
        "type": "record",
        "name": "R0",
        "fields": [{"name": "nothing", "type": "null"}],
    }
    for level in range(1, levels):
        fields = [{"name": "a", "type": found}, {"name": "b", "type": f"R{level - 1}"}]
        found = {"type": "record", "name": f"R{level}", "fields": fields}
    return found


@pytest.mark.parametrize(
    ("schema", "data", "sentence"),
    [
        # Ten bytes that ask for 2^63 nulls.
        ({"type": "array", "items": "null"}, b"\xfe" + b"\xff" * 8 + b"\x01\x00", "over 1000"),
        ({"type": "array", "items": "int"}, b"\xd2\x0f" + b"\x00" * 1001 + b"\x00", "over 1000"),
        ({"type": "map", "values": "null"}, b"\xd2\x0f" + b"\x00" * 1002, "over 1000"),
        (doubled(19), b"", "over 1000 single values"),
        (ENDLESS, b"", "over 20 levels deep"),
        (LINKED, b"\x02" * 500_000 + b"\x00", "over 20 levels deep"),
        ("string", b"\x01", "A length is negative: -1"),
        ("bytes", b"\xfe\xff\xff\xff\x0f", "The bytes end"),
        ("string", b"\x02\xff", "does not follow its Avro schema: 'utf-8'"),
        ("long", b"\xff" * 10 + b"\x00", "more than 64 bits"),
        ("long", b"\xff" * 9 + b"\x02", "more than 64 bits"),
        ("int", b"\x80\x80\x80\x80\x10", "more than 32 bits"),
        ("boolean", b"\x02", "neither 0 nor 1"),
        (["null", "int"], b"\x01", "a position beyond its types"),
        (["null", "int"], b"\x04", "a position beyond its types"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x01", "beyond its symbols"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 4},
            b"\x04\x30\x39",
            "more than its 4 digits",
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 4},
            b"\x80\x08" + b"\x11" * 512,
            "more than its 4 digits",
        ),
        ({"type": "int", "logicalType": "date"}, b"\xfe\xff\xff\xff\x0f", "does not follow"),
        ({"type": "fixed", "name": "F", "size": 10**30}, b"", "The bytes end"),
    ],
)
def test_bytes_that_would_hang_or_kill_their_reader_are_refused(
    schema: object, data: bytes, sentence: str
) -> None:
    with pytest.raises(Unreadable, match=sentence):
        read(schema, data)


def test_what_is_just_within_the_limits_is_read() -> None:
    nulls: list[None] = [None] * 1_000
    schema = {"type": "array", "items": "null"}
    assert read(schema, avro(schema, nulls)) == nulls
    deep: Any = None
    for _ in range(9):
        deep = {"next": deep}
    assert read(LINKED, avro(LINKED, deep)) == deep


def test_blocks_with_their_size_in_bytes_are_read() -> None:
    # A negative count, its size, two items; one more block; the end.
    data = b"\x03\x04\x02\x04" + b"\x02\x06" + b"\x00"
    assert read({"type": "array", "items": "int"}, data) == [1, 2, 3]


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "5", "null", '"nothing"', "{}", '{"type": "record"}', "[" * 100_000,
        '{"type": ' * 300 + '"int"' + "}" * 300,
        '{"type": "record", "name": "R", "fields": 5}',
        '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "S"}]}',
        '{"type": "record", "name": "R", "fields": [{"name": ["a"], "type": "int"}]}',
        '{"type": "enum", "name": 5, "symbols": ["A"]}',
        '{"type": "fixed", "name": "F", "size": -1}',
        '{"type": "fixed", "name": "F", "size": "x"}',
        '{"type": "bytes", "logicalType": "decimal", "precision": 1000000000}',
        '{"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 4}',
        '{"__fastavro_parsed": true, "__named_schemas": {}, "type": "record"}',
        json.dumps({"type": "record", "name": "R", "fields": [{"name": "x" * 600, "type": "int"}]}),
    ],
)  # fmt: skip
def test_a_text_that_is_no_schema_is_a_sentence(text: str) -> None:
    with pytest.raises(BadSchema) as caught:
        AvroSchema(text)
    assert len(str(caught.value)) < 400


def test_two_schemas_are_resolved_as_avro_says() -> None:
    old = {"type": "record", "name": "P", "fields": [{"name": "a", "type": "int"}]}
    new = {**old, "fields": [*old["fields"], {"name": "b", "type": "string", "default": "-"}]}
    into = AvroSchema(json.dumps(new))
    assert AvroSchema(json.dumps(old)).read(b"\x04", LIMITS, into) == {"a": 2, "b": "-"}


# -- Any schema, any bytes ---------------------------------------------------------------------

PRIMITIVES = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"]
LOGICAL = [
    {"type": "int", "logicalType": "date"},
    {"type": "int", "logicalType": "time-millis"},
    {"type": "long", "logicalType": "time-micros"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "local-timestamp-micros"},
    {"type": "string", "logicalType": "uuid"},
    {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 1},
]


@st.composite
def schemas(draw: st.DrawFn) -> Any:
    """Any schema; a record may hold itself."""
    count = 0

    def name() -> str:
        nonlocal count
        count += 1
        return f"N{count}"

    def one(depth: int, known: tuple[str, ...]) -> Any:
        kinds = ["primitive", "logical", "enum", "fixed"]
        if depth < 3:
            kinds += ["record", "array", "map", "union"]
        if known:
            kinds.append("again")
        match draw(st.sampled_from(kinds)):
            case "primitive":
                return draw(st.sampled_from(PRIMITIVES))
            case "logical":
                return draw(st.sampled_from(LOGICAL))
            case "enum":
                return {"type": "enum", "name": name(), "symbols": ["A", "B"]}
            case "fixed":
                return {"type": "fixed", "name": name(), "size": draw(st.integers(0, 3))}
            case "array":
                return {"type": "array", "items": one(depth + 1, known)}
            case "map":
                return {"type": "map", "values": one(depth + 1, known)}
            case "union":
                return ["null", one(depth + 3, known)]
            case "again":
                return draw(st.sampled_from(known))
            case _:
                own = name()
                fields = [
                    {"name": f"f{number}", "type": one(depth + 1, (*known, own))}
                    for number in range(draw(st.integers(0, 3)))
                ]
                return {"type": "record", "name": own, "fields": fields}

    return one(0, ())


@given(schemas(), st.binary(max_size=60))
def test_garbage_is_read_or_refused_and_nothing_else(schema: Any, data: bytes) -> None:
    try:
        parsed = AvroSchema(json.dumps(schema))
    except BadSchema:
        return  # a union in a union, for instance
    try:
        value = parsed.read(data, LIMITS)
    except Unreadable:
        return
    json.loads(json_text(value))


ORDERS = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**63), 2**63 - 1),
        "at": st.integers(-(10**12), 10**13).map(
            lambda ms: (
                datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
                + datetime.timedelta(milliseconds=ms)
            )
        ),
        "sum": st.integers(-(10**9) + 1, 10**9 - 1).map(lambda cents: Decimal(cents).scaleb(-2)),
        "kind": st.sampled_from(["NEW", "PAID"]),
        "note": st.none() | st.text(),
        "tags": st.dictionaries(st.text(), st.floats(allow_nan=False)),
        "raw": st.binary(min_size=2, max_size=2),
    }
)


@given(ORDERS)
def test_what_was_written_is_read_whatever_it_is(value: dict[str, Any]) -> None:
    assert read(ORDER, avro(ORDER, value)) == value
