"""A dead letter as a row: where the record was, its bytes, and why it is no row of the table.

A range of offsets that the log no longer had, and whose loss was accepted, is a letter too, without
bytes: the offset and the end beside it then say what is lost. This file reads and writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import pyarrow as pa

from strandline.lakehouse.tables.identity import OffsetRange
from strandline.lakehouse.tables.names import TIMESTAMP, OwnNames

PAYLOAD: Final = "payload"
HEADERS: Final = "headers"
ERROR_CLASS: Final = "error_class"
ERROR: Final = "error"
DECODER: Final = "decoder"
SEQUENCE: Final = "table_sequence"

LOST_RANGE: Final = "LostRange"
"""The error class of a range whose records are gone from the log."""


def letter_schema(names: OwnNames) -> pa.Schema:
    """The columns. `table_sequence` is the batch before which the record was read."""
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    return pa.schema(
        [
            (names.topic, pa.string()),
            (names.partition, pa.int32()),
            (names.offset, pa.int64()),
            (names.offset_end, pa.int64()),
            (names.time, TIMESTAMP),
            (names.key, pa.binary()),
            (PAYLOAD, pa.binary()),
            (HEADERS, pa.list_(pa.field("element", header))),
            (ERROR_CLASS, pa.string()),
            (ERROR, pa.string()),
            (DECODER, pa.string()),
            (SEQUENCE, pa.int64()),
        ]
    )


def letters(
    records: pa.RecordBatch,
    faults: Sequence[tuple[str, str]],
    *,
    decoder: str,
    sequence: int,
    names: OwnNames,
) -> pa.RecordBatch:
    """The letters of `records` (Kafka's columns), with the class and the sentence of each."""
    count = records.num_rows
    offsets = records.column("offset").cast(pa.int64())
    columns = {
        names.topic: plain(records.column("topic")),
        names.partition: records.column("partition"),
        names.offset: offsets,
        names.offset_end: pa.compute.add(offsets, 1),
        names.time: records.column("timestamp"),
        names.key: records.column("key"),
        PAYLOAD: records.column("value"),
        HEADERS: records.column("headers") if "headers" in records.schema.names else None,
        ERROR_CLASS: pa.array([kind for kind, _ in faults], pa.string()),
        ERROR: pa.array([_as_utf8(sentence) for _, sentence in faults], pa.string()),
        DECODER: pa.array([decoder] * count, pa.string()),
        SEQUENCE: pa.array([sequence] * count, pa.int64()),
    }
    return _batch(letter_schema(names), columns, count)


def lost(ranges: Iterable[OffsetRange], *, sequence: int, names: OwnNames) -> pa.RecordBatch:
    """A letter for each range whose loss was accepted."""
    gone = list(ranges)
    columns = {
        names.topic: pa.array([item.topic for item in gone], pa.string()),
        names.partition: pa.array([item.partition for item in gone], pa.int32()),
        names.offset: pa.array([item.start for item in gone], pa.int64()),
        names.offset_end: pa.array([item.end for item in gone], pa.int64()),
        ERROR_CLASS: pa.array([LOST_RANGE] * len(gone), pa.string()),
        ERROR: pa.array([f"The log no longer had {item}." for item in gone], pa.string()),
        SEQUENCE: pa.array([sequence] * len(gone), pa.int64()),
    }
    return _batch(letter_schema(names), dict(columns), len(gone))


def plain(column: pa.Array) -> pa.Array:
    """Text as text: a source may send the topic's name as a dictionary."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column.cast(pa.string())


def _as_utf8(sentence: str) -> str:
    """A sentence without half pairs of surrogates, which names in JSON may have."""
    return sentence.encode("utf-8", "backslashreplace").decode()


def _batch(schema: pa.Schema, columns: dict[str, pa.Array | None], count: int) -> pa.RecordBatch:
    arrays = []
    for field in schema:
        column = columns.get(field.name)
        arrays.append(pa.nulls(count, field.type) if column is None else column.cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
