"""What the tasks of a batch write to, and the writer for it, on every engine.

This file needs no Spark: dead letters are read again by the same writer in one process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.tables.definition import TableSpec
from strandline.lakehouse.tables.identity import TableState
from strandline.lakehouse.tables.writing import BatchWriter
from strandline.lakehouse.tables.written import TaskWrite
from strandline.lakehouse.transforming.staging import StagedRows


class Target(NamedTuple):
    """A table as it was when the batch began.

    `stores` is what the driver's environment says of stores, without keys (`public_settings`).
    With `staging`, rows go to files in that directory, on their way to a transform.
    """

    spec: TableSpec
    state: TableState
    stores: Mapping[str, str]
    staging: str = ""


Write: TypeAlias = Callable[[Target], Sequence[TaskWrite]]
"""Has tasks decode a batch and write it."""


def batch_writer(target: Target, name: str) -> BatchWriter:
    """What takes the records of a task that is called so."""
    if not target.staging:
        return BatchWriter(target.spec, target.state, name)
    rows = StagedRows(target.spec, Location.parse(target.staging), name)
    return BatchWriter(target.spec, target.state, name, rows)
