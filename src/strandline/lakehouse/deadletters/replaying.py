"""Dead letters read again, after a fix, into the table they belong to.

Theory: one commit of the table adds the rows of the letters that can be read now, and lists the
files of letters that go and the file of those that stay (`settling` lets the side table follow). So
a letter is a letter or a row and never both or neither, however often a replay runs or where it
crashes. Groups of files of letters are parts that may be read elsewhere (`parts`). A replay never
counts as late, moves no frontier, and does not take the table from the query that fills it.
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
from strandline.lakehouse.tables.definition import DEAD_LETTERS
from strandline.lakehouse.tables.errors import FencedWriter, SchemaMoved
from strandline.lakehouse.tables.history import REPLAY
from strandline.lakehouse.tables.identity import TableState
from strandline.lakehouse.tables.names import OwnNames
from strandline.lakehouse.tables.parts import portions
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
        reading = _Reading(store, letters, wanted)
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
                    removes=tuple(item.path.name for item in reading.files),
                ),
            )
        except (Conflict, SchemaMoved):
            store.discard(written)  # after any other error, a commit may name the files
            continue
        return ReplayResult(reading.replayed, reading.meant - reading.replayed)
    raise FencedWriter(f"The table {store.spec.name} is changed all the time by others.")


class Share(NamedTuple):
    """A part: files of letters, and which of them are meant."""

    target: Target
    files: tuple[DataFile, ...]
    wanted: LetterFilter
    name: str


class _Read(NamedTuple):
    """What became of a part: the files that had letters that are meant, and how many these were."""

    written: TaskWrite
    files: tuple[DataFile, ...] = ()
    meant: int = 0


class _Reading:
    """Letters being read again; `meant` of them, of which so many are rows now (`replayed`).

    `files` are those that go: in them were all that are meant.
    """

    def __init__(self, store: TableStore, files: list[DataFile], wanted: LetterFilter) -> None:
        self._store = store
        self._all = files
        self._wanted = wanted
        self.files: list[DataFile] = []
        self.meant = 0
        self.replayed = 0

    def write(self, target: Target) -> list[TaskWrite]:
        """What is meant goes to the writer as records, the rest of its files as letters."""
        shares = [
            Share(target, tuple(mine), self._wanted, f"replay-{number}")
            for number, mine in enumerate(portions(self._all))
        ]
        done = self._store.committer.carrier(
            read_again,
            shares,
            size=sum(file.size for file in self._all),
            # What was staged goes with its directory.
            undo=lambda one: None if target.staging else self._store.discard([one.written]),
        )
        self.files = [file for each in done for file in each.files]
        self.meant = sum(each.meant for each in done)
        self.replayed = sum(item.rows for each in done for item in each.written.files)
        return [each.written for each in done]


def read_again(share: Share) -> _Read:
    """Carry out one part. A file without a letter that is meant stays as it is."""
    names = share.target.spec.names
    wanted = share.wanted.replayable(names)
    touched = []
    meant = 0
    writer = batch_writer(share.target, share.name)
    try:
        for item in share.files:
            letters = stores.dataset([item.path], letter_schema(names))
            count = letters.count_rows(filter=wanted)
            if not count:
                continue
            meant += count
            touched.append(item)
            for batch in letters.to_batches(filter=wanted):
                writer.write(_records(batch, names))
            for batch in letters.to_batches(filter=~wanted):
                writer.keep_letters(batch)
        written = writer.finish()
    except BaseException:
        writer.abort()
        raise
    return _Read(written, tuple(touched), meant)


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
