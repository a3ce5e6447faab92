"""From decoded Python records to columns, with a fault for each that a column cannot hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from itertools import chain
from typing import Any, Final

import pyarrow as pa

from strandline.lakehouse.values.decoding import WRONG_TYPE, Decoded, Fault, Unfit

Record = Mapping[str, object]

_FITS: Final[Mapping[type, Callable[[pa.DataType], bool]]] = {
    type(None): lambda _: True,
    bool: pa.types.is_boolean,
    # Avro widens integers so; Arrow refuses one that is no double exactly, or too long.
    int: lambda kind: (
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    ),
    float: pa.types.is_floating,
    Decimal: pa.types.is_decimal,
    str: pa.types.is_string,
    bytes: pa.types.is_binary,
    datetime: pa.types.is_timestamp,
    date: pa.types.is_date32,
    dict: lambda kind: pa.types.is_struct(kind) or pa.types.is_map(kind),
    list: lambda kind: pa.types.is_list(kind) or pa.types.is_map(kind),
}
"""Which columns hold the values of a type as they are."""


def read_singly(values: pa.Array, columns: pa.Schema, read: Callable[[bytes], Record]) -> Decoded:
    """As `Decoder.decode`, with a function that reads one value, or raises Unfit."""
    faults: list[Fault] = []
    records: list[tuple[int, Record | None]] = []
    for row, value in enumerate(values.to_pylist()):
        try:
            records.append((row, None if value is None else read(value)))
        except Unfit as unfit:
            faults.append(Fault(row, unfit.kind, unfit.sentence))
    return build(records, columns, faults)


def build(
    records: Sequence[tuple[int, Record | None]], columns: pa.Schema, faults: list[Fault]
) -> Decoded:
    """Columns of `records` (each with its row in the batch); None gives a row of nulls."""
    good = list(records)
    arrays: list[pa.Array] = []
    suspects: list[pa.Field] = []  # of a schema that changed a type, many records may be at fault
    for field in columns:
        try:
            arrays.append(_column(good, field))
        except _CANNOT_HOLD:
            suspects.append(field)
    if suspects:
        good = []
        for row, record in records:
            try:
                for field in suspects:
                    _column([(row, record)], field)
            except _CANNOT_HOLD as error:
                faults.append(Fault(row, WRONG_TYPE, f"The value cannot be held: {error}."))
            else:
                good.append((row, record))
        arrays = [_column(good, field) for field in columns]
    faults.sort()
    batch = pa.RecordBatch.from_arrays(arrays, schema=columns)
    return Decoded(batch, pa.array([row for row, _ in good], pa.int64()), faults)


_CANNOT_HOLD = (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeEncodeError)


def _column(records: Sequence[tuple[int, Record | None]], field: pa.Field) -> pa.Array:
    values = [None if record is None else record.get(field.name) for _, record in records]
    _check(field.name, values, field.type)
    return pa.array(values, field.type)


def _check(path: str, values: Iterable[Any], kind: pa.DataType) -> None:
    """Raise ArrowTypeError for values that Arrow would change: it cuts fractions off, counts
    integers as times, takes text apart into lists, and leaves out what a struct has no field for.

    The values of a column are looked at together, since a call for each would cost too much.
    """
    is_nested = pa.types.is_nested(kind)
    if is_nested:
        values = list(values)
    for found in set(map(type, values)):
        fits = _FITS.get(found)
        if fits is None or not fits(kind):
            raise pa.ArrowTypeError(f"{path} is {kind} and takes no {found.__name__}")
    if not is_nested:
        return
    present = [value for value in values if value is not None]
    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        if others := set(chain.from_iterable(present)).difference(names):
            raise pa.ArrowTypeError(f"{path} has no field {min(others)}, and the value has one")
        for field in kind:
            name = field.name
            _check(f"{path}.{name}", [value.get(name) for value in present], field.type)
    elif pa.types.is_list(kind):
        _check(f"{path}[]", chain.from_iterable(present), kind.value_type)
    elif pa.types.is_map(kind):
        # Protobuf's come as lists of pairs.
        pairs = list(
            chain.from_iterable(each.items() if type(each) is dict else each for each in present)
        )
        if not set(map(type, pairs)) <= {tuple}:
            raise pa.ArrowTypeError(f"{path} is {kind} and takes no list")
        _check(f"{path}.key", [pair[0] for pair in pairs], kind.key_type)
        _check(f"{path}.value", [pair[1] for pair in pairs], kind.item_type)
