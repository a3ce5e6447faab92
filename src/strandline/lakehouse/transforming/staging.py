"""The rows of a batch as they were decoded, in files that Spark reads and that then go.

Theory: what columns values have is only known when they are decoded, and a data frame needs to know
before it is read. So tasks decode a batch as they do for every table, and write its rows beside the
table, where a transform's data frame reads them: each record is decoded once, by the table's
decoder, and what it cannot read is a dead letter. Which columns were ever seen is remembered in a
file, so that a batch in which no value has a field still has its column. The file may be ahead of
the table after a crash, which does no harm: it only says that a column exists.
"""

from __future__ import annotations

import json
import socket
from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from strandline.lakehouse.locations import stores
from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.tables.definition import TableSpec
from strandline.lakehouse.tables.files import PartitionedFiles
from strandline.lakehouse.tables.identity import TableState
from strandline.lakehouse.tables.names import HEADERS_TYPE, RECORD_HEADERS
from strandline.lakehouse.tables.schemas import SettledSchema, settle_schema
from strandline.lakehouse.tables.upsert import DELETED
from strandline.lakehouse.tables.writing import value_columns
from strandline.lakehouse.tables.written import TaskWrite, WrittenFile
from strandline.lakehouse.transforming.places import PlaceNotes
from strandline.lakehouse.values.making import given_columns

MEMORY: Final = "source_columns.json"


class StagedRows:
    """Where a task puts decoded rows (`RowWriter`); it notes the places of those that live."""

    def __init__(self, spec: TableSpec, directory: Location, task: str) -> None:
        self._files = PartitionedFiles(directory, (), task)
        self._notes = PlaceNotes(spec.names)
        self._is_keyed = spec.mode == "upsert"
        self.own_columns: tuple[pa.Field, ...] = own_columns(spec)

    def keep(self, rows: pa.RecordBatch) -> None:
        """As `RowWriter.keep`. Tombstones of an upserted table live no more."""
        self._files.write(rows)
        live = rows.filter(pc.invert(rows.column(DELETED))) if self._is_keyed else rows
        self._notes.add(live)

    def finish(self) -> TaskWrite:
        """As `RowWriter.finish`."""
        files = self._files.finish()
        return TaskWrite(files=files, host=socket.gethostname(), places=self._notes.pack())

    def abort(self) -> None:
        """As `RowWriter.abort`."""
        self._files.abort()


class SourceColumns:
    """The columns that the values of a transformed table have been seen to have."""

    def __init__(self, spec: TableSpec) -> None:
        self._spec = spec
        self._file = spec.place / MEMORY
        self._given = given_columns(spec)
        self._seen: pa.Schema | None = None

    def expected(self, state: TableState) -> pa.Schema:
        """What tasks decode values to: all that is known. `state` is the table's.

        A table that had no transform before goes on with its own columns. What the definition says
        of a column counts more than what was seen: no file has staged rows for long.
        """
        seen = self._remembered()
        if seen is None:
            seen = value_columns(self._spec, state.schema) if state.sequence else pa.schema([])
        self._seen = seen
        known = {field.name: field for field in seen}
        for field in self._given:
            if self._is_said(field.name) or field.name not in known:
                known[field.name] = field
        return pa.schema(list(known.values()))

    def settle(self, expected: pa.Schema, files: Sequence[WrittenFile]) -> SettledSchema:
        """The columns with what `files` add, if none of them must be written again."""
        own = {field.name for field in own_columns(self._spec)} | {DELETED}
        settled = settle_schema(expected, files, without=own)
        if not settled.misfits:
            self._seen = pa.schema(
                [each for each in settled.schema if self._is_seen(each.name, files)]
            )
            self._remember(self._seen)
        return settled

    @property
    def seen(self) -> pa.Schema:
        """The columns that a transform gets: those that a value ever had, or a schema names."""
        return pa.schema([]) if self._seen is None else self._seen

    def _is_seen(self, name: str, files: Sequence[WrittenFile]) -> bool:
        if name in self.seen.names or self._is_said(name):
            return True
        return any(_has_values(file, name) for file in files)

    def _is_said(self, name: str) -> bool:
        """Whether the definition gives the column itself.

        Of the event time it may only say what it is called: it may be a column that the transform
        makes.
        """
        spec = self._spec
        is_only_named = name == spec.event_time and not (spec.schema or spec.schemas)
        return name in spec.columns or (name in self._given.names and not is_only_named)

    def _remembered(self) -> pa.Schema | None:
        try:
            document = json.loads(stores.read_text(self._file))
        except FileNotFoundError:
            return self._seen
        return pa.ipc.read_schema(pa.py_buffer(b64decode(document["schema"])))

    def _remember(self, schema: pa.Schema) -> None:
        if stores.exists(self._file) and schema.equals(self._remembered()):
            return
        text = json.dumps(
            {
                "columns": {field.name: str(field.type) for field in schema},
                "schema": b64encode(schema.serialize().to_pybytes()).decode(),
            }
        )
        stores.replace_text(self._file, text + "\n")


def own_columns(spec: TableSpec) -> tuple[pa.Field, ...]:
    """The columns of staged rows besides those of values: where a record was, and its key."""
    columns = (*spec.names.place, pa.field(spec.names.key, pa.binary()))
    if spec.keep_headers:
        columns = (*columns, pa.field(RECORD_HEADERS, HEADERS_TYPE))
    return columns


def _has_values(file: WrittenFile, name: str) -> bool:
    nulls = json.loads(file.stats)["nullCount"].get(name)
    return name in file.read_schema().names and nulls != file.rows
