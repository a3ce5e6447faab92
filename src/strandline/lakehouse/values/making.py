"""Which decoder reads the values of a table, and the one that reads nothing."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from strandline.errors import InvalidSetting
from strandline.lakehouse.tables.definition import TableSpec
from strandline.lakehouse.tables.types import (
    NoCommonType,
    merge_schemas,
    merge_types,
    name_fault,
    word_of,
)
from strandline.lakehouse.values.decoding import Decoded, Decoder
from strandline.lakehouse.values.json_forms import JsonForms
from strandline.lakehouse.values.json_schema import read_json_schema
from strandline.lakehouse.values.json_values import JsonDecoder


class RawDecoder:
    """Reads nothing: the column `value` holds the bytes, null for a tombstone."""

    name = "raw"

    def decode(self, values: pa.Array) -> Decoded:
        """As `Decoder.decode`, without a fault."""
        columns = pa.RecordBatch.from_arrays([values.cast(pa.binary())], names=["value"])
        return Decoded(columns, pa.array(np.arange(len(values)), pa.int64()), [])


def make_decoder(spec: TableSpec, columns: pa.Schema) -> Decoder:
    """A decoder for one task; `columns` are the value columns that the table has.

    Raises InvalidSetting when a given schema cannot be understood, or its library is not installed.
    """
    if spec.registry is not None and spec.framing == "confluent":
        return _registered(spec, columns)
    match spec.value_format:
        case "json":
            required: frozenset[str] = frozenset()
            if spec.schema is not None:
                given = read_json_schema(spec.schema)
                columns, required = merge_schemas(columns, given.columns), given.required
            return JsonDecoder(
                columns,
                evolve=spec.evolve,
                required=required,
                reserved=spec.reserved,
                forms=json_forms(spec),
            )
        case "avro":
            from strandline.lakehouse.values.avro import make_avro_decoder

            return make_avro_decoder(spec)
        case "protobuf":
            from strandline.lakehouse.values.protobuf import make_protobuf_decoder

            return make_protobuf_decoder(spec)
        case _:
            return RawDecoder()


def json_forms(spec: TableSpec) -> JsonForms:
    """How values may differ from columns, as the definition says."""
    return JsonForms(spec.field_names, spec.numbers, spec.time_formats)


def _registered(spec: TableSpec, columns: pa.Schema) -> Decoder:
    """A decoder by the ids in front of values."""
    if spec.value_format == "json":
        from strandline.lakehouse.values.json_registered import RegisteredJsonDecoder

        return RegisteredJsonDecoder(spec, columns, json_forms(spec))
    if spec.value_format == "raw":
        return RawDecoder()
    from strandline.lakehouse.values.registered import make_registered_decoder

    return make_registered_decoder(spec, columns)


def given_columns(spec: TableSpec) -> pa.Schema:
    """The value columns that are known before the first record.

    Raises InvalidSetting for one whose name is the table's own, or that engines keep.
    """
    columns = _given_columns(spec)
    for name in columns.names:
        if (fault := name_fault(name, columns.names, spec.reserved)) is not None:
            raise InvalidSetting("schema", fault)
    return columns


def table_columns(spec: TableSpec) -> pa.Schema:
    """The columns, besides its own, that a table is made with. Raises InvalidSetting.

    Those of a transform come with its first rows, but for what divides and dates them.
    """
    columns = given_columns(spec)
    needed = {transform.column: transform for transform in spec.partition_by}
    for name, transform in needed.items():
        if name not in columns.names and name not in spec.names.own:
            raise InvalidSetting(
                "partition_by",
                f"Partitioning by {name} needs its type before the first record, and the schema "
                f"has no such column: give it in columns, such as "
                f"{name}:{transform.example_type}.",
            )
    if not spec.is_transformed:
        return columns
    return pa.schema([each for each in columns if each.name in (*needed, spec.event_time)])


def check_columns(spec: TableSpec) -> None:
    """That a table can be made as it is defined, and be divided and dated so.

    Raises InvalidSetting, also when the library for its schema is not installed.
    """
    columns = {field.name: field.type for field in (*table_columns(spec), *spec.own_columns())}
    for transform in spec.partition_by:
        transform.result_type(columns[transform.column])
    kind = columns.get(spec.event_time or "")
    if kind is not None and not (pa.types.is_timestamp(kind) or pa.types.is_date32(kind)):
        raise InvalidSetting(
            "event_time",
            f"event_time cannot be {spec.event_time}, which is {word_of(kind)}: expected a "
            "timestamp or a date.",
        )


def _given_columns(spec: TableSpec) -> pa.Schema:
    known = pa.schema(list(spec.known_columns().items()))
    match spec.value_format:
        case "json":
            if spec.schema is None:
                return known
            found = _fitting(spec, known, read_json_schema(spec.schema).columns)
            return merge_schemas(known, found)
        case "avro":
            from strandline.lakehouse.values.avro import avro_columns

            return merge_schemas(_fitting(spec, known, avro_columns(spec)), known)
        case "protobuf":
            from strandline.lakehouse.values.protobuf import protobuf_columns

            return merge_schemas(_fitting(spec, known, protobuf_columns(spec)), known)
        case _:
            return pa.schema([("value", pa.binary())])


def _fitting(spec: TableSpec, known: pa.Schema, found: pa.Schema) -> pa.Schema:
    """`found`, the columns of a schema, which have the types that the definition gives them.

    Raises InvalidSetting for others.
    """
    for field in known:
        position = found.get_field_index(field.name)
        if position < 0:
            continue
        kind = found.field(position).type
        try:
            merge_types(field.name, field.type, kind)
        except NoCommonType:
            name, said = field.name, word_of(field.type)
            sentence = f"Column {name} is {word_of(kind)} in the schema"
            if name == spec.event_time and name not in spec.columns:
                dated = f": say so in columns ({name}:date)" if pa.types.is_date32(kind) else ""
                raise InvalidSetting(
                    "event_time", f"{sentence}, and an event time is a timestamp{dated}."
                ) from None
            raise InvalidSetting("columns", f"{sentence} and {said} in the definition.") from None
    return found
