"""Dead letters read again, after a fix, into the table they belong to.

Theory: one commit of the table adds the rows of the letters that can be read now, and lists the
files of letters that go and the file of those that stay (`settling` lets the side table follow). So
a letter is a letter or a row and never both or neither, however often a replay runs or where it
crashes. A replay never counts as late, moves no frontier, and does not take the table from the
query that fills it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

import pyarrow as pa

from strandline.lakehouse.deadletters.letters import HEADERS, PAYLOAD, letter_schema
from strandline.lakehouse.deadletters.listing import ALL, LetterFilter
from strandline.lakehouse.locations import stores
from strandline.lakehouse.tables.backend import Conflict, DataFile
from strandline.lakehouse.tables.committing import Proposal
from strandline.lakehouse.tables.definition import DEAD_LETTERS
from strandline.lakehouse.tables.errors import FencedWriter, SchemaMoved
from strandline.lakehouse.tables.history import REPLAY
from strandline.lakehouse.tables.names import OwnNames
from strandline.lakehouse.tables.presence import check_present
from strandline.lakehouse.tables.store import TableStore
from strandline.lakehouse.tables.writing import BatchWriter

_ATTEMPTS: Final = 20


class ReplayResult(NamedTuple):
    """How many letters became rows, and how many of those meant are letters still."""

    replayed: int
    still_dead: int


def replay(store: TableStore, wanted: LetterFilter = ALL) -> ReplayResult:
    """Read letters again with the table's present definition; those that fail keep being letters.

    In a table that is upserted, a row or letter of a key is replaced by a later record only; but a
    key that was deleted after the letter's record comes back, since tombstones leave nothing.
    """
    for _ in range(_ATTEMPTS):
        snapshot = store.committer.settled()
        state = store.state_of(snapshot)
        letters = store.files(DEAD_LETTERS)
        check_present(letters)
        files = [item for item in letters if _has(item, wanted, store.spec.names)]
        writer = BatchWriter(store.spec, replace(state, frontiers={}, watermark_us=None), "replay")
        try:
            meant = _read_again(writer, files, wanted, store.spec.names)
            written = writer.finish()
        except BaseException:
            writer.abort()
            raise
        replayed = sum(item.rows for item in written.files)
        if not replayed:
            writer.abort()
            return ReplayResult(0, meant)
        try:
            store.committer.propose(
                snapshot,
                Proposal(
                    kind=REPLAY,
                    writes=(written,),
                    removes=tuple(item.path.name for item in files),
                ),
            )
        except (Conflict, SchemaMoved):
            writer.abort()  # after any other error, a commit may name the files
            continue
        return ReplayResult(replayed, meant - replayed)
    raise FencedWriter(f"The table {store.spec.name} is changed all the time by others.")


def _has(file: DataFile, wanted: LetterFilter, names: OwnNames) -> bool:
    letters = stores.dataset([file.path], letter_schema(names))
    return bool(letters.count_rows(filter=wanted.replayable(names)))


def _read_again(
    writer: BatchWriter, files: list[DataFile], wanted: LetterFilter, names: OwnNames
) -> int:
    """Give the writer what is meant as records, the rest as letters; counts the former."""
    meant = 0
    for item in files:
        letters = stores.dataset([item.path], letter_schema(names))
        for batch in letters.to_batches(filter=wanted.replayable(names)):
            meant += batch.num_rows
            writer.write(_records(batch, names))
        for batch in letters.to_batches(filter=~wanted.replayable(names)):
            writer.keep_letters(batch)
    return meant


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
