"""Makes, or goes on with, a table by whatever version of the package PYTHONPATH leads to.

    python old_tables.py DIRECTORY FORMAT MODE FIRST

Writes one batch of five records from the offset FIRST on and prints the rows as JSON. This file is
run by path, with the sources of an earlier release: it may use nothing that those do not have.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa

from strandline.lakehouse.tables.identity import BatchIdentity, OffsetRange
from strandline.lakehouse.tables.spec import TableSpec, load_spec, parse_partitioning, save_spec
from strandline.lakehouse.tables.store import open_store
from strandline.lakehouse.tables.writing import BatchWriter

TOPIC = "flights"
VALUES = [b'{"a": %d, "at": "2026-03-01T00:00:00Z"}', b"no JSON", b'{"a": %d}', b'{"a": %d}']
LATE = b'{"a": %d, "at": "2020-01-01T00:00:00Z"}'


def records(first: int) -> pa.RecordBatch:
    values = [
        (each % number if b"%d" in each else each)
        for number, each in enumerate([*VALUES, LATE], first)
    ]
    count = len(values)
    return pa.RecordBatch.from_arrays(
        [
            pa.array([b"k%d" % (number % 3) for number in range(count)], pa.binary()),
            pa.array(values, pa.binary()),
            pa.array([TOPIC] * count, pa.string()),
            pa.array([0] * count, pa.int32()),
            pa.array(range(first, first + count), pa.int64()),
            pa.array([1_700_000_000_000_000] * count, pa.timestamp("us", "UTC")),
        ],
        names=["key", "value", "topic", "partition", "offset", "timestamp"],
    )


def definition(directory: Path, table_format: str, mode: str) -> TableSpec:
    if (directory / "table.json").exists():
        return load_spec(directory)
    dated: dict[str, Any] = {
        "event_time": "at",
        "watermark_ms": 0,
        "partition_by": parse_partitioning("day(_timestamp)"),
    }
    spec = TableSpec(
        name="t",
        topics=(TOPIC,),
        location=str(directory),
        format=table_format,
        mode=mode,
        buckets=2,
        **(dated if mode == "append" else {}),
    )
    save_spec(spec)
    return spec


def main(directory: str, table_format: str, mode: str, first: str) -> None:
    spec = definition(Path(directory), table_format, mode)
    store = open_store(spec, create=True)
    batch = records(int(first))
    writer = BatchWriter(spec, store.state(), "0")
    writer.write(batch)
    ranges = (OffsetRange(TOPIC, 0, int(first), int(first) + batch.num_rows),)
    store.commit(BatchIdentity(f"q{first}", 0, ranges), [writer.finish()])
    print(
        json.dumps(sorted(store.dataset().to_table(columns=["_offset", "a"]).to_pylist(), key=str))
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
