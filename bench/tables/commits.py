"""What a commit costs as a table has more and more of them; no Spark, no broker.

Each commit is one file with ten rows, as a run makes them that has little to do; every hundredth is
followed by a compaction, as in a run by default. Told are the last commits before each milestone.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa

from strandline.lakehouse.tables.definition import TableSpec
from strandline.lakehouse.tables.identity import BatchIdentity, OffsetRange
from strandline.lakehouse.tables.store import TableStore, open_store
from strandline.lakehouse.tables.writing import BatchWriter

TOPIC: Final = "little"
MILESTONES: Final = (10, 100, 1_000, 10_000)
_ROWS: Final = 10
_ROWS_MADE: Final = 100_000
"""At a time."""
_COMPACT_EVERY: Final = 100
_LAST: Final = 50


def commit_costs(home: Path, formats: tuple[str, ...], most: int) -> str:
    """A table of milliseconds, by format and number of commits."""
    lines = [
        "",
        "| commits | format | ms a commit (median of the last 50) | the longest | ms to open it |",
        "|---|---|---|---|---|",
    ]
    for each in formats:
        for done, took, open_s in _measured(home / each, each, most):
            lines.append(
                f"| {done:,} | {each} | {statistics.median(took) * 1e3:.0f} "
                f"| {max(took) * 1e3:.0f} | {open_s * 1e3:.0f} |"
            )
            print(lines[-1], file=sys.stderr, flush=True)
    return "\n".join(lines)


def _measured(directory: Path, format_: str, most: int) -> Iterator[tuple[int, list[float], float]]:
    spec = TableSpec(
        name="little",
        topics=(TOPIC,),
        location=str(directory),
        columns={"n": "long"},
        format=format_,
    )
    store = open_store(spec, create=True)
    took: list[float] = []
    for number in range(min(most, MILESTONES[-1])):
        took.append(one_commit(spec, store, number))
        done = number + 1
        if done in MILESTONES:
            began = time.monotonic()
            open_store(spec).state()
            yield done, took[-_LAST:], time.monotonic() - began
        if done % _COMPACT_EVERY == 0:
            store.compact()


def one_commit(spec: TableSpec, store: TableStore, number: int) -> float:
    """Write and commit ten rows; the seconds of the commit alone."""
    start = number * _ROWS
    commit = prepared(spec, store, number, start, start + _ROWS)
    began = time.monotonic()
    commit()
    return time.monotonic() - began


def prepared(
    spec: TableSpec, store: TableStore, number: int, start: int, end: int, *, keys: int = 0
) -> Callable[[], object]:
    """Write a batch; gives what commits it."""
    writer = BatchWriter(spec, store.state(), str(number))
    for first in range(start, end, _ROWS_MADE):
        writer.write(records(first, min(end, first + _ROWS_MADE), keys=keys))
    written = writer.finish()
    ranges = (OffsetRange(TOPIC, 0, start, end, -1, ""),)
    return lambda: store.commit(BatchIdentity("bench", number, ranges, ()), [written])


def records(start: int, end: int, *, keys: int = 0) -> pa.RecordBatch:
    """Records as a source gives them, one after the other. With `keys` they have one of so many
    each, and a text of 32 letters that does not compress."""
    count = end - start
    values = [{"n": n, **({"s": os.urandom(16).hex()} if keys else {})} for n in range(start, end)]
    names = [b"%08d" % (n % keys) if keys else None for n in range(start, end)]
    return pa.RecordBatch.from_arrays(
        [
            pa.array(names, pa.binary()),
            pa.array([json.dumps(each).encode() for each in values], pa.binary()),
            pa.array([TOPIC] * count, pa.string()),
            pa.array([0] * count, pa.int32()),
            pa.array(range(start, end), pa.int64()),
            pa.array(range(start, end), pa.timestamp("us", "UTC")),
            pa.array([0] * count, pa.int32()),
        ],
        names=["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"],
    )
