"""Avro and Protobuf values: their columns, their framing, and what cannot be read."""

from __future__ import annotations

import base64
import datetime
import io
import json
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2

from strandline.errors import InvalidSetting
from strandline.lakehouse.tables.definition import TableSpec
from strandline.lakehouse.tables.names import TIMESTAMP
from strandline.lakehouse.tables.types import list_of
from strandline.lakehouse.values.decoding import Decoded
from strandline.lakehouse.values.making import given_columns, make_decoder
from strandline.lakehouse.values.protobuf import _message_class

MOMENT = datetime.datetime(2013, 1, 1, 10, 0, 0, 123456, tzinfo=datetime.UTC)
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
PAYMENT: dict[str, Any] = {
    "type": "record",
    "name": "Payment",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "sum", "type": DECIMAL},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "note", "type": ["null", "string"], "default": None},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Line",
                    "fields": [{"name": "n", "type": "float"}, {"name": "kind", "type": "Kind"}],
                },
            },
        },
        {"name": "extra", "type": {"type": "map", "values": "long"}},
    ],
}  # fmt: skip
RECORD: dict[str, Any] = {
    "id": 7,
    "at": MOMENT,
    "sum": Decimal("12.34"),
    "kind": "B",
    "note": "é",
    "lines": [{"n": 0.5, "kind": "A"}],
    "extra": {"x": 1},
}


def table(**fields: Any) -> TableSpec:
    return TableSpec(name="t", topics=("t",), location="/tmp/t", **fields)


def decode(spec: TableSpec, *values: bytes | None) -> Decoded:
    return make_decoder(spec, given_columns(spec)).decode(pa.array(values, pa.binary()))


