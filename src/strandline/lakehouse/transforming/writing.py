"""A batch on its way through a transform: decoded, transformed by Spark, written, and counted.

Theory: what a transform did to a batch is decided by the rows that were written, and by nothing
that is computed a second time: a transform may be random, or read a table that changes. The places
of all written rows are held against those of the staged ones. What is missing was dropped, and goes
to the side table `dropped`; a place that was not there, or two rows of one, are refused unless the
table says that a record may become several rows. Everything that is written here belongs to no
table until the batch's one commit names it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import (
    AnalysisException,
    ArithmeticException,
    ArrayIndexOutOfBoundsException,
    DateTimeException,
    IllegalArgumentException,
    NumberFormatException,
    PySparkException,
    PythonException,
    SparkRuntimeException,
)
from pyspark.sql import DataFrame, SparkSession

from strandline.lakehouse.frames import frame_of
from strandline.lakehouse.locations import stores
from strandline.lakehouse.locations.credentials import public_settings, take_settings
from strandline.lakehouse.locations.errors import StoreTrouble
from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.pipeline.errors import TransformFailed
from strandline.lakehouse.pipeline.target import Target, Write
from strandline.lakehouse.pipeline.tasks import task_name
from strandline.lakehouse.spark_errors import cause_of
from strandline.lakehouse.tables.definition import DEAD_LETTERS, DROPPED, STAGING, TableSpec
from strandline.lakehouse.tables.errors import SchemaMoved
from strandline.lakehouse.tables.files import PartitionedFiles, remove_files
from strandline.lakehouse.tables.identity import TableState
from strandline.lakehouse.tables.presence import check_written
from strandline.lakehouse.tables.types import as_stored
from strandline.lakehouse.tables.upsert import DELETED
from strandline.lakehouse.tables.writing import RowFiles
from strandline.lakehouse.tables.written import TaskWrite, WrittenFile
from strandline.lakehouse.transforming import places
from strandline.lakehouse.transforming.given import Transform
from strandline.lakehouse.transforming.places import PlaceNotes, PlaceSet, Spans
from strandline.lakehouse.transforming.result import Result
from strandline.lakehouse.transforming.staging import SourceColumns, own_columns

_ATTEMPTS: Final = 5
"""To decode a batch, when its tasks do not agree about a column that is new."""
_READING_TASKS_MAX: Final = 64
_OURS: Final = re.compile(r'File "[^"]*strandline/lakehouse/')
_OF_CODE: Final = (
    AnalysisException,
    ArithmeticException,
    ArrayIndexOutOfBoundsException,
    DateTimeException,
    IllegalArgumentException,
    NumberFormatException,
    PythonException,
    SparkRuntimeException,
)
"""What Spark raises for what the code of a query does."""


@dataclass(frozen=True)
class Passage:
    """The way of batches into one table, through a transform, in a session in UTC of its own
    (`utc_session`)."""

    spark: SparkSession
    spec: TableSpec
    transform: Transform

    def writer(self, stage: Write) -> Write:
        """`write` for a batch, as a function of the table that it is written to."""
        return lambda target: self.write(stage, target.state)

    def write(self, stage: Write, state: TableState) -> list[TaskWrite]:
        """Write a batch; what belongs into its commit.

        Raises TransformFailed, and then nothing of it is left; what `stage` raises; and what Spark
        raises for a task that failed for another reason.
        """
        directory = self.spec.place / STAGING / uuid4().hex
        try:
            staged, columns = self._staged(stage, state, directory)
            letters = [replace(each, files=(), places=()) for each in staged]
            try:
                return letters + self._transformed(staged, columns, state, directory)
            except BaseException:
                for each in letters:
                    remove_files(self.spec.directory(DEAD_LETTERS), each.dead_letters)
                raise
        finally:
            with suppress(FileNotFoundError, StoreTrouble):  # what stays is the vacuum's
                stores.remove_tree(directory)

    def _staged(
        self, stage: Write, state: TableState, directory: Location
    ) -> tuple[Sequence[TaskWrite], pa.Schema]:
        memory = SourceColumns(self.spec)
        expected = memory.expected(state)
        for _ in range(_ATTEMPTS):
            decoded = replace(state, schema=expected)
            target = Target(self.spec, decoded, public_settings(), str(directory))
            staged = stage(target)
            files = [file for each in staged for file in each.files]
            for each in staged:
                check_written(directory, each.files, each.host)
            settled = memory.settle(expected, files)
            if not settled.misfits:
                return staged, memory.seen
            for each in staged:
                remove_files(directory, each.files)
                remove_files(self.spec.directory(DEAD_LETTERS), each.dead_letters)
            expected = settled.schema
        raise SchemaMoved(f"The columns of the values of {self.spec.name} cannot be settled.")

    def _transformed(
        self,
        staged: Sequence[TaskWrite],
        columns: pa.Schema,
        state: TableState,
        directory: Location,
    ) -> list[TaskWrite]:
        files = [file for each in staged for file in each.files]
        if not files:
            return []
        before = places.unpack(place for each in staged for place in each.places)
        result = Result(self.spec, state.schema, self.transform)
        rows = result.of(self._frame(files, columns, directory))
        target = Target(self.spec, state, public_settings())
        written = self._carry_out(rows, _taking(target, places.spans_of(before)))
        try:
            dropped = self._dropped(before, sum(file.rows for file in files), written)
        except BaseException:
            for each in written:
                remove_files(self.spec.directory(), each.files)
                for side, beside in each.sides().items():
                    remove_files(self.spec.directory(side), beside)
            raise
        return [*(replace(each, places=()) for each in written), dropped]

    def _frame(
        self, files: Sequence[WrittenFile], columns: pa.Schema, directory: Location
    ) -> DataFrame:
        fields = [*columns, *own_columns(self.spec)]
        if self.spec.mode == "upsert":
            fields.append(pa.field(DELETED, pa.bool_()))
        paths = [directory / file.path for file in files]
        return frame_of(self.spark, paths, pa.schema(fields), tasks_max=_READING_TASKS_MAX)

    def _carry_out(
        self, rows: DataFrame, write: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
    ) -> list[TaskWrite]:
        try:
            done = rows.mapInArrow(write, "written string").collect()
        except PySparkException as error:
            # What goes wrong in our own frames, or in no code at all (a worker died), is trouble,
            # which another attempt may mend.
            if not isinstance(error, _OF_CODE) or _OURS.search(str(error)):
                raise
            raise self._failed(f"failed: {cause_of(error)}") from error
        return [TaskWrite.from_json(row.written) for row in done]

    def _dropped(
        self, before: PlaceSet, staged_rows: int, written: Sequence[TaskWrite]
    ) -> TaskWrite:
        """The records without a row. Raises TransformFailed for rows that cannot be."""
        kept = places.unpack(place for each in written for place in each.places)
        for place, offsets in places.without(kept, before).items():
            if not place.topic:
                raise self._failed(
                    "gives rows without a place: the columns "
                    f"{', '.join(self.spec.names.record)} of every row must say which record it is "
                    "of."
                )
            raise self._failed(
                f"gives a row of offset {offsets[0]} of {place}, which is no record of the batch: "
                f"the columns {', '.join(self.spec.names.record)} must stay as they come."
            )
        rows = sum(file.rows for each in written for file in (*each.files, *each.late))
        expected = staged_rows if self.spec.mode == "upsert" else places.count(kept)
        if rows > expected and not self.spec.explode:
            raise self._failed(
                f"gives {rows:,} rows of {expected:,} records: where a record may become several "
                "rows, say so (--explode), and the column "
                f"{self.spec.names.row} tells them apart; an upserted table cannot have several."
            )
        lost = places.without(before, kept)
        if not lost:
            return TaskWrite()
        files = PartitionedFiles(self.spec.directory(DROPPED), (), "dropped")
        files.write(places.as_rows(lost, self.spec.names))
        return TaskWrite(dropped=files.finish(), dropped_records=places.count(lost))

    def _failed(self, what: str) -> TransformFailed:
        return TransformFailed(f"The {self.transform.label} {what}")


def _taking(
    target: Target, spans: Spans
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        take_settings(target.stores)
        writer = TransformedRows(target, spans, task_name())
        try:
            for batch in batches:
                writer.write(batch)
            text = writer.finish().to_json()
        except BaseException:
            writer.abort()
            raise
        yield pa.RecordBatch.from_arrays([pa.array([text])], ["written"])

    return run


class TransformedRows:
    """Writes the share that one task has of a transform's rows; those of a place come together."""

    def __init__(self, target: Target, spans: Spans, task: str) -> None:
        self._spec = target.spec
        self._files = RowFiles(target.spec, target.state, task)
        self._notes = PlaceNotes(target.spec.names, spans)
        self._last: tuple[object, ...] = ()
        self._number = -1
        """Of the last row, among those of its place."""

    def write(self, rows: pa.RecordBatch) -> None:
        """Take rows in, as Spark sends them."""
        if not rows.num_rows:
            return
        schema = as_stored(rows.schema)
        rows = pa.RecordBatch.from_arrays(
            [column.cast(field.type) for column, field in zip(rows.columns, schema, strict=True)],
            schema=schema,
        )
        if self._spec.explode:
            rows = rows.append_column(
                pa.field(self._spec.names.row, pa.int64()), pa.array(self._numbers(rows))
            )
        self._files.keep(rows)
        self._notes.add(
            rows.filter(pc.invert(rows.column(DELETED))) if self._spec.mode == "upsert" else rows
        )

    def finish(self) -> TaskWrite:
        """Close and sync the files."""
        return replace(self._files.finish(), places=self._notes.pack())

    def abort(self) -> None:
        """Remove whatever was written."""
        self._files.abort()

    def _numbers(self, rows: pa.RecordBatch) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """0, 1, ... for the rows of each place; a place may go on from the batch before."""
        record = [rows.column(name) for name in self._spec.names.record]
        count = rows.num_rows
        begins = np.zeros(count, bool)
        for column in record:
            changed = pc.not_equal(column.slice(1), column.slice(0, count - 1))
            begins[1:] |= changed.to_numpy(zero_copy_only=False)
        first = tuple(column[0].as_py() for column in record)
        begins[0] = first != self._last
        at = np.arange(count)
        starts = np.maximum.accumulate(np.where(begins, at, -1))
        numbers = np.where(starts < 0, self._number + 1 + at, at - starts)
        self._last = tuple(column[-1].as_py() for column in record)
        self._number = int(numbers[-1])
        return numbers
