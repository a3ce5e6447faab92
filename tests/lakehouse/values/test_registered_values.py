"""Values and keys behind the ids of a registry: their columns, evolution, trouble and healing.

The registry is the small server of `tests/schemas/values.py`, which answers as Confluent's does;
none of the real ones is a package of Python that could be started here.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

from strandline.cli.main import cli
from strandline.errors import InvalidSetting
from strandline.lakehouse.deadletters.listing import list_letters
from strandline.lakehouse.pipeline.events import Event, Notice
from strandline.lakehouse.pipeline.healing import EVERY_S, Healer
from strandline.lakehouse.tables.definition import TableSpec
from strandline.lakehouse.tables.spec import load_spec
from strandline.lakehouse.values.registered import client_of
from strandline.schemas.errors import RegistryDown
from strandline.schemas.registered import AUTH_VARIABLE, RegistryClient
from strandline.schemas.registry import REFUSAL_KEPT_S
from tests.lakehouse.tables.table_world import TableWorld
from tests.schemas.values import LittleRegistry, avro, framed

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [{"name": "id", "type": "int"}, {"name": "old", "type": "string"}],
}
LINE = {"name": "Line", "type": "record", "fields": [{"name": "n", "type": "long"}]}


def with_fields(*fields: dict[str, Any]) -> dict[str, Any]:
    return {**ORDER, "fields": [ORDER["fields"][0], *fields]}


def table_of(tmp_path: Path, registry: LittleRegistry, **fields: Any) -> TableWorld:
    """A table of Avro values in the framing, unless `fields` say something else."""
    fields = {"value_format": "avro", "framing": "confluent", **fields}
    return TableWorld(tmp_path / "t", registry=registry.address, **fields)


# -- Avro --------------------------------------------------------------------------------------


def test_a_version_with_a_record_without_fields_does_not_stop_the_table(
    tmp_path: Path, registry: LittleRegistry
) -> None:
    """Parquet has no column for it, and each attempt to write the batch failed."""
    table = table_of(tmp_path, registry)
    empty = {"name": "Mark", "type": "record", "fields": []}
    marked = with_fields({"name": "mark", "type": ["null", empty]})
    registry.register(1, ORDER)
    registry.register(2, marked)
    first, second = {"id": 1, "old": "a"}, {"id": 2, "mark": {}}
    table.batch("q", 0, [framed(1, avro(ORDER, first)), framed(2, avro(marked, second))])
    assert [row["id"] for row in table.rows()] == [1]
    [letter] = list_letters(table.store)
    assert (letter.offset, letter.error_class) == (1, "UnknownSchema")
    assert "shop.Order.mark is a record without fields" in letter.error


def test_each_record_is_read_with_its_own_schema(tmp_path: Path, registry: LittleRegistry) -> None:
    """A version adds a field and drops another; one changes a type: what the column cannot hold is
    a dead letter. All in one batch, and again for a task that begins with the last version."""
    table = table_of(tmp_path, registry)
    later = with_fields(
        {"name": "note", "type": ["null", "string"]}, {"name": "line", "type": LINE}
    )
    changed = with_fields({"name": "note", "type": "long"})
    for number, schema in enumerate((ORDER, later, changed), start=1):
        registry.register(number, schema)
    values = [
        framed(1, avro(ORDER, {"id": 1, "old": "a"})),
        framed(2, avro(later, {"id": 2, "note": "b", "line": {"n": 3}})),
        framed(3, avro(changed, {"id": 4, "note": 5})),
        None,
    ]
    done = table.batch("q", 0, values)
    assert (done.rows, done.dead_letters) == (3, 1)
    assert [(row["id"], row["old"], row["note"], row["line"]) for row in table.rows()] == [
        (1, "a", None, None),
        (2, None, "b", {"n": 3}),
        (None, None, None, None),
    ]
    [letter] = list_letters(table.store)
    assert (letter.offset, letter.error_class) == (2, "WrongType")
    asked = len(registry.asked)
    wider = with_fields(
        {"name": "line", "type": {**LINE, "fields": [{"name": "m", "type": "int"}]}}
    )
    registry.register(4, wider)
    assert table.batch("q", 1, [framed(4, avro(wider, {"id": 6, "line": {"m": 7}}))], start=4).rows
    assert table.rows()[-1]["line"] == {"n": None, "m": 7}
    assert len(registry.asked) == asked + 1, "what is known is not asked for again"


def test_a_schema_is_read_with_those_that_it_refers_to(
    tmp_path: Path, registry: LittleRegistry
) -> None:
    line = {**LINE, "namespace": "shop"}
    order = with_fields({"name": "lines", "type": {"type": "array", "items": "shop.Line"}})
    registry.register_version("lines", 2, 8, line)
    registry.register(
        9, order, references=[{"name": "shop.Line", "subject": "lines", "version": 2}]
    )
    table = table_of(tmp_path, registry)
    whole = with_fields({"name": "lines", "type": {"type": "array", "items": line}})
    table.batch("q", 0, [framed(9, avro(whole, {"id": 1, "lines": [{"n": 2}]}))])
    assert table.rows()[0]["lines"] == [{"n": 2}]


def test_an_unknown_id_heals_when_it_is_known(tmp_path: Path, registry: LittleRegistry) -> None:
    now = [0.0]
    client_of(registry.address)._clock = lambda: now[0]
    table = table_of(tmp_path, registry)
    value = framed(7, avro(ORDER, {"id": 1, "old": "a"}))
    table.batch("q", 0, [value, b"x", framed(8, b"")])
    kinds = {each.offset: (each.error_class, each.error) for each in list_letters(table.store)}
    assert kinds[0][0] == "UnknownSchema"
    assert "Schema 7 is not known to the schema registry at http://127.0.0.1" in kinds[0][1]
    assert kinds[1][0] == "BadValue"
    told: list[Event] = []
    healer = Healer(table.reopen(), told.append, clock=lambda: now[0])
    assert healer.maybe_heal() == 0
    registry.register(7, ORDER)
    now[0] += EVERY_S / 2
    assert healer.maybe_heal() == 0, "it is not time to look again"
    now[0] += EVERY_S + REFUSAL_KEPT_S
    assert healer.maybe_heal() == 1
    assert isinstance(told[0], Notice)
    assert "1 dead letters became rows" in told[0].sentence
    assert table.offsets() == [0]
    assert sorted(each.offset for each in list_letters(table.store)) == [1, 2]


@pytest.mark.parametrize(
    ("status", "body", "sentence"),
    [
        (500, b"", "answers with the status 500"),
        (401, b"", f"refuses the request .401.*{AUTH_VARIABLE}"),
        (200, b"<html>", "does not answer with a schema"),
        (200, b'{"schema": 5}', "does not answer with a schema"),
        (200, b"[" * 100_000, "does not answer with a schema"),
    ],
)
def test_trouble_with_the_registry_makes_no_dead_letter(
    tmp_path: Path, registry: LittleRegistry, status: int, body: bytes, sentence: str
) -> None:
    """The batch fails, and goes through when the registry answers again."""
    table = table_of(tmp_path, registry)
    registry.answers["/schemas/ids/7"] = (status, body)
    value = framed(7, avro(ORDER, {"id": 1, "old": "a"}))
    with pytest.raises(RegistryDown, match=sentence):
        table.batch("q", 0, [value])
    registry.register(7, ORDER)
    assert table.batch("q", 0, [value]).rows == 1


def test_a_fixed_table_gets_no_column_of_a_later_version(
    tmp_path: Path, registry: LittleRegistry
) -> None:
    later = with_fields({"name": "new", "type": "long"})
    registry.register(1, ORDER)
    registry.register(2, later)
    table = table_of(tmp_path, registry, evolve=False, schema=json.dumps(ORDER))
    done = table.batch(
        "q",
        0,
        [
            framed(2, avro(later, {"id": 1, "new": 2})),
            framed(1, avro(ORDER, {"id": 1, "old": "a"})),
        ],
    )
    assert (done.rows, done.dead_letters) == (1, 1)
    assert [each.error_class for each in list_letters(table.store)] == ["UnknownField"]


def test_garbage_is_asked_for_in_bounds(tmp_path: Path, registry: LittleRegistry) -> None:
    table = table_of(tmp_path, registry)
    table.batch("q", 0, [framed(number, b"") for number in range(200)])
    assert len(registry.asked) == 50
    assert len(table.letters()) == 200


# -- Protobuf and JSON -------------------------------------------------------------------------


def proto_files() -> tuple[descriptor_pb2.FileDescriptorProto, descriptor_pb2.FileDescriptorProto]:
    """`Order` with a `Customer` of another file and a time, and a message within it."""
    field = descriptor_pb2.FieldDescriptorProto
    customer = descriptor_pb2.FileDescriptorProto(name="customer.proto", syntax="proto3")
    made = customer.message_type.add(name="Customer")
    made.field.add(name="name", number=1, type=field.TYPE_STRING, label=1)
    order = descriptor_pb2.FileDescriptorProto(
        name="order.proto",
        syntax="proto3",
        dependency=["google/protobuf/timestamp.proto", "customer.proto"],
    )
    made = order.message_type.add(name="Order")
    made.field.add(name="id", number=1, type=field.TYPE_INT32, label=1)
    made.field.add(name="by", number=2, type=11, type_name=".Customer", label=1)
    made.field.add(name="at", number=3, type=11, type_name=".google.protobuf.Timestamp", label=1)
    inner = made.nested_type.add(name="Cancelled")
    inner.field.add(name="why", number=1, type=field.TYPE_STRING, label=1)
    return customer, order


def test_protobuf_messages_are_found_by_their_path(
    tmp_path: Path, registry: LittleRegistry
) -> None:
    customer, order = proto_files()
    reference = {"name": "customer.proto", "subject": "customers", "version": 1}
    kind = {"schemaType": "PROTOBUF"}
    for number, file, more in ((3, customer, {}), (4, order, {"references": [reference]})):
        text = base64.b64encode(file.SerializeToString()).decode()
        registry.register_text(f"/schemas/ids/{number}", "syntax...", **kind, **more)
        registry.register_text(f"/schemas/ids/{number}?format=serialized", text, **kind, **more)
    registry.register_text("/subjects/customers/versions/1", "syntax...", id=3, **kind)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    for file in (customer, order):
        pool.Add(file)
    message = message_factory.GetMessageClass(pool.FindMessageTypeByName("Order"))
    inner = message_factory.GetMessageClass(pool.FindMessageTypeByName("Order.Cancelled"))
    whole = message(id=7, by={"name": "Ada"}, at={"seconds": 1})
    values = [
        framed(4, b"\x00" + whole.SerializeToString()),
        framed(4, b"\x04\x00\x00" + inner(why="late").SerializeToString()),
        framed(4, b"\x02\x0a" + b""),
    ]
    table = table_of(tmp_path, registry, value_format="protobuf")
    table.batch("q", 0, values)
    assert [(row["id"], row["by"], row["why"]) for row in table.rows()] == [
        (7, {"name": "Ada"}, None),
        (None, None, "late"),
    ]
    assert table.store.dataset().schema.field("at").type == pa.timestamp("us", "UTC")
    [letter] = list_letters(table.store)
    assert "has no message at [5]" in letter.error


def test_json_behind_ids_has_the_types_of_its_schema(
    tmp_path: Path, registry: LittleRegistry
) -> None:
    schema = {"type": "object", "properties": {"at": {"type": "string", "format": "date-time"}}}
    registry.register(5, schema, schemaType="JSON")
    registry.register(6, {"oneOf": []}, schemaType="JSON")
    registry.register(7, "long")
    table = table_of(tmp_path, registry, value_format="json")
    values = [
        framed(5, b'{"at": "2026-03-01T05:00:00Z", "n": 1}'),
        framed(6, b'{"m": 2}'),
        b'{"m": 2}',
        framed(7, b"{}"),
        framed(8, b"{}"),
        framed(5, b'{"at": 1.5}'),
    ]
    table.batch("q", 0, values)
    assert table.offsets() == [0, 1]
    assert str(table.store.dataset().schema.field("at").type) == "timestamp[us, tz=UTC]"
    kinds = {each.offset: each.error_class for each in list_letters(table.store)}
    assert kinds == {2: "BadValue", 3: "BadValue", 4: "UnknownSchema", 5: "WrongType"}


# -- Keys, headers, and hints ------------------------------------------------------------------


def test_keys_become_a_column(tmp_path: Path, registry: LittleRegistry) -> None:
    registry.register(1, ORDER)
    registry.register(2, "string")
    keys = {
        "string": ([b"a", None, b"\xff"], ["a", None]),
        "json": ([b'{"id": 1}', None, b'1, "b": 2'], [{"id": 1}, None]),
        "avro": (
            [framed(1, avro(ORDER, {"id": 1, "old": "x"})), None, framed(2, avro("string", "s"))],
            [{"id": 1, "old": "x"}, None],
        ),
    }
    for kind, (given, wanted) in keys.items():
        table = TableWorld(
            tmp_path / kind,
            key_format=kind,
            keep_headers=True,
            registry=registry.address if kind == "avro" else None,
        )
        table.batch("q", 0, [{"n": 1}, {"n": 2}, {"n": 3}], keys=given)
        assert [row["kafka_key_value"] for row in table.rows()] == wanted, kind
        assert table.rows()[0]["kafka_headers"] is None
        [letter] = list_letters(table.store)
        assert (letter.offset, letter.error_class) == (2, "BadKey"), kind
        table.batch("q", 1, [{"kafka_key_value": 1}], start=3)
        assert [each.error_class for each in list_letters(table.store)].count("UnknownField") == 1


def test_a_letter_that_looks_framed_names_the_id(tmp_path: Path) -> None:
    table = TableWorld(tmp_path / "t")
    table.batch("q", 0, [framed(7, b"{}"), b"{"])
    framed_one, other = sorted(list_letters(table.store))
    assert "It looks framed: a zero byte and the schema id 7 stand in front" in framed_one.error
    assert "framed" not in other.error


# -- From the definition on --------------------------------------------------------------------


def test_a_table_is_created_with_the_columns_of_the_newest_version(
    tmp_path: Path, registry: LittleRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    def create(name: str, *options: str, code: int = 0) -> str:
        where = ("--tables", str(tmp_path), "--registry", registry.address)
        ended = CliRunner().invoke(cli, ["table", "create", name, *where, *options])
        assert ended.exit_code == code, ended.output
        return str(ended.output)

    registry.register_version(
        "orders-value", "latest", 3, with_fields({"name": "d", "type": "string"})
    )
    said = create("orders", "--value", "avro", "--partition", "d")
    assert "those of schema 3, the newest of subject orders-value" in said
    spec = load_spec(tmp_path / "orders")
    assert (spec.registry, spec.framing) == (registry.address, "confluent")
    assert "get its columns with its first records" in create("o2", "--value", "avro").replace(
        "gets", "get"
    )
    assert "is one of AVRO" in create(
        "o3", "--value", "protobuf", "--subject", "orders-value", code=2
    )
    registry.answers["/subjects/o4-value/versions/latest"] = (500, b"")
    assert "answers with the status 500" in create("o4", "--value", "avro", code=1)
    said = create("o5", "--value", "avro", "--registry", "http://me:secret@x", code=2)
    assert AUTH_VARIABLE in said
    assert "secret" not in said
    monkeypatch.setenv(AUTH_VARIABLE, "me:secret")
    RegistryClient(registry.address).latest("orders-value")
    assert registry.headers[-1]["Authorization"] == "Basic bWU6c2VjcmV0"


def test_definitions_that_do_not_go_together(tmp_path: Path) -> None:
    for fields, why in (
        ({"key_format": "avro"}, "name a registry"),
        ({"registry": "http://r", "value_format": "avro"}, "framing 'confluent'"),
        ({"registry": "ftp://r", "framing": "confluent"}, "http://HOST:PORT"),
    ):
        with pytest.raises(InvalidSetting, match=why):
            TableSpec(name="t", topics=("t",), location=str(tmp_path), **fields)  # type: ignore[arg-type]
