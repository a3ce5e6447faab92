"""A later version of a schema gives a field another type, or the name of what divides the table."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from strandline.lakehouse.deadletters.listing import list_letters
from strandline.lakehouse.tables.definition import parse_partitioning
from tests.lakehouse.tables.table_world import TableWorld
from tests.lakehouse.values.test_registered_values import ORDER, table_of, with_fields
from tests.schemas.values import LittleRegistry, avro, framed

MOMENT = datetime.datetime(2026, 3, 1, 5, tzinfo=datetime.UTC)
TIME = {"type": "long", "logicalType": "timestamp-millis"}
DAY = {"type": "int", "logicalType": "date"}
SUM = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
TEXTS = {"type": "array", "items": "string"}
NUMBERS = {"type": "map", "values": "long"}
PAIR = {"type": "record", "name": "Pair", "fields": [{"name": "a", "type": "long"}]}
WIDER = {**PAIR, "fields": [*PAIR["fields"], {"name": "b", "type": "long"}]}


@pytest.mark.parametrize(
    ("first", "before", "then", "unfit"),
    [
        ("long", 1, "double", 1.5),
        ("long", 1, "double", 1.0),
        ("long", 1, SUM, Decimal("1.50")),
        (TIME, MOMENT, "long", 1_772_341_200_000),
        (TIME, MOMENT, "double", 1.5),
        (DAY, MOMENT.date(), TIME, MOMENT),
        (DAY, MOMENT.date(), "int", 5),
        (TEXTS, ["a"], "string", "abc"),
        (TEXTS, ["a"], "bytes", b"abc"),
        ({"type": "array", "items": "long"}, [1], {"type": "array", "items": "double"}, [1.5]),
        ("bytes", b"a", "string", "x"),
        ("string", "a", "bytes", b"x"),
        ("double", 1.5, "boolean", True),
        ("double", 1.5, "long", 2**53 + 1),
        (PAIR, {"a": 1}, NUMBERS, {"a": 1, "b": 2}),
        (NUMBERS, {"a": 1}, {"type": "map", "values": "double"}, {"a": 1.5}),
        ({"type": "map", "values": PAIR}, {"k": {"a": 1}},
         {"type": "map", "values": WIDER}, {"k": {"a": 1, "b": 2}}),
        (NUMBERS, {"a": 1}, {"type": "array", "items": PAIR}, [{"a": 1}]),
    ],
)  # fmt: skip
def test_what_a_column_does_not_hold_exactly_is_a_dead_letter(
    tmp_path: Path, registry: LittleRegistry, first: Any, before: object, then: Any, unfit: object
) -> None:
    """Arrow would cut it, count it as a time, take it apart, or leave a part of it out. Records of
    the schema before it, and those that are null there, are rows."""
    schemas = [with_fields({"name": "v", "type": ["null", kind]}) for kind in (first, then)]
    for number, schema in enumerate(schemas, start=1):
        registry.register(number, schema)
    table = table_of(tmp_path, registry)
    values = [
        framed(1, avro(schemas[0], {"id": 1, "v": before})),
        framed(2, avro(schemas[1], {"id": 2, "v": unfit})),
        framed(2, avro(schemas[1], {"id": 3, "v": None})),
    ]
    done = table.batch("q", 0, values)
    assert (done.rows, done.dead_letters) == (2, 1)
    [letter] = list_letters(table.store)
    assert (letter.offset, letter.error_class) == (1, "WrongType")
    assert "The value cannot be held: " in letter.error
    [row, empty] = table.rows()
    held = dict(row["v"]) if isinstance(before, dict) else row["v"]
    assert (held, empty["v"]) == (before, None)


@pytest.mark.parametrize(
    ("first", "before", "then", "wider", "held"),
    [
        ("double", 1.5, "long", 2, 2.0),
        (SUM, Decimal("1.50"), "long", 2, Decimal("2.00")),
        ("long", 1, "int", 2, 2),
        ("string", "a", {"type": "enum", "name": "E", "symbols": ["b"]}, "b", "b"),
        (PAIR, {"a": 1}, WIDER, {"a": 2, "b": 3}, {"a": 2, "b": 3}),
        (NUMBERS, {"a": 1}, PAIR, {"a": 2}, [("a", 2)]),
    ],
)
def test_what_a_column_of_another_type_holds_exactly_is_a_row(
    tmp_path: Path,
    registry: LittleRegistry,
    first: Any,
    before: object,
    then: Any,
    wider: object,
    held: object,
) -> None:
    schemas = [with_fields({"name": "v", "type": kind}) for kind in (first, then)]
    for number, schema in enumerate(schemas, start=1):
        registry.register(number, schema)
    table = table_of(tmp_path, registry)
    table.batch("q", 0, [framed(1, avro(schemas[0], {"id": 1, "v": before}))])
    table.batch("q", 1, [framed(2, avro(schemas[1], {"id": 2, "v": wider}))], start=1)
    assert table.rows()[1]["v"] == held


def test_a_key_that_its_column_does_not_hold_is_a_dead_letter(
    tmp_path: Path, registry: LittleRegistry
) -> None:
    for number, kind in enumerate(("long", "double"), start=1):
        registry.register(number, kind)
    table = TableWorld(tmp_path / "t", key_format="avro", registry=registry.address)
    keys = [framed(1, avro("long", 1)), framed(2, avro("double", 1.5))]
    table.batch("q", 0, [{"n": 1}, {"n": 2}], keys=keys)
    assert [row["kafka_key_value"] for row in table.rows()] == [1]
    [letter] = list_letters(table.store)
    assert (letter.offset, letter.error_class) == (1, "BadKey")


def test_a_field_called_like_the_tables_division_is_a_dead_letter(
    tmp_path: Path, registry: LittleRegistry
) -> None:
    schema = with_fields({"name": "id_bucket", "type": "string"})
    registry.register(1, ORDER)
    registry.register(2, schema)
    table = table_of(
        tmp_path, registry, columns={"id": "long"}, partition_by=parse_partitioning("bucket(4, id)")
    )
    values = [
        framed(1, avro(ORDER, {"id": 1, "old": "a"})),
        framed(2, avro(schema, {"id": 2, "id_bucket": "mine"})),
    ]
    table.batch("q", 0, values)
    assert (table.offsets(), table.letters()) == ([0], [1])
