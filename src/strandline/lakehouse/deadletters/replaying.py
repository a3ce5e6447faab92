"""Dead letters read again, after a fix, into the table they belong to.

Theory: one commit of the table adds the rows of the letters that can be read now, and lists the
files of letters that go and the file of those that stay (`settling` lets the side table follow). So
a letter is a letter or a row and never both or neither, however often a replay runs or where it
crashes. A replay never counts as late, moves no frontier, and does not take the table from the
query that fills it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple, TypeAlias

import pyarrow as pa

from strandline.errors import InvalidSetting
from strandline.lakehouse.deadletters.letters import HEADERS, PAYLOAD, letter_schema
from strandline.lakehouse.deadletters.listing import ALL, LetterFilter
from strandline.lakehouse.locations import stores
from strandline.lakehouse.locations.credentials import public_settings
from strandline.lakehouse.pipeline.target import Target, Write, batch_writer
from strandline.lakehouse.tables.backend import Conflict, DataFile
from strandline.lakehouse.tables.committing import Proposal
from strandline.lakehouse.tables.definition import DEAD_LETTERS, TableSpec
from strandline.lakehouse.tables.errors import FencedWriter, SchemaMoved
from strandline.lakehouse.tables.history import REPLAY
from strandline.lakehouse.tables.identity import TableState
from strandline.lakehouse.tables.names import OwnNames
from strandline.lakehouse.tables.presence import check_present
from strandline.lakehouse.tables.store import TableStore
from strandline.lakehouse.tables.written import TaskWrite

_ATTEMPTS: Final = 20


class ReplayResult(NamedTuple):
    """How many letters became rows, and how many of those meant are letters still."""

    replayed: int
    still_dead: int


Through: TypeAlias = Callable[[Write, TableState], list[TaskWrite]]
"""Carries rows that were read again through the table's transform."""


def replay(
    store: TableStore, wanted: LetterFilter = ALL, through: Through | None = None
) -> ReplayResult:
    """Read letters again with the table's present definition; those that fail keep being letters.

    A table with a transform needs `through` (`Passage.write`), in which Spark runs.

    In a table that is upserted, a row or letter of a key is replaced by a later record only; but a
    key that was deleted after the letter's record comes back, since tombstones leave nothing.
    """
    for _ in range(_ATTEMPTS):
        snapshot = store.committer.settled()
        state = store.state_of(snapshot)
        letters = store.files(DEAD_LETTERS)
        check_present(letters)
        files = [item for item in letters if _has(item, wanted, store.spec.names)]
        reading = _Reading(store.spec, files, wanted)
        fresh = replace(state, frontiers={}, watermark_us=None)
        target = Target(store.spec, fresh, public_settings())
        if through is None:
            if store.spec.is_transformed:
                raise InvalidSetting("through", f"{store.spec.name} has a transform to go through.")
            written = reading.write(target)
        else:
            written = through(reading.write, target.state)
        if not reading.replayed:
            store.discard(written)
            return ReplayResult(0, reading.meant)
        try:
            store.committer.propose(
                snapshot,
                Proposal(
                    kind=REPLAY,
                    writes=tuple(written),
                    removes=tuple(item.path.name for item in files),
                ),
            )
        except (Conflict, SchemaMoved):
            store.discard(written)  # after any other error, a commit may name the files
            continue
        return ReplayResult(reading.replayed, reading.meant - reading.replayed)
    raise FencedWriter(f"The table {store.spec.name} is changed all the time by others.")


def _has(file: DataFile, wanted: LetterFilter, names: OwnNames) -> bool:
    letters = stores.dataset([file.path], letter_schema(names))
    return bool(letters.count_rows(filter=wanted.replayable(names)))


class _Reading:
    """Letters being read again; `meant` of them, of which so many are rows now (`replayed`)."""

    def __init__(self, spec: TableSpec, files: list[DataFile], wanted: LetterFilter) -> None:
        self._spec = spec
        self._files = files
        self._wanted = wanted.replayable(spec.names)
        self.meant = 0
        self.replayed = 0

    def write(self, target: Target) -> list[TaskWrite]:
        """What is meant goes to the writer as records, the rest as letters."""
        names = self._spec.names
        writer = batch_writer(target, "replay")
        self.meant = 0
        try:
            for item in self._files:
                letters = stores.dataset([item.path], letter_schema(names))
                for batch in letters.to_batches(filter=self._wanted):
                    self.meant += batch.num_rows
                    writer.write(_records(batch, names))
                for batch in letters.to_batches(filter=~self._wanted):
                    writer.keep_letters(batch)
            written = writer.finish()
        except BaseException:
            writer.abort()
            raise
        self.replayed = sum(item.rows for item in written.files)
        return [written]


def _records(letters: pa.RecordBatch, names: OwnNames) -> pa.RecordBatch:
    """Letters as the Kafka rows that they were."""
    columns = {
        "key": names.key,
        "value": PAYLOAD,
        "topic": names.topic,
        "partition": names.partition,
        "offset": names.offset,
        "timestamp": names.time,
        "headers": HEADERS,
    }
    return pa.RecordBatch.from_arrays(
        [letters.column(name) for name in columns.values()], names=list(columns)
    )
