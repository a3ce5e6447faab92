"""A dead letter as a row: where the record was, its bytes, and why it is no row of the table.

A range of offsets that the log no longer had, and whose loss was accepted, is a letter too, without
bytes: `_offset` to `_offset_end` then say what is lost. This file reads and writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import pyarrow as pa

from strandline.lakehouse.tables.identity import OffsetRange
from strandline.lakehouse.tables.types import KEY, OFFSET, PARTITION, TIME, TIMESTAMP, TOPIC

OFFSET_END: Final = "_offset_end"
PAYLOAD: Final = "payload"
HEADERS: Final = "headers"
ERROR_CLASS: Final = "error_class"
ERROR: Final = "error"
DECODER: Final = "decoder"
SEQUENCE: Final = "table_sequence"

LOST_RANGE: Final = "LostRange"
"""The error class of a range whose records are gone from the log."""

SCHEMA: Final = pa.schema(
    [
        (TOPIC, pa.string()),
        (PARTITION, pa.int32()),
        (OFFSET, pa.int64()),
        (OFFSET_END, pa.int64()),
        (TIME, TIMESTAMP),
        (KEY, pa.binary()),
        (PAYLOAD, pa.binary()),
        (
            HEADERS,
            pa.list_(
                pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())]))
            ),
        ),
        (ERROR_CLASS, pa.string()),
        (ERROR, pa.string()),
        (DECODER, pa.string()),
        (SEQUENCE, pa.int64()),
    ]
)
"""`table_sequence` is the number of the batch before which the record was read."""


def letters(
    records: pa.RecordBatch, faults: Sequence[tuple[str, str]], *, decoder: str, sequence: int
) -> pa.RecordBatch:
    """The letters of `records` (Kafka's columns), with the class and the sentence of each."""
    count = records.num_rows
    offsets = records.column("offset").cast(pa.int64())
    columns = {
        TOPIC: plain(records.column("topic")),
        PARTITION: records.column("partition"),
        OFFSET: offsets,
        OFFSET_END: pa.compute.add(offsets, 1),
        TIME: records.column("timestamp"),
        KEY: records.column("key"),
        PAYLOAD: records.column("value"),
        HEADERS: records.column("headers") if "headers" in records.schema.names else None,
        ERROR_CLASS: pa.array([kind for kind, _ in faults], pa.string()),
        ERROR: pa.array([sentence for _, sentence in faults], pa.string()),
        DECODER: pa.array([decoder] * count, pa.string()),
        SEQUENCE: pa.array([sequence] * count, pa.int64()),
    }
    return _batch(columns, count)


def lost(ranges: Iterable[OffsetRange], *, sequence: int) -> pa.RecordBatch:
    """A letter for each range whose loss was accepted."""
    gone = list(ranges)
    columns = {
        TOPIC: pa.array([item.topic for item in gone], pa.string()),
        PARTITION: pa.array([item.partition for item in gone], pa.int32()),
        OFFSET: pa.array([item.start for item in gone], pa.int64()),
        OFFSET_END: pa.array([item.end for item in gone], pa.int64()),
        ERROR_CLASS: pa.array([LOST_RANGE] * len(gone), pa.string()),
        ERROR: pa.array([f"The log no longer had {item}." for item in gone], pa.string()),
        SEQUENCE: pa.array([sequence] * len(gone), pa.int64()),
    }
    return _batch(dict(columns), len(gone))


def plain(column: pa.Array) -> pa.Array:
    """Text as text: a source may send the topic's name as a dictionary."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column.cast(pa.string())


def _batch(columns: dict[str, pa.Array | None], count: int) -> pa.RecordBatch:
    arrays = []
    for field in SCHEMA:
        column = columns.get(field.name)
        arrays.append(pa.nulls(count, field.type) if column is None else column.cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
