"""Values in Confluent's framing, each read with the schema that its id means in a registry.

Theory: a record was written with one schema, and that one decides what it says. The table's columns
are those of all schemas that records were read with so far: a new version brings its columns into
the table in the commit of its first record, a field that a later version drops is null from there
on, and a type that changed is a dead letter where the column cannot hold the value. A newest
version that nothing was written with yet changes nothing. So no task depends on when the registry
was asked; nothing is resolved away, as it would be by reading all records with one schema.

An id that the registry does not know makes a dead letter. A registry that does not answer is
trouble, and ends the task (`RegistryDown`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Protocol

import pyarrow as pa

from strandline.errors import InvalidSetting
from strandline.lakehouse.tables.definition import TableSpec
from strandline.lakehouse.tables.types import NoCommonType, held_type, name_fault
from strandline.lakehouse.values.building import Record, build
from strandline.lakehouse.values.decoding import (
    BAD_VALUE,
    UNKNOWN_FIELD,
    UNKNOWN_SCHEMA,
    Decoded,
    Fault,
    Unfit,
)
from strandline.lakehouse.values.framing import unframe
from strandline.schemas.errors import BadSchema, UnknownSchema
from strandline.schemas.registered import Registered, RegistryClient

REFUSED_MAX: Final = 50
"""Ids that are asked for in vain by one task: bytes that are no framing look like as many ids."""
_READERS_MAX: Final = 500


class Reader(Protocol):
    """Reads what was written with one schema."""

    def columns(self, payload: bytes) -> tuple[str, pa.Schema]:
        """Which of the schema's types the payload is of, and that type's columns."""

    def read(self, payload: bytes) -> Record:
        """The value; raises Unfit."""


@dataclass
class Readers:
    """The readers of one registry's schemas, of one kind of values; kept by a worker process."""

    client: RegistryClient
    make: Callable[[RegistryClient, Registered], Reader]
    serialized: bool
    kind: str
    _made: OrderedDict[int, Reader | Unfit] = field(default_factory=OrderedDict)

    def of(self, number: int) -> Reader:
        """Raises Unfit for a schema that is unknown, or that no column can hold; RegistryDown."""
        found = self._made.get(number)
        if found is None:
            try:
                found = self._make(number)
            except UnknownSchema as unknown:
                raise Unfit(UNKNOWN_SCHEMA, str(unknown)) from None
            if len(self._made) >= _READERS_MAX:
                self._made.popitem(last=False)
            self._made[number] = found
        if isinstance(found, Unfit):
            raise found
        return found

    def _make(self, number: int) -> Reader | Unfit:
        schema = self.client.by_id(number)
        if schema.kind != self.kind:
            return Unfit(
                BAD_VALUE,
                f"Schema {number} is one of {schema.kind}, and the table's are {self.kind}.",
            )
        if self.serialized:
            schema = self.client.by_id(number, serialized=True)
        try:
            return self.make(self.client, schema)
        except (InvalidSetting, BadSchema) as error:
            return Unfit(UNKNOWN_SCHEMA, f"Schema {number} is no use: {error}")


class RegisteredDecoder:
    """Reads Avro or Protobuf records by the ids in front of them. `columns` are the table's."""

    def __init__(self, spec: TableSpec, columns: pa.Schema, readers: Readers) -> None:
        self.name = f"{spec.value_format} by id"
        self._spec = spec
        self._columns = columns
        self._readers = readers
        self._taken: set[tuple[int, str]] = set()
        self._in_vain: set[int] = set()

    def decode(self, values: pa.Array) -> Decoded:
        """As `Decoder.decode`; raises RegistryDown."""
        faults: list[Fault] = []
        records: list[tuple[int, Record | None]] = []
        for row, value in enumerate(values.to_pylist()):
            try:
                records.append((row, None if value is None else self._read(value)))
            except Unfit as unfit:
                faults.append(Fault(row, unfit.kind, unfit.sentence))
        return build(records, self._columns, faults)

    def _read(self, value: bytes) -> Record:
        number, payload = unframe(value)
        if number not in self._in_vain and len(self._in_vain) >= REFUSED_MAX:
            raise Unfit(
                UNKNOWN_SCHEMA,
                f"Schema {number} is not looked up: {REFUSED_MAX} others were in vain.",
            )
        try:
            reader = self._readers.of(number)
        except Unfit:
            self._in_vain.add(number)
            raise
        self._in_vain.discard(number)
        which, columns = reader.columns(payload)
        if (number, which) not in self._taken:
            self._columns = joined(self._spec, self._columns, columns)
            self._taken.add((number, which))
        return reader.read(payload)


