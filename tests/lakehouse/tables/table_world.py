"""One table in a temporary directory, and batches for it, without Spark or a broker."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from strandline.lakehouse.tables.committing import CommitResult
from strandline.lakehouse.tables.definition import DEAD_LETTERS, LATE, TableSpec
from strandline.lakehouse.tables.identity import BatchIdentity, OffsetRange
from strandline.lakehouse.tables.store import TableStore, open_store
from strandline.lakehouse.tables.writing import BatchWriter
from strandline.lakehouse.tables.written import TaskWrite

TOPIC = "flights"
Value = bytes | dict[str, Any] | None


def kafka_rows(
    values: Sequence[Value],
    *,
    start: int = 0,
    partition: int = 0,
    keys: Sequence[bytes | None] | None = None,
    topic: str = TOPIC,
) -> pa.RecordBatch:
    """Records as a source gives them; objects become JSON."""
    count = len(values)
    data = [json.dumps(item).encode() if isinstance(item, dict) else item for item in values]
    return pa.RecordBatch.from_arrays(
        [
            pa.array(keys or [None] * count, pa.binary()),
            pa.array(data, pa.binary()),
            pa.array([topic] * count, pa.string()),
            pa.array([partition] * count, pa.int32()),
            pa.array(range(start, start + count), pa.int64()),
            pa.array(range(count), pa.timestamp("us", "UTC")),
            pa.array([0] * count, pa.int32()),
        ],
        names=["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"],
    )


class TableWorld:
    """A table, written by one query after another. `store` may be replaced by a fresh one."""

    def __init__(self, directory: Path | str, **fields: Any) -> None:
        self.spec = self.spec_in(directory, **fields)
        self.store: TableStore = open_store(self.spec, create=True)

    @staticmethod
    def spec_in(directory: Path | str, **fields: Any) -> TableSpec:
        """The definition of the table, which a later one of the same directory may change."""
        return TableSpec(
            **{"name": "flights", "topics": (TOPIC,), "location": str(directory), **fields}
        )

    def reopen(self) -> TableStore:
        """As another process would see it."""
        self.store = open_store(self.spec)
        return self.store

    def task(
        self, values: Sequence[Value], store: TableStore | None = None, **place: Any
    ) -> TaskWrite:
        """What one task makes of records."""
        writer = BatchWriter(self.spec, (store or self.store).state(), "0")
        writer.write(kafka_rows(values, **place))
        return writer.finish()

    def batch(
        self,
        query: str,
        number: int,
        values: Sequence[Value],
        *,
        start: int = 0,
        partition: int = 0,
        keys: Sequence[bytes | None] | None = None,
        epoch: int = -1,
        topic_id: str = "",
        lost: tuple[OffsetRange, ...] = (),
    ) -> CommitResult:
        """Write and commit one batch of one partition."""
        written = self.task(values, start=start, partition=partition, keys=keys)
        end = start + len(values)
        ranges = (OffsetRange(TOPIC, partition, start, end, epoch, topic_id),)
        return self.store.commit(BatchIdentity(query, number, ranges, lost), [written])

    def rows(self, side: str | None = None) -> list[dict[str, Any]]:
        """All rows, by place."""
        rows = self.store.dataset(side).to_table().to_pylist()
        return sorted(rows, key=lambda row: (row["kafka_partition"], row["kafka_offset"]))

    def offsets(self, side: str | None = None) -> list[int]:
        """The offsets of all rows, in order, repeated if a row is."""
        return [row["kafka_offset"] for row in self.rows(side)]

    def letters(self) -> list[int]:
        """The offsets of the dead letters."""
        return self.offsets(DEAD_LETTERS)

    def late(self) -> list[int]:
        """The offsets of the late rows."""
        return self.offsets(LATE)
