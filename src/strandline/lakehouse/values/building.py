"""From decoded Python records to columns, with a fault for each that a column cannot hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from strandline.lakehouse.values.decoding import WRONG_TYPE, Decoded, Fault, Unfit

Record = Mapping[str, object]


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
    try:
        batch = _batch(good, columns)
    except _CANNOT_HOLD:
        good = []
        for row, record in records:
            try:
                _batch([(row, record)], columns)
            except _CANNOT_HOLD as error:
                faults.append(Fault(row, WRONG_TYPE, f"The value cannot be held: {error}."))
            else:
                good.append((row, record))
        batch = _batch(good, columns)
    faults.sort()
    return Decoded(batch, pa.array([row for row, _ in good], pa.int64()), faults)


_CANNOT_HOLD = (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeEncodeError)


def _batch(records: Sequence[tuple[int, Record | None]], columns: pa.Schema) -> pa.RecordBatch:
    arrays = [
        pa.array(
            [None if record is None else record.get(field.name) for _, record in records],
            field.type,
        )
        for field in columns
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=columns)
