"""Parquet files of one table being written by one task, divided by partition value.

Theory: rows are gathered per partition value and written as row groups of a useful size; what is
gathered and how many files are open is limited, whatever the data: the fullest file goes first. A
file whose columns change is closed and another begun. A file counts only when it is closed and
synced, and belongs to no table until a commit names it; in a store it is not there before that.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from strandline.lakehouse.locations import stores
from strandline.lakehouse.locations.errors import StoreTrouble, told
from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.tables.names import names_of
from strandline.lakehouse.tables.statistics import delta_statistics
from strandline.lakehouse.tables.transforms import PartitionValue, Transform
from strandline.lakehouse.tables.written import OffsetsIn, WrittenFile, file_schema
from strandline.types import TopicPartition

COMPRESSION: Final = "zstd"
_GATHERED_BYTES_MAX: Final = 96 << 20
_ROW_GROUP_ROWS: Final = 256 << 10
_ROW_GROUP_BYTES: Final = 32 << 20
_OPEN_MAX: Final = 64
_FILE_BYTES_MAX: Final = 512 << 20
_LEFT: Final = (StoreTrouble, OSError, RuntimeError)
"""What pyarrow raises for a file that it could not write, and cannot end either, among it."""


@dataclass(slots=True)
class _Open:
    """One file being written, and the rows that are not in it yet."""

    path: str
    schema: pa.Schema
    sink: pa.NativeFile
    writer: pq.ParquetWriter
    footers: list[pq.FileMetaData]
    batches: list[pa.RecordBatch] = field(default_factory=list)
    gathered: int = 0
    gathered_rows: int = 0
    rows: int = 0
    bytes: int = 0
    offsets: dict[TopicPartition, OffsetsIn] = field(default_factory=dict)


class PartitionedFiles:
    """Writes the rows of one table (or side table) under `directory`.

    `finish` gives the files; `abort` removes them, as an error does that leaves the `with` of the
    object. One of both ends its life.
    """

    def __init__(self, directory: Location, transforms: Sequence[Transform], task: str) -> None:
        self._directory = directory
        self._transforms = transforms
        self._task = task
        self._open: dict[tuple[PartitionValue, ...], _Open] = {}
        self._done: list[WrittenFile] = []
        self._gathered = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self.abort()

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows; they need the columns of the transforms."""
        if not batch.num_rows:
            return
        for values, rows in _divided(batch, self._transforms):
            self._gather(values, rows)
        while self._gathered > _GATHERED_BYTES_MAX:
            self._flush(max(self._open.values(), key=lambda item: item.gathered))

    def finish(self) -> tuple[WrittenFile, ...]:
        """Close and sync everything; the files in the order in which they were begun or ended."""
        for values in list(self._open):
            self._close(values)
        if self._done:
            stores.sync(self._directory)
        return tuple(self._done)

    def abort(self) -> None:
        """Remove every file; what a store or disk does not give up now is left to the vacuum."""
        for item in self._open.values():
            with suppress(*_LEFT):
                _end(item, self._directory / item.path)
            with suppress(*_LEFT):
                stores.remove(self._directory / item.path)
        for done in self._done:
            with suppress(*_LEFT):
                stores.remove(self._directory / done.path)
        self._open.clear()
        self._done.clear()

    def _gather(self, values: tuple[PartitionValue, ...], rows: pa.RecordBatch) -> None:
        item = self._open.get(values)
        if item is not None and (
            not item.schema.equals(rows.schema) or item.bytes > _FILE_BYTES_MAX
        ):
            self._close(values)
            item = None
        if item is None:
            if len(self._open) >= _OPEN_MAX:
                self._close(max(self._open, key=lambda key: self._open[key].gathered))
            item = self._open[values] = self._begin(rows.schema)
        size = rows.nbytes
        item.batches.append(rows)
        item.gathered += size
        item.gathered_rows += rows.num_rows
        self._gathered += size
        if item.gathered_rows >= _ROW_GROUP_ROWS or item.gathered >= _ROW_GROUP_BYTES:
            self._flush(item)

    def _begin(self, schema: pa.Schema) -> _Open:
        stores.make_directory(self._directory)
        path = f"part-{self._task}-{uuid.uuid4().hex}.parquet"
        footers: list[pq.FileMetaData] = []
        file = self._directory / path
        with told(file, "written"):
            sink = stores.file_system(file).open_output_stream(stores.path_of(file))
            writer = pq.ParquetWriter(
                sink, schema, compression=COMPRESSION, metadata_collector=footers
            )
        return _Open(path, schema, sink, writer, footers)

    def _flush(self, item: _Open) -> None:
        if not item.batches:
            return
        table = pa.Table.from_batches(item.batches)
        with told(self._directory / item.path, "written"):
            item.writer.write_table(table, row_group_size=table.num_rows)
        note_offsets(item.offsets, table)
        item.rows += table.num_rows
        item.bytes += item.gathered
        self._gathered -= item.gathered
        item.batches, item.gathered, item.gathered_rows = [], 0, 0

    def _close(self, values: tuple[PartitionValue, ...]) -> None:
        item = self._open[values]
        self._flush(item)
        file = self._directory / item.path
        size = _end(item, file)
        del self._open[values]
        stores.sync(file)
        self._done.append(
            WrittenFile(
                path=item.path,
                size=size,
                rows=item.rows,
                partition=values,
                stats=delta_statistics(item.footers[0]),
                offsets=tuple(item.offsets.values()),
                schema=file_schema(item.schema),
            )
        )


