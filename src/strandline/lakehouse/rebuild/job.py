"""Making a table again from the log, beside the live one.

The rebuilt table is a table like any other, called `<name>__rebuild`. It has no watermark: which
rows came late depends on when they came, which is over; a comparison takes late rows for rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final
from uuid import uuid4

from pyspark.sql import SparkSession

from strandline.lakehouse.locations import stores
from strandline.lakehouse.pipeline.batch import commit_batch
from strandline.lakehouse.pipeline.batches import to_read
from strandline.lakehouse.pipeline.target import Write
from strandline.lakehouse.pipeline.tasks import write_ranges
from strandline.lakehouse.reading.settings import ReadSettings
from strandline.lakehouse.rebuild.selection import batches
from strandline.lakehouse.tables.definition import TableSpec
from strandline.lakehouse.tables.errors import TableExists, TableMissing
from strandline.lakehouse.tables.identity import BatchIdentity, OffsetRange
from strandline.lakehouse.tables.spec import load_spec, write_spec
from strandline.lakehouse.tables.store import TableStore, drop_table, open_store
from strandline.lakehouse.transforming.given import transform_of
from strandline.lakehouse.transforming.utc_session import copy_in_utc
from strandline.lakehouse.transforming.writing import Passage

SUFFIX: Final = "__rebuild"
_MARK: Final = "rebuild.json"
"""Says that a directory holds a rebuild, which may be made anew, and of which offsets."""


def rebuild(
    spark: SparkSession,
    live: TableSpec,
    settings: ReadSettings,
    ranges: Sequence[OffsetRange],
    *,
    rows_per_commit: int = 1_000_000,
    tell: Callable[[int, int], None],
) -> TableStore:
    """Read `ranges` again and write them as a table of its own, in place of an older rebuild.

    `tell` gets how many offsets are done, of how many. Raises `TableExists` if something else is
    where the rebuild should be, and what reading and writing raise.
    """
    spec = rebuilt_spec(live)
    _clear(spec)
    write_spec(spec)
    stores.replace_text(spec.place / _MARK, json.dumps([list(each) for each in ranges]))
    store = open_store(spec, create=True)
    query_id = str(uuid4())
    total = sum(each.end - each.start for each in ranges)
    done = 0
    transform = transform_of(live)
    through = "" if transform is None else transform.label
    passage = None if transform is None else Passage(copy_in_utc(spark), spec, transform)
    for number, batch in enumerate(batches(ranges, rows_per_commit)):
        write: Write = partial(write_ranges, spark, [to_read(each) for each in batch], settings)
        if passage is not None:
            write = passage.writer(write)
        commit_batch(spec, store, BatchIdentity(query_id, number, batch, through=through), write)
        done += sum(each.end - each.start for each in batch)
        tell(done, total)
    return store


def rebuilt_spec(live: TableSpec) -> TableSpec:
    """The definition of a table's rebuild."""
    return replace(
        live,
        name=live.name + SUFFIX,
        location=live.location.rstrip("/") + SUFFIX,
        watermark_ms=None,
        writer="strandline",  # it asks what the rows are, and needs no jar for that
    )


def open_rebuild(live: TableSpec) -> tuple[TableStore, tuple[OffsetRange, ...]]:
    """The rebuild of a table, and the offsets that it holds. Raises `TableMissing`."""
    location = rebuilt_spec(live).place
    try:
        ranges = json.loads(stores.read_text(location / _MARK))
    except FileNotFoundError:
        raise TableMissing(
            f"There is no rebuild of table '{live.name}': strandline table rebuild {live.name} "
            "makes one."
        ) from None
    spec = load_spec(location)
    if spec.version != live.version:
        raise TableMissing(
            f"The rebuild of table '{live.name}' is older than the table's upgrade, and has other "
            f"columns: strandline table rebuild {live.name} makes it anew."
        )
    return open_store(spec), tuple(OffsetRange(*each) for each in ranges)


def _clear(spec: TableSpec) -> None:
    location = spec.place
    if not stores.exists(location):
        return
    if not stores.exists(location / _MARK):
        raise TableExists(f"{location} is no rebuild: it is left as it is.")
    drop_table(spec)