def avro(schema: dict[str, Any], record: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(
        stream, fastavro.parse_schema(json.loads(json.dumps(schema))), record
    )
    return stream.getvalue()


def test_avro_records_become_columns() -> None:
    spec = table(value_format="avro", schema=json.dumps(PAYMENT))
    good = avro(PAYMENT, RECORD)
    found = decode(spec, good, good[:-3], None, good + b"\x00", b"")
    assert found.rows.to_pylist() == [0, 2]
    first, second = found.columns.to_pylist()
    assert {**first, "extra": dict(first["extra"])} == RECORD
    assert set(second.values()) == {None}
    assert [(fault.row, fault.kind) for fault in found.faults] == [
        (1, "BadValue"),
        (3, "BadValue"),
        (4, "BadValue"),
    ]
    assert "1 bytes are left" in found.faults[1].sentence
    assert found.columns.schema.field("id").type == pa.int64()
    assert found.columns.schema.field("at").type == TIMESTAMP


def test_framed_avro_is_read_with_its_own_schema_and_shown_in_the_newest() -> None:
    old = {"type": "record", "name": "P", "fields": [{"name": "a", "type": "int"}]}
    new = json.loads(json.dumps(old))
    new["fields"].append({"name": "b", "type": "string", "default": "none"})
    spec = table(
        value_format="avro",
        framing="confluent",
        schemas={"3": json.dumps(old), "12": json.dumps(new)},
    )
    found = decode(
        spec,
        b"\x00\x00\x00\x00\x03" + avro(old, {"a": 1}),
        b"\x00\x00\x00\x00\x0c" + avro(new, {"a": 2, "b": "x"}),
        b"\x00\x00\x00\x00\x04" + avro(old, {"a": 3}),
        b"\x01\x00\x00\x00\x03" + avro(old, {"a": 3}),
        b"\x00\x00",
    )
    assert found.columns.to_pylist() == [{"a": 1, "b": "none"}, {"a": 2, "b": "x"}]
    assert [(fault.row, fault.kind) for fault in found.faults] == [
        (2, "UnknownSchema"),
        (3, "BadValue"),
        (4, "BadValue"),
    ]


def test_an_avro_uuid_is_the_text_that_was_sent() -> None:
    """fastavro gives an object that no column of text takes, and writes the letters small."""
    kind = {"type": "string", "logicalType": "uuid"}
    fixed = {"type": "fixed", "name": "F", "size": 16, "logicalType": "uuid"}
    fields = [
        {"name": "id", "type": kind},
        {"name": "others", "type": {"type": "array", "items": ["null", kind]}},
        {"name": "raw", "type": fixed},
    ]
    schema = {"type": "record", "name": "P", "fields": fields}
    record = {"id": "F81D4FAE-7DEC-11D0-A765-00A0C91E6BF6", "others": [None, "no uuid"]}
    plain = json.loads(json.dumps(schema).replace("logicalType", "note"))
    found = decode(
        table(value_format="avro", schema=json.dumps(schema)),
        avro(plain, {**record, "raw": bytes(range(16))}),
    )
    assert found.columns.to_pylist() == [{**record, "raw": bytes(range(16))}]


PLAIN: dict[str, object] = {
    "boolean": True,
    "int": 3,
    "long": 3,
    "float": 0.5,
    "double": 0.5,
    "string": "x",
    "bytes": b"xy",
    "fixed": b"xy",
    "enum": "A",
}
LOGICAL = {
    "date": {"int"},
    "time-millis": {"int"},
    "time-micros": {"long"},
    "timestamp-millis": {"long"},
    "timestamp-micros": {"long"},
    "timestamp-nanos": {"long"},
    "local-timestamp-millis": {"long"},
    "local-timestamp-micros": {"long"},
    "duration": {"fixed"},
    "decimal": {"bytes", "fixed"},
    "uuid": {"string", "fixed"},
    "of-another-release": set[str](),
}
"""The types that a logical type can be one of."""


@pytest.mark.parametrize("base", PLAIN)
def test_an_avro_logical_type_of_another_type_is_ignored(base: str) -> None:
    """As Avro says; no record of such a column would be a row."""
    all_named: dict[str, dict[str, Any]] = {"fixed": {"size": 2}, "enum": {"symbols": ["A"]}}
    named = all_named.get(base, {})
    fields, record = [], {}
    for number, logical in enumerate(each for each in LOGICAL if base not in LOGICAL[each]):
        kind = {"type": base, "name": f"T{number}", "logicalType": logical, **named}
        fields.append({"name": f"c{number}", "type": {**kind, "precision": 3, "scale": 2}})
        record[f"c{number}"] = PLAIN[base]
    schema = {"type": "record", "name": "P", "fields": fields}
    plain = json.loads(json.dumps(schema).replace("logicalType", "note"))
    spec = table(value_format="avro", schema=json.dumps(schema))
    found = decode(spec, avro(plain, record))
    assert found.columns.to_pylist() == [record]
    assert given_columns(spec) == given_columns(
        table(value_format="avro", schema=json.dumps(plain))
    )


def test_avro_types_are_named_across_namespaces() -> None:
    kind = {"type": "enum", "name": "Kind", "symbols": ["A"]}
    inner = {
        "type": "record",
        "name": "Line",
        "namespace": "y",
        "fields": [{"name": "kind", "type": "x.Kind"}, {"name": "same", "type": {
            "type": "array", "items": "x.Kind"}}],
    }  # fmt: skip
    schema = {
        "type": "record",
        "name": "x.Order",
        "fields": [
            {"name": "kind", "type": kind},
            {"name": "line", "type": inner},
            {"name": "other", "type": ["null", "y.Line"]},
        ],
    }
    record = {"kind": "A", "line": {"kind": "A", "same": ["A"]}, "other": None}
    found = decode(table(value_format="avro", schema=json.dumps(schema)), avro(schema, record))
    assert found.columns.to_pylist() == [record]


@pytest.mark.parametrize(
    "kind",
    [
        ["int", "string"],
        {"type": "int", "logicalType": "time-millis"},
        "P",
        {"type": "long", "logicalType": "local-timestamp-micros"},
        {"type": "bytes", "logicalType": "decimal", "precision": 39},
    ],
)
def test_avro_that_no_column_holds_is_refused(kind: object) -> None:
    schema = {"type": "record", "name": "P", "fields": [{"name": "a", "type": kind}]}
    with pytest.raises(InvalidSetting, match=r"P\.a"):
        given_columns(table(value_format="avro", schema=json.dumps(schema)))


@pytest.mark.parametrize("text", ["{", '{"type": "int"}', '{"type": "record"}', '"long"'])
def test_what_is_no_avro_record_schema_is_refused(text: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        given_columns(table(value_format="avro", schema=text))
    assert caught.value.name == "schema"


FIELD = descriptor_pb2.FieldDescriptorProto


def descriptors(*, recursive: bool = False) -> str:
    """A file with the message `demo.Order`, as protoc would describe it."""
    files = descriptor_pb2.FileDescriptorSet()
    stamp = files.file.add()
    stamp.ParseFromString(timestamp_pb2.DESCRIPTOR.serialized_pb)
    file = files.file.add(name="demo.proto", package="demo", syntax="proto3")
    file.dependency.append(stamp.name)
    kind = file.enum_type.add(name="Kind")
    kind.value.add(name="NONE", number=0)
    kind.value.add(name="BIG", number=1)
    line = file.message_type.add(name="Line")
    line.field.add(name="n", number=1, type=FIELD.TYPE_INT32, label=FIELD.LABEL_OPTIONAL)
    if recursive:
        line.field.add(
            name="line",
            number=2,
            type=FIELD.TYPE_MESSAGE,
            type_name=".demo.Line",
            label=FIELD.LABEL_OPTIONAL,
        )
    order = file.message_type.add(name="Order")
    entry = order.nested_type.add(name="TagsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=FIELD.TYPE_STRING, label=FIELD.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=FIELD.TYPE_INT64, label=FIELD.LABEL_OPTIONAL)
    fields = [
        ("id", FIELD.TYPE_UINT64, "", False),
        ("price", FIELD.TYPE_FLOAT, "", False),
        ("kind", FIELD.TYPE_ENUM, ".demo.Kind", False),
        ("data", FIELD.TYPE_BYTES, "", False),
        ("at", FIELD.TYPE_MESSAGE, ".google.protobuf.Timestamp", False),
        ("first", FIELD.TYPE_MESSAGE, ".demo.Line", False),
        ("lines", FIELD.TYPE_MESSAGE, ".demo.Line", True),
        ("tags", FIELD.TYPE_MESSAGE, ".demo.Order.TagsEntry", True),
    ]
    for number, (name, kind_, type_name, repeated) in enumerate(fields, 1):
        order.field.add(
            name=name,
            number=number,
            type=kind_,
            type_name=type_name or None,
            label=FIELD.LABEL_REPEATED if repeated else FIELD.LABEL_OPTIONAL,
        )
    return base64.b64encode(files.SerializeToString()).decode()


def order_spec(**fields: Any) -> TableSpec:
    return table(value_format="protobuf", schema=descriptors(), message="demo.Order", **fields)


def order(**fields: Any) -> bytes:
    message = _message_class(order_spec())(**fields)
    return bytes(message.SerializeToString())


def test_protobuf_messages_become_columns() -> None:
    stamp = {"seconds": int(MOMENT.timestamp()), "nanos": 123_456_789}
    lines = {"first": {"n": 2}, "lines": [{"n": 3}], "tags": {"x": 4}}
    full = order(id=1, price=0.5, kind=1, data=b"\xff", at=stamp, **lines)
    found = decode(order_spec(), full, b"", order(kind=9), b"\xff")
    assert [fault.kind for fault in found.faults] == ["BadValue"]
    assert found.rows.to_pylist() == [0, 1, 2]
    first, second, third = found.columns.to_pylist()
    assert first == {
        "id": 1,
        "price": 0.5,
        "kind": "BIG",
        "data": b"\xff",
        "at": MOMENT,
        "first": {"n": 2},
        "lines": [{"n": 3}],
        "tags": [("x", 4)],
    }
    assert (second["id"], second["kind"], second["at"], second["first"]) == (0, "NONE", None, None)
    assert third["kind"] == "9"
    assert found.columns.schema.field("lines").type == list_of(pa.struct([("n", pa.int64())]))


def test_a_protobuf_value_beyond_its_column_or_descriptor_is_a_fault() -> None:
    found = decode(order_spec(), order(id=(1 << 64) - 1), order(id=2) + b"\xf8\x01\x01")
    assert [(fault.row, fault.kind) for fault in found.faults] == [
        (0, "WrongType"),
        (1, "UnknownField"),
    ]


@pytest.mark.parametrize("seconds", [253_402_300_800, -62_135_596_801, (1 << 63) - 1])
def test_a_protobuf_time_beyond_the_calendar_is_a_fault(seconds: int) -> None:
    found = decode(order_spec(), order(id=1, at={"seconds": seconds}), order(id=2))
    assert [row["id"] for row in found.columns.to_pylist()] == [2]
    [fault] = found.faults
    assert (fault.row, fault.kind) == (0, "WrongType")
    assert fault.sentence == "demo.Order.at has a time that is not within the years 1 to 9999."


@pytest.mark.parametrize("path", [b"\x00", b"\x02\x00", b"\x04\x02\x00"])
def test_framed_protobuf(path: bytes) -> None:
    value = b"\x00\x00\x00\x00\x05" + path + order(id=3)
    found = decode(order_spec(framing="confluent"), value, value[:5], b"\x00\x00\x00\x00\x05\xff")
    assert [row["id"] for row in found.columns.to_pylist()] == [3]
    assert [fault.kind for fault in found.faults] == ["BadValue", "BadValue"]


@pytest.mark.parametrize(
    ("schema", "message", "field"),
    [
        ("not base64!", "demo.Order", "schema"),
        ("AAAA", "demo.Order", "schema"),
        (descriptors(), "demo.Missing", "message"),
        (descriptors(recursive=True), "demo.Order", "schema"),
    ],
)
def test_descriptors_that_cannot_be_columns_are_refused(
    schema: str, message: str, field: str
) -> None:
    with pytest.raises(InvalidSetting) as caught:
        given_columns(table(value_format="protobuf", schema=schema, message=message))
    assert caught.value.name == field
