"""Protobuf values, plain or in Confluent's framing, by a descriptor set.

Theory: the message's fields are the columns; integers become 64 bits wide, enums their names, and a
field that can be absent is null then. Fields that the descriptor does not know are a fault and not
dropped: a newer descriptor and a replay bring such records in.
"""

from __future__ import annotations

import base64
import binascii
import datetime
from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa

from strandline.errors import InvalidSetting
from strandline.lakehouse.tables.definition import TableSpec
from strandline.lakehouse.tables.names import TIMESTAMP
from strandline.lakehouse.tables.types import list_of, name_fault
from strandline.lakehouse.values.building import Record, read_singly
from strandline.lakehouse.values.decoding import (
    BAD_VALUE,
    UNKNOWN_FIELD,
    WRONG_TYPE,
    Decoded,
    Unfit,
)
from strandline.lakehouse.values.framing import message_path, unframe

try:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    from google.protobuf.message import DecodeError
    from google.protobuf.unknown_fields import UnknownFieldSet
except ModuleNotFoundError as missing:
    raise InvalidSetting(
        "value_format", "Protobuf values need the package protobuf: install strandline[protobuf]."
    ) from missing

_MOMENT: Final = "google.protobuf.Timestamp"
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_DEPTH_MAX: Final = 20

# The kinds of a field as its C++ type, which both implementations of the library give.
_INTEGERS: Final = frozenset({1, 2, 3, 4})
_FLOATS: Final = frozenset({5, 6})
_BOOLEAN: Final = 7
_ENUM: Final = 8
_TEXT: Final = 9
_MESSAGE: Final = 10
_BYTES: Final = 12
"""The wire type of bytes, which share their C++ type with text."""


class ProtobufDecoder:
    """Reads messages of one type."""

    name = "protobuf"

    def __init__(self, message: Any, columns: pa.Schema, *, framed: bool) -> None:
        self._message = message
        self._columns = columns
        self._framed = framed

    def decode(self, values: pa.Array) -> Decoded:
        """As `Decoder.decode`."""
        return read_singly(values, self._columns, self._read)

    def _read(self, value: bytes) -> Record:
        if self._framed:
            _, value = message_path(unframe(value)[1])
        return read_message(self._message, value)


def read_message(made: Any, payload: bytes) -> Record:
    """The message of a class in a payload; raises Unfit."""
    message = made()
    try:
        message.ParseFromString(payload)
    except DecodeError:
        raise Unfit(BAD_VALUE, "The value is not a message of the descriptor.") from None
    return _record(message)


def make_protobuf_decoder(spec: TableSpec) -> ProtobufDecoder:
    """The decoder of a table; raises InvalidSetting."""
    return ProtobufDecoder(
        _message_class(spec), protobuf_columns(spec), framed=spec.framing == "confluent"
    )


def protobuf_columns(spec: TableSpec) -> pa.Schema:
    """The columns that the message asks for; raises InvalidSetting."""
    if spec.registry is not None and spec.schema is None:
        return pa.schema([])
    return message_columns(_message_class(spec).DESCRIPTOR)


def message_columns(descriptor: Any) -> pa.Schema:
    """The columns of a type of messages; raises InvalidSetting."""
    return pa.schema(_fields(descriptor, 0))


def _message_class(spec: TableSpec) -> Any:
    files = descriptor_pb2.FileDescriptorSet()
    try:
        files.ParseFromString(base64.b64decode(spec.schema or "", validate=True))
        pool = descriptor_pool.DescriptorPool()
        for file in files.file:
            pool.Add(file)
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(spec.message or ""))
    except (binascii.Error, DecodeError, TypeError) as error:
        raise InvalidSetting("schema", f"The descriptor set cannot be read: {error}.") from None
    except KeyError:
        raise InvalidSetting(
            "message", f"The descriptor set has no message {spec.message!r}."
        ) from None


def _fields(descriptor: Any, depth: int) -> list[pa.Field]:
    if depth > _DEPTH_MAX:
        raise InvalidSetting(
            "schema", f"{descriptor.full_name} contains itself: no column can hold it."
        )
    names = [field.name for field in descriptor.fields]
    for name in names:
        if (fault := name_fault(name, names)) is not None:
            raise InvalidSetting("schema", fault)
    if not names:
        raise InvalidSetting("schema", f"{descriptor.full_name} has no fields.")
    return [pa.field(field.name, _type(field, depth)) for field in descriptor.fields]


def _type(field: Any, depth: int) -> pa.DataType:
    if _is_map(field):
        entry = field.message_type.fields_by_name
        return pa.map_(_single_type(entry["key"], depth), _single_type(entry["value"], depth))
    kind = _single_type(field, depth)
    return list_of(kind) if field.is_repeated else kind


def _single_type(field: Any, depth: int) -> pa.DataType:
    kind = field.cpp_type
    if kind in _INTEGERS:
        return pa.int64()
    if kind in _FLOATS:
        return pa.float64()
    if kind == _BOOLEAN:
        return pa.bool_()
    if kind == _MESSAGE:
        if field.message_type.full_name == _MOMENT:
            return TIMESTAMP
        return pa.struct(_fields(field.message_type, depth + 1))
    return pa.binary() if field.type == _BYTES else pa.string()


def _is_map(field: Any) -> bool:
    return bool(field.cpp_type == _MESSAGE and field.message_type.GetOptions().map_entry)


def _record(message: Any) -> dict[str, object]:
    if len(UnknownFieldSet(message)):
        raise Unfit(
            UNKNOWN_FIELD, f"{message.DESCRIPTOR.full_name} has fields that the descriptor lacks."
        )
    record: dict[str, object] = {}
    for field in message.DESCRIPTOR.fields:
        if _is_map(field):
            items: Iterable[tuple[Any, Any]] = getattr(message, field.name).items()
            value = field.message_type.fields_by_name["value"]
            record[field.name] = [(key, _single(value, item)) for key, item in items]
        elif field.is_repeated:
            record[field.name] = [_single(field, item) for item in getattr(message, field.name)]
        elif not field.has_presence or message.HasField(field.name):
            record[field.name] = _single(field, getattr(message, field.name))
    return record


def _single(field: Any, value: Any) -> object:
    if field.cpp_type == _ENUM:
        named = field.enum_type.values_by_number.get(value)
        return str(value) if named is None else named.name
    if field.cpp_type != _MESSAGE:
        return value
    if field.message_type.full_name == _MOMENT:
        try:
            return _EPOCH + datetime.timedelta(
                seconds=value.seconds, microseconds=value.nanos // 1000
            )
        except OverflowError:
            raise Unfit(
                WRONG_TYPE, f"{field.full_name} has a time that is not within the years 1 to 9999."
            ) from None
    return _record(value)
