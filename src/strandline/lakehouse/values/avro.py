"""Avro values, plain or in Confluent's framing, through fastavro.

Theory: the columns come from one schema, the table's; each value is read with the schema it was
written with (in Confluent's framing, the one with its id) and resolved to the table's as Avro says.
Values are read by `strandline.schemas.avro`, as everywhere, record by record: exact before fast.
Integers become 64 bits wide, floating-point numbers doubles.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from strandline.errors import InvalidSetting
from strandline.lakehouse.tables.definition import TableSpec
from strandline.lakehouse.tables.names import TIMESTAMP
from strandline.lakehouse.tables.types import list_of, name_fault
from strandline.lakehouse.values.building import Record, read_singly
from strandline.lakehouse.values.decoding import (
    BAD_VALUE,
    UNKNOWN_SCHEMA,
    Decoded,
    Unfit,
)
from strandline.lakehouse.values.framing import unframe
from strandline.schemas.avro import AvroSchema
from strandline.schemas.errors import BadSchema, Unreadable
from strandline.schemas.walk import Limits

LIMITS: Final = Limits(items=4_000_000)
"""Far above what a record of the usual size can hold, and below what a worker's memory can."""

_SCALARS: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "int": pa.int64(),
    "long": pa.int64(),
    "float": pa.float64(),
    "double": pa.float64(),
    "string": pa.string(),
    "enum": pa.string(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
}
_LOGICAL: Final[Mapping[str, pa.DataType]] = {
    "long-timestamp-millis": TIMESTAMP,
    "long-timestamp-micros": TIMESTAMP,
    "int-date": pa.date32(),
}
"""Logical types behind the type that each is one of. Of another type Avro ignores it, as fastavro
does: the values are those of that type."""
_DECIMALS: Final = frozenset({"bytes-decimal", "fixed-decimal"})
_REFUSED: Final = frozenset(
    {
        "int-time-millis",
        "long-time-micros",
        "long-local-timestamp-millis",
        "long-local-timestamp-micros",
        "long-timestamp-nanos",
        "fixed-duration",
    }
)
_DIGITS_MAX: Final = 38
"""Of a decimal that formats can hold."""


class AvroDecoder:
    """Reads records. `writers` are the schemas by id, or the one under None (plain values)."""

    name = "avro"

    def __init__(
        self, columns: pa.Schema, reader: AvroSchema, writers: Mapping[int | None, AvroSchema]
    ) -> None:
        self._columns = columns
        self._reader = reader
        self._writers = writers
        self._framed = None not in writers

    def decode(self, values: pa.Array) -> Decoded:
        """As `Decoder.decode`."""
        return read_singly(values, self._columns, self._read)

    def _read(self, value: bytes) -> Record:
        number: int | None = None
        if self._framed:
            number, value = unframe(value)
        writer = self._writers.get(number)
        if writer is None:
            raise Unfit(UNKNOWN_SCHEMA, f"The table was not given the Avro schema {number}.")
        try:
            record = writer.read(value, LIMITS, self._reader)
        except Unreadable as error:
            raise Unfit(BAD_VALUE, str(error)) from None
        return record  # type: ignore[return-value]  # the table's schema is one of a record


def make_avro_decoder(spec: TableSpec) -> AvroDecoder:
    """The decoder of a table; raises InvalidSetting."""
    reader = _reader_schema(spec)
    writers: dict[int | None, AvroSchema] = {None: reader}
    if spec.framing == "confluent":
        writers = {_id(number): _parse(text) for number, text in spec.schemas.items()}
    return AvroDecoder(avro_columns(spec), reader, writers)


def avro_columns(spec: TableSpec) -> pa.Schema:
    """The columns that the table's Avro schema asks for; raises InvalidSetting."""
    if spec.registry is not None and spec.schema is None:
        return pa.schema([])
    return avro_schema_columns(_reader_schema(spec))


def avro_schema_columns(schema: AvroSchema) -> pa.Schema:
    """The columns of a schema; raises InvalidSetting."""
    document = schema.document
    if not isinstance(document, dict) or document["type"] != "record":
        raise InvalidSetting("schema", "The Avro schema must be one of a record.")
    return pa.schema(_fields(document, schema.named, ()))


def avro_value_type(schema: AvroSchema) -> pa.DataType:
    """The type of one column for values of a schema; raises InvalidSetting."""
    return _type("the value", schema.document, schema.named, ())


def _reader_schema(spec: TableSpec) -> AvroSchema:
    """The given schema, or the one with the greatest id."""
    return _parse(spec.schema or spec.schemas[max(spec.schemas, key=_id)])


def _id(text: str) -> int:
    if not text.isdecimal():
        raise InvalidSetting("schemas", f"{text!r} is no schema id.")
    return int(text)


def _parse(text: str) -> AvroSchema:
    try:
        return AvroSchema(text)
    except BadSchema as error:
        raise InvalidSetting("schema", str(error)) from None


def _fields(
    document: Mapping[str, Any], named: Mapping[str, Any], within: tuple[str, ...]
) -> list[pa.Field]:
    names = [field["name"] for field in document["fields"]]
    fields = []
    for field in document["fields"]:
        if (fault := name_fault(field["name"], names)) is not None:
            raise InvalidSetting("schema", fault)
        path = f"{document['name']}.{field['name']}"
        fields.append(
            pa.field(field["name"], _type(path, field["type"], named, (*within, document["name"])))
        )
    return fields


def _type(path: str, schema: Any, named: Mapping[str, Any], within: tuple[str, ...]) -> pa.DataType:
    if isinstance(schema, list):
        others = [item for item in schema if item != "null"]
        if len(others) != 1:
            raise InvalidSetting(
                "schema", f"{path} is a union of several types: no column holds it."
            )
        return _type(path, others[0], named, within)
    if isinstance(schema, str):
        if schema in _SCALARS:
            return _SCALARS[schema]
        if schema in named and schema not in within:
            return _type(path, named[schema], named, within)
        raise InvalidSetting("schema", f"{path} has type {schema!r}, which no column can hold.")
    logical = f"{schema['type']}-{schema.get('logicalType')}"
    if logical in _REFUSED:
        raise InvalidSetting(
            "schema", f"{path} is a {schema['logicalType']}, which no column can hold."
        )
    if logical in _DECIMALS:
        if schema["precision"] > _DIGITS_MAX:
            raise InvalidSetting("schema", f"{path} has over {_DIGITS_MAX} digits.")
        return pa.decimal128(schema["precision"], schema.get("scale", 0))
    if logical in _LOGICAL:
        return _LOGICAL[logical]
    match schema["type"]:
        case "record":
            if not schema["fields"]:
                raise InvalidSetting(
                    "schema", f"{path} is a record without fields: no column holds it."
                )
            return pa.struct(_fields(schema, named, within))
        case "array":
            return list_of(_type(f"{path}[]", schema["items"], named, within))
        case "map":
            return pa.map_(pa.string(), _type(f"{path}{{}}", schema["values"], named, within))
        case inner:
            return _type(path, inner, named, within)
