"""One batch, from its offsets to its commit: written, committed, and written again if it must be.

This file knows a table's store and a way to write. It must not know how offsets are found, nor
Spark's streams.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from strandline.errors import InvalidSetting
from strandline.lakehouse.locations.credentials import public_settings
from strandline.lakehouse.pipeline.target import Target, Write
from strandline.lakehouse.tables.committing import CommitResult
from strandline.lakehouse.tables.definition import TableSpec
from strandline.lakehouse.tables.errors import SchemaMoved, TableError
from strandline.lakehouse.tables.identity import BatchIdentity
from strandline.lakehouse.tables.store import TableStore

log = logging.getLogger(__name__)

_WIDENING_ATTEMPTS: Final = 3
ATTEMPTS: Final = 5
"""A batch that evolves the schema is written twice; one that does so again and again is wrong."""


def commit_batch(
    spec: TableSpec,
    store: TableStore,
    identity: BatchIdentity,
    write: Write,
) -> CommitResult:
    """Write a batch and commit it. Raises `TableError` when it cannot be, and what `write` raises.

    A table that asks for it (its schema grew) gets the batch again, written against its state as it
    then is. Files that were not committed are removed, but not after trouble with the store
    (StoreTrouble): then the commit may have been made.
    """
    attempt = 0
    while True:
        attempt += 1
        # The tasks of the last attempts take no number for more than its column holds.
        exact = replace(spec, numbers="exact") if attempt > _WIDENING_ATTEMPTS else spec
        target = Target(exact, store.state(), public_settings())
        writes = write(target)
        try:
            return store.commit(identity, writes)
        except TableError as error:
            store.discard(writes)
            if not error.retriable or attempt == ATTEMPTS:
                raise
            log.info("Batch %d is written again: %s", identity.batch_id, error)
            if isinstance(error, SchemaMoved) and spec.numbers == "double":
                _widen(store, error.wider)


def _widen(store: TableStore, columns: Sequence[str]) -> None:
    """Let columns hold fractions, if each integer in them is a double exactly."""
    for column in columns:
        try:
            store.widen(column)
        except InvalidSetting as refused:
            log.info("Its fractions become dead letters: %s", refused)
