"""Keys of records as a column: text, JSON, or Avro by the id in front.

Theory: a key is one value, and has one column (`kafka_key_value`), whatever it is. That column
evolves as those of values do: a struct gets further fields, everything else that does not fit is a
dead letter of the class `BadKey`.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from strandline.lakehouse.tables.definition import TableSpec
from strandline.lakehouse.tables.names import KEY_VALUE
from strandline.lakehouse.tables.types import NoCommonType, held_type
from strandline.lakehouse.values.building import build
from strandline.lakehouse.values.decoding import Fault, Unfit
from strandline.lakehouse.values.json_text import parse_json
from strandline.lakehouse.values.json_values import JsonDecoder

BAD_KEY: Final = "BadKey"
"""The key cannot be read as the table's definition says."""


class DecodedKeys(NamedTuple):
    """The column for all rows, null where a key is null or has a fault; None before any key."""

    column: pa.Array | None
    faults: list[Fault]


class KeyDecoder(Protocol):
    """Reads keys; keeps what it learned, so one object serves one task."""

    def decode(self, keys: pa.Array) -> DecodedKeys:
        """Read an array of binary keys."""


def make_key_decoder(spec: TableSpec, table: pa.Schema) -> KeyDecoder | None:
    """None for a table without a column of keys. `table` are the columns that it has."""
    held = table.field(KEY_VALUE).type if KEY_VALUE in table.names else None
    match spec.key_format:
        case "string":
            return _TextKeys()
        case "json":
            return _JsonKeys(held, evolve=spec.evolve)
        case "avro":
            return _AvroKeys(spec.registry or "", held)
        case _:
            return None


class _TextKeys:
    """Keys that are UTF-8."""

    def decode(self, keys: pa.Array) -> DecodedKeys:
        try:
            return DecodedKeys(keys.cast(pa.string()), [])
        except pa.ArrowInvalid:
            return _singly(keys, _text, pa.string())


def _text(key: bytes) -> str:
    try:
        return key.decode()
    except UnicodeDecodeError as error:
        raise Unfit(BAD_KEY, f"The key is not UTF-8: {error.reason}.") from None


class _JsonKeys:
    """Keys that are JSON of any kind, through the decoder of values: each is its only field."""

    def __init__(self, held: pa.DataType | None, *, evolve: bool) -> None:
        columns = pa.schema([] if held is None else [(KEY_VALUE, held)])
        # Of a struct's fields `evolve` decides; the column itself may come.
        self._values = JsonDecoder(columns, evolve=evolve or held is None)

    def decode(self, keys: pa.Array) -> DecodedKeys:
        faults = []
        wrapped: list[bytes | None] = []
        for row, key in enumerate(keys.to_pylist()):
            try:
                if key is not None:
                    parse_json(key)  # so that nothing behind the key becomes a field of its own
                wrapped.append(None if key is None else b'{"%s":%s}' % (KEY_VALUE.encode(), key))
            except Unfit as unfit:
                faults.append(Fault(row, BAD_KEY, f"The key: {unfit.sentence}"))
                wrapped.append(None)
        decoded = self._values.decode(pa.array(wrapped, pa.binary()))
        faults += [Fault(each.row, BAD_KEY, f"The key: {each.sentence}") for each in decoded.faults]
        if KEY_VALUE not in decoded.columns.schema.names:
            return DecodedKeys(None, sorted(faults))
        at = pc.index_in(pa.array(range(len(keys)), pa.int64()), value_set=decoded.rows)
        return DecodedKeys(decoded.columns.column(KEY_VALUE).take(at), sorted(faults))


class _AvroKeys:
    """Keys in Confluent's framing, of records or of single values."""

    def __init__(self, registry: str, held: pa.DataType | None) -> None:
        from strandline.lakehouse.values.registered import key_readers_of

        self._readers = key_readers_of(registry)
        self._held = held

    def decode(self, keys: pa.Array) -> DecodedKeys:
        read: list[tuple[int, dict[str, object] | None]] = []
        faults: list[Fault] = []
        for row, key in enumerate(keys.to_pylist()):
            try:
                read.append((row, None if key is None else {KEY_VALUE: self._read(key)}))
            except Unfit as unfit:
                faults.append(Fault(row, BAD_KEY, f"The key: {unfit.sentence}"))
        if self._held is None:
            return DecodedKeys(None, faults)
        built = build(read, pa.schema([(KEY_VALUE, self._held)]), faults)
        at = pc.index_in(pa.array(range(len(keys)), pa.int64()), value_set=built.rows)
        faults = [each._replace(kind=BAD_KEY) for each in built.faults]
        return DecodedKeys(built.columns.column(0).take(at), faults)

    def _read(self, key: bytes) -> object:
        reader, payload = self._readers.of(key)
        try:
            held = reader.kind if self._held is None else self._held
            self._held = held_type(KEY_VALUE, held, reader.kind)
        except NoCommonType as error:
            raise Unfit(BAD_KEY, str(error)) from None
        return reader.read(payload)


def _singly(keys: pa.Array, read: object, kind: pa.DataType) -> DecodedKeys:
    values: list[object] = []
    faults = []
    for row, key in enumerate(keys.to_pylist()):
        try:
            values.append(None if key is None else read(key))  # type: ignore[operator]
        except Unfit as unfit:
            faults.append(Fault(row, unfit.kind, unfit.sentence))
            values.append(None)
    return DecodedKeys(pa.array(values, kind), faults)