def remove_files(directory: Location, files: Iterable[WrittenFile]) -> int:
    """Delete files that no table names; gives their number."""
    return sum(stores.remove(directory / item.path) for item in files)


def note_offsets(noted: dict[TopicPartition, OffsetsIn], table: pa.Table) -> None:
    """Take the places of the table's rows into `noted`; results of queries need not have any."""
    record = names_of(table.column_names).record
    if not set(record) <= set(table.column_names):
        return
    topic, partition, offset = record
    places = table.select(record).group_by([topic, partition])
    found = places.aggregate([(offset, "min"), (offset, "max"), (offset, "count")])
    for row in found.to_pylist():
        place = TopicPartition(row[topic], row[partition])
        least, greatest = row[f"{offset}_min"], row[f"{offset}_max"]
        count = row[f"{offset}_count"]
        if (before := noted.get(place)) is not None:
            least, greatest = min(least, before.least), max(greatest, before.greatest)
            count += before.rows
        noted[place] = OffsetsIn(*place, least, greatest, count)


def _divided(
    batch: pa.RecordBatch, transforms: Sequence[Transform]
) -> list[tuple[tuple[PartitionValue, ...], pa.RecordBatch]]:
    """The rows by partition value, each part in the order that the rows had."""
    if not transforms:
        return [((), batch)]
    codes = np.zeros(batch.num_rows, np.int64)
    dictionaries: list[list[PartitionValue]] = []
    for transform in transforms:
        values = transform.apply(batch.column(transform.column))
        encoded = pc.dictionary_encode(values, null_encoding="encode")
        dictionary = encoded.dictionary.to_pylist()
        codes = codes * len(dictionary) + encoded.indices.to_numpy(zero_copy_only=False)
        dictionaries.append(dictionary)
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    ends = np.r_[starts[1:], len(ordered)]
    if len(starts) == 1:
        return [(_values_of(int(codes[0]), dictionaries), batch)]
    sorted_rows = batch.take(pa.array(order))
    return [
        (
            _values_of(int(ordered[start]), dictionaries),
            sorted_rows.slice(int(start), int(end - start)),
        )
        for start, end in zip(starts, ends, strict=True)
    ]


def _values_of(code: int, dictionaries: list[list[PartitionValue]]) -> tuple[PartitionValue, ...]:
    values: list[PartitionValue] = []
    for dictionary in reversed(dictionaries):
        code, position = divmod(code, len(dictionary))
        values.append(dictionary[position])
    return tuple(reversed(values))


def _end(item: _Open, file: Location) -> int:
    """Write the footer, and let the file be there; its size in bytes."""
    with told(file, "written"):
        try:
            item.writer.close()
            return int(item.sink.tell())
        finally:
            item.sink.close()