def joined(spec: TableSpec, held: pa.Schema, found: pa.Schema) -> pa.Schema:
    """A table's columns with those of a schema; a column that is there keeps its type.

    Structs get further fields. Raises Unfit where the table may get no such column.
    """
    fields = {each.name: each.type for each in held}
    for each in found:
        known = fields.get(each.name)
        if known is None:
            fault = name_fault(each.name, fields, spec.reserved)
            if fault is not None:
                raise Unfit(UNKNOWN_FIELD, fault)
        try:
            kind = each.type if known is None else held_type(each.name, known, each.type)
        except NoCommonType as error:
            raise Unfit(UNKNOWN_FIELD, str(error)) from None
        if kind != known and not spec.evolve:
            raise Unfit(UNKNOWN_FIELD, f"The table has no column for all of {each.name!r}.")
        fields[each.name] = kind
    return pa.schema(list(fields.items()))


@lru_cache(maxsize=8)
def client_of(url: str) -> RegistryClient:
    """The client of this process for a registry."""
    return RegistryClient(url)


def make_registered_decoder(spec: TableSpec, columns: pa.Schema) -> RegisteredDecoder:
    """The decoder of a table of Avro or Protobuf values with a registry."""
    return RegisteredDecoder(spec, columns, readers_of(spec.registry or "", spec.value_format))


@lru_cache(maxsize=16)
def readers_of(url: str, value_format: str) -> Readers:
    """The readers of this process for a registry's schemas of a kind. Raises InvalidSetting."""
    if value_format == "protobuf":
        from strandline.lakehouse.values.protobuf_registered import protobuf_reader

        return Readers(client_of(url), protobuf_reader, serialized=True, kind="PROTOBUF")
    from strandline.lakehouse.values.avro_registered import avro_reader

    return Readers(client_of(url), avro_reader, serialized=False, kind="AVRO")


class KeyReader(Protocol):
    """Reads keys that were written with one schema."""

    @property
    def kind(self) -> pa.DataType:
        """The type of the column."""

    def read(self, payload: bytes) -> object:
        """The key; raises Unfit."""


@dataclass
class KeyReaders:
    """The readers of Avro keys by the ids in front of them; kept by a worker process."""

    client: RegistryClient
    make: Callable[[RegistryClient, Registered], KeyReader]
    _made: dict[int, KeyReader | Unfit] = field(default_factory=dict)

    def of(self, key: bytes) -> tuple[KeyReader, bytes]:
        """The reader and the payload; raises Unfit and RegistryDown."""
        number, payload = unframe(key)
        found = self._made.get(number)
        if found is None:
            try:
                schema = self.client.by_id(number)
                found = self.make(self.client, schema)
            except UnknownSchema as unknown:
                raise Unfit(UNKNOWN_SCHEMA, str(unknown)) from None
            except (InvalidSetting, BadSchema) as error:
                found = Unfit(UNKNOWN_SCHEMA, f"Schema {number} is no use: {error}")
            if len(self._made) < _READERS_MAX:
                self._made[number] = found
        if isinstance(found, Unfit):
            raise found
        return found, payload


@lru_cache(maxsize=8)
def key_readers_of(url: str) -> KeyReaders:
    """The readers of this process for a registry's schemas of keys. Raises InvalidSetting."""
    from strandline.lakehouse.values.avro_registered import avro_key_reader

    return KeyReaders(client_of(url), avro_key_reader)
