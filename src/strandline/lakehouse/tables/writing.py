"""One task's way from Kafka rows to files: what is new, decoded, on time; and what is not.

Theory: everything that decides about a record is in the table's state from before the batch
(frontier, schema, watermark), which all tasks of a batch share, and which is the same when the
batch runs again. So a batch that is repeated after a crash divides its records in the same way.
"""

from __future__ import annotations

import socket
from dataclasses import replace
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from strandline.lakehouse.deadletters.letters import letters, plain
from strandline.lakehouse.tables.definition import DEAD_LETTERS, LATE, TableSpec, partitioning
from strandline.lakehouse.tables.files import PartitionedFiles
from strandline.lakehouse.tables.held_times import nearest_held
from strandline.lakehouse.tables.identity import TableState
from strandline.lakehouse.tables.names import KEY_VALUE, RECORD_HEADERS
from strandline.lakehouse.tables.transforms import TransformKind
from strandline.lakehouse.tables.upsert import DELETED
from strandline.lakehouse.tables.written import TaskWrite
from strandline.lakehouse.values.decoding import BAD_VALUE, WRONG_TYPE, Decoder, Fault
from strandline.lakehouse.values.framing import looks_framed
from strandline.lakehouse.values.keys import KeyDecoder, make_key_decoder
from strandline.lakehouse.values.making import make_decoder

MISSING_KEY: Final = "MissingKey"
"""A record without a key cannot be upserted."""
_NO_EMPTY: Final = "Delta keeps no empty text in a column that divides a table."


class RowWriter(Protocol):
    """Takes the rows of a task: those of the table (`RowFiles`), or those for its transform."""

    @property
    def own_columns(self) -> tuple[pa.Field, ...]:
        """The columns that rows have besides those of their values."""

    def keep(self, rows: pa.RecordBatch) -> None:
        """Take rows in."""

    def finish(self) -> TaskWrite:
        """Close and sync the files."""

    def abort(self) -> None:
        """Remove whatever was written."""


