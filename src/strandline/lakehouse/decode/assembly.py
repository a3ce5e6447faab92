"""Columns of a builder as an Arrow record batch, without copying them.

This file knows how Arrow takes buffers. It must not know where the columns come from.
"""

from __future__ import annotations

from array import array
from struct import pack

import pyarrow as pa

from strandline.lakehouse.decode.schema import HEADER, HEADERS, TIMESTAMP, kafka_schema
from strandline.records.columns import Columns, HeaderColumns, VariableColumn
from strandline.types import TopicPartition


class Assembly:
    """Makes the record batches of one partition. Keeps the columns that never change."""

    def __init__(self, partition: TopicPartition) -> None:
        self._partition = partition
        self._topics, self._partitions = _constants(partition, 0)

    def record_batch(self, columns: Columns) -> pa.RecordBatch:
        """The rows in the schema of `kafka_schema`.

        Header names that are not UTF-8 have their wrong bytes replaced, as a Java client has them.
        """
        rows = columns.rows
        if rows > len(self._topics):
            self._topics, self._partitions = _constants(self._partition, rows)
        arrays: list[pa.Array] = [
            _variable(pa.binary(), rows, columns.key),
            _variable(pa.binary(), rows, columns.value),
            self._topics.slice(0, rows),
            self._partitions.slice(0, rows),
            pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(columns.offset)]),
            pa.Array.from_buffers(TIMESTAMP, rows, [None, pa.py_buffer(columns.timestamp)]),
            pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(columns.timestamp_type)]),
        ]
        if columns.headers is not None:
            arrays.append(_headers(rows, columns.headers))
        schema = kafka_schema(with_headers=columns.headers is not None)
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _constants(partition: TopicPartition, rows: int) -> tuple[pa.Array, pa.Array]:
    """The topic's name and the partition's number, so many times.

    Out of buffers: Arrow imports pandas for its scalars, a second in each of Spark's workers.
    """
    topic = partition.topic.encode()
    offsets = array("i", range(0, (rows + 1) * len(topic), len(topic)))
    numbers = pack("=i", partition.partition) * rows
    return (
        pa.Array.from_buffers(
            pa.string(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(topic * rows)]
        ),
        pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(numbers)]),
    )


def _variable(kind: pa.DataType, rows: int, column: VariableColumn) -> pa.Array:
    return pa.Array.from_buffers(
        kind,
        rows,
        [_optional(column.validity), pa.py_buffer(column.offsets), _filled(column.data)],
    )


def _headers(rows: int, columns: HeaderColumns) -> pa.Array:
    pairs = pa.StructArray.from_arrays(
        [_text(columns), _variable(pa.binary(), columns.pairs, columns.value)], fields=list(HEADER)
    )
    buffers = [_optional(columns.validity), pa.py_buffer(columns.offsets)]
    return pa.Array.from_buffers(HEADERS, rows, buffers, children=[pairs])


def _text(columns: HeaderColumns) -> pa.Array:
    names = _variable(pa.string(), columns.pairs, columns.key)
    try:
        names.validate(full=True)
    except pa.ArrowInvalid:
        raw = _variable(pa.binary(), columns.pairs, columns.key).to_pylist()
        return pa.array([name.decode("utf-8", "replace") for name in raw], pa.string())
    return names


def _filled(data: object) -> pa.Buffer:
    """Arrow aborts the process at a buffer without an address, which an empty one may be."""
    return pa.py_buffer(data if memoryview(data).nbytes else b"")  # type: ignore[arg-type]


def _optional(buffer: object | None) -> pa.Buffer | None:
    return None if buffer is None else pa.py_buffer(buffer)
