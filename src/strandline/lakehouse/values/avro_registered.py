"""Avro schemas of a registry as readers, with the schemas that they refer to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from strandline.errors import InvalidSetting
from strandline.lakehouse.values.avro import LIMITS, avro_schema_columns, avro_value_type
from strandline.lakehouse.values.building import Record
from strandline.lakehouse.values.decoding import BAD_VALUE, Unfit
from strandline.schemas.avro import AvroSchema
from strandline.schemas.errors import Unreadable
from strandline.schemas.registered import Reference, Registered, RegistryClient

REFERENCES_MAX: Final = 200


@dataclass(frozen=True)
class AvroReader:
    """One schema, of a record."""

    schema: AvroSchema
    fields: pa.Schema

    def columns(self, payload: bytes) -> tuple[str, pa.Schema]:
        """As `Reader.columns`."""
        del payload
        return "", self.fields

    def read(self, payload: bytes) -> Record:
        """As `Reader.read`."""
        return read_avro(self.schema, payload)  # type: ignore[return-value]  # it is of a record


def avro_reader(client: RegistryClient, schema: Registered) -> AvroReader:
    """Raises InvalidSetting for a schema that no columns can hold, BadSchema, RegistryDown."""
    others = [each.text for each in referenced(client, schema.references)]
    parsed = AvroSchema(schema.text, others)
    return AvroReader(parsed, avro_schema_columns(parsed))


@dataclass(frozen=True)
class AvroKeyReader:
    """One schema of any type; `kind` is the type of its column."""

    schema: AvroSchema
    kind: pa.DataType

    def read(self, payload: bytes) -> object:
        """The key; raises Unfit."""
        return read_avro(self.schema, payload)


def avro_key_reader(client: RegistryClient, schema: Registered) -> AvroKeyReader:
    """As `avro_reader`, for keys, which may be single values."""
    others = [each.text for each in referenced(client, schema.references)]
    parsed = AvroSchema(schema.text, others)
    return AvroKeyReader(parsed, avro_value_type(parsed))


def read_avro(schema: AvroSchema, payload: bytes) -> object:
    """A value; raises Unfit."""
    try:
        return schema.read(payload, LIMITS)
    except Unreadable as error:
        raise Unfit(BAD_VALUE, str(error)) from None


def referenced(client: RegistryClient, references: tuple[Reference, ...]) -> list[Registered]:
    """All schemas that are referred to, each once, those that others need first."""
    found: dict[tuple[str, int], Registered] = {}
    order: list[Registered] = []

    def follow(each: Reference) -> None:
        place = (each.subject, each.version)
        if place in found:
            return
        if len(found) >= REFERENCES_MAX:
            raise InvalidSetting("schema", f"A schema refers to over {REFERENCES_MAX} others.")
        schema = found[place] = client.version(each.subject, each.version)
        for further in schema.references:
            follow(further)
        order.append(schema)

    for reference in references:
        follow(reference)
    return order