class BatchWriter:
    """Writes the share that one task has of a batch.

    `state` is the table's before the batch; `task` names the task in file names; `rows` gets what
    could be decoded, by default the table's files. After an error the object is good for `abort`
    only.
    """

    def __init__(
        self, spec: TableSpec, state: TableState, task: str, rows: RowWriter | None = None
    ) -> None:
        self._spec = spec
        self._state = state
        self._decoder: Decoder = make_decoder(spec, value_columns(spec, state.schema))
        self._keys = make_key_decoder(spec, state.schema)
        self._rows = rows or RowFiles(spec, state, task)
        self._letters = PartitionedFiles(spec.directory(DEAD_LETTERS), (), task)

    def write(self, batch: pa.RecordBatch) -> None:
        """Take records in: key, value, topic, partition, offset, timestamp, and perhaps headers."""
        records = _with_held_times(self._beyond_frontier(batch))
        if not records.num_rows:
            return
        decoded = self._decoder.decode(records.column("value"))
        faults = list(decoded.faults)
        rows, columns = decoded.rows, decoded.columns
        if self._spec.mode == "upsert":
            keyed = pc.is_valid(records.column("key")).take(rows)
            faults += [
                Fault(row, MISSING_KEY, "The record has no key.")
                for row in rows.filter(pc.invert(keyed)).to_pylist()
            ]
            rows, columns = rows.filter(keyed), columns.filter(keyed)
        if self._spec.format == "delta" and not self._spec.is_transformed:
            rows, columns = self._without_empty((rows, columns), faults)
        if self._keys is not None:
            rows, columns = self._with_keys(self._keys, records, (rows, columns), faults)
        if faults:
            self._bury(records, faults)
        self._rows.keep(self._with_place(records.take(rows), columns))

    def keep_letters(self, kept: pa.RecordBatch) -> None:
        """Take in dead letters that stay what they are."""
        self._letters.write(kept)

    def finish(self) -> TaskWrite:
        """Close and sync the files."""
        return replace(self._rows.finish(), dead_letters=self._letters.finish())

    def abort(self) -> None:
        """Remove whatever was written."""
        self._rows.abort()
        self._letters.abort()

    def _beyond_frontier(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The records that the table does not have: usually all of them."""
        wanted = None
        topics = plain(batch.column("topic"))
        for place, frontier in self._state.frontiers.items():
            old = pc.and_(
                pc.and_(
                    pc.equal(topics, place.topic),
                    pc.equal(batch.column("partition"), pa.scalar(place.partition, pa.int32())),
                ),
                pc.less(batch.column("offset"), frontier.end),
            )
            wanted = old if wanted is None else pc.or_(wanted, old)
        if wanted is None or not pc.any(wanted).as_py():
            return batch
        return batch.filter(pc.invert(wanted))

    def _without_empty(
        self, decoded: tuple[pa.Array, pa.RecordBatch], faults: list[Fault]
    ) -> tuple[pa.Array, pa.RecordBatch]:
        """The rows without those whose division Delta cannot write: its log takes "" for null."""
        rows, columns = decoded
        for transform in partitioning(self._spec):
            if transform.kind is not TransformKind.IDENTITY:
                continue
            position = columns.schema.get_field_index(transform.column)
            if position < 0 or not pa.types.is_string(columns.schema.field(position).type):
                continue
            empty = pc.fill_null(pc.equal(columns.column(position), ""), fill_value=False)
            faults += [
                Fault(row, WRONG_TYPE, f"The field {transform.column} is empty: {_NO_EMPTY}")
                for row in rows.filter(empty).to_pylist()
            ]
            rows, columns = rows.filter(pc.invert(empty)), columns.filter(pc.invert(empty))
        return rows, columns

    def _with_keys(
        self,
        keys: KeyDecoder,
        records: pa.RecordBatch,
        decoded: tuple[pa.Array, pa.RecordBatch],
        faults: list[Fault],
    ) -> tuple[pa.Array, pa.RecordBatch]:
        """The rows and columns that were decoded with the column of keys, without bad keys."""
        rows, columns = decoded
        column, found = keys.decode(records.column("key"))
        if found:
            known = {fault.row for fault in faults}
            faults += [fault for fault in found if fault.row not in known]
            bad = pa.array([fault.row for fault in found], pa.int64())
            good = pc.invert(pc.is_in(rows, value_set=bad))
            rows, columns = rows.filter(good), columns.filter(good)
        if column is not None:
            field = pa.field(KEY_VALUE, column.type)
            columns = pa.RecordBatch.from_arrays(
                [*columns.columns, column.take(rows)], schema=columns.schema.append(field)
            )
        return rows, columns

    def _bury(self, records: pa.RecordBatch, faults: list[Fault]) -> None:
        faults.sort()
        bad = records.take(pa.array([fault.row for fault in faults], pa.int64()))
        told = [(fault.kind, fault.sentence) for fault in faults]
        if self._spec.framing == "plain":
            told = [
                (fault.kind, fault.sentence + _framing_of(fault, payload))
                for fault, payload in zip(faults, bad.column("value"), strict=True)
            ]
        self._letters.write(
            letters(
                bad,
                told,
                decoder=self._decoder.name,
                sequence=self._state.sequence,
                names=self._spec.names,
            )
        )

    def _with_place(self, records: pa.RecordBatch, columns: pa.RecordBatch) -> pa.RecordBatch:
        arrays = list(columns.columns)
        fields = list(columns.schema)
        names = self._spec.names
        sources = {
            names.topic: "topic",
            names.partition: "partition",
            names.offset: "offset",
            names.time: "timestamp",
            names.key: "key",
            RECORD_HEADERS: "headers",
        }
        for own in self._rows.own_columns:
            arrays.append(_column(records, sources[own.name], own.type))
            fields.append(own)
        if self._spec.mode == "upsert":
            arrays.append(pc.is_null(records.column("value")))
            fields.append(pa.field(DELETED, pa.bool_()))
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


class RowFiles:
    """Rows of one task on their way into the table's files, or beside them if they are late."""

    def __init__(self, spec: TableSpec, state: TableState, task: str) -> None:
        self._spec = spec
        self._state = state
        self._files = PartitionedFiles(spec.directory(), partitioning(spec), task)
        self._late = PartitionedFiles(spec.directory(LATE), spec.partition_by, task)
        self._late_rows = 0
        self._newest_us: int | None = None

    @property
    def own_columns(self) -> tuple[pa.Field, ...]:
        """As `RowWriter.own_columns`."""
        return self._spec.own_columns()

    def finish(self) -> TaskWrite:
        """Close and sync the files."""
        return TaskWrite(
            files=self._files.finish(),
            late=self._late.finish(),
            late_rows=self._late_rows,
            max_event_time_us=self._newest_us,
            host=socket.gethostname(),
        )

    def abort(self) -> None:
        """Remove whatever was written."""
        self._files.abort()
        self._late.abort()

    def keep(self, rows: pa.RecordBatch) -> None:
        """Take rows in: the columns of values, then the table's own."""
        spec = self._spec
        if not spec.dated or not rows.num_rows:
            self._files.write(self._dividable(rows))
            return
        moments = rows.column(spec.event_time)
        newest = pc.max(moments.cast(pa.timestamp("us", "UTC")).cast(pa.int64())).as_py()
        if newest is not None:
            self._newest_us = max(newest, self._newest_us or newest)
        limit = self._state.watermark_us
        if limit is None:
            self._files.write(self._dividable(rows))
            return
        edge = pa.scalar(limit, pa.int64()).cast(pa.timestamp("us", "UTC"))
        late = pc.fill_null(pc.less(moments, edge), fill_value=False)
        self._late_rows += pc.sum(late).as_py()
        if spec.late == "route" and pc.any(late).as_py():
            self._late.write(self._dividable(rows.filter(late)))
            rows = rows.filter(pc.invert(late))
        self._files.write(self._dividable(rows))

    def _dividable(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with every column that the partitioning takes, also one that no value had."""
        for transform in partitioning(self._spec):
            if transform.column not in rows.schema.names:
                kind = self._state.schema.field(transform.column).type
                rows = rows.append_column(
                    pa.field(transform.column, kind), pa.nulls(rows.num_rows, kind)
                )
        return rows


def value_columns(spec: TableSpec, schema: pa.Schema) -> pa.Schema:
    """The columns of a table that come from values: not its own, nor Delta's partitions."""
    derived = {
        transform.name for transform in partitioning(spec) if transform.name != transform.column
    }
    own = spec.names.own | {item.name for item in spec.own_columns()}
    if spec.key_format != "none":
        own |= {KEY_VALUE}
    return pa.schema([item for item in schema if item.name not in own | derived])


def _with_held_times(records: pa.RecordBatch) -> pa.RecordBatch:
    """Records whose own times every reader can take, whatever their producer set."""
    position = records.schema.get_field_index("timestamp")
    times = nearest_held(records.column(position))
    return records.set_column(position, records.schema.field(position), times)


def _framing_of(fault: Fault, payload: pa.Scalar) -> str:
    return looks_framed(payload.as_py()) if fault.kind == BAD_VALUE else ""


def _column(records: pa.RecordBatch, name: str, kind: pa.DataType) -> pa.Array:
    if name not in records.schema.names:
        return pa.nulls(records.num_rows, kind)  # a source that sends no headers
    column = records.column(name)
    return (plain(column) if name == "topic" else column).cast(kind)
