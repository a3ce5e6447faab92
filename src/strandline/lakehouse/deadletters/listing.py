"""The dead letters of a table, for people: which there are, and how many of which kind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from strandline.lakehouse.deadletters.letters import (
    DECODER,
    ERROR,
    ERROR_CLASS,
    HEADERS,
    LOST_RANGE,
    PAYLOAD,
    SEQUENCE,
)
from strandline.lakehouse.tables.definition import DEAD_LETTERS
from strandline.lakehouse.tables.names import OwnNames
from strandline.lakehouse.tables.store import TableStore


class Letter(NamedTuple):
    """One dead letter. A lost range has neither `timestamp_ms` nor a payload."""

    topic: str
    partition: int
    offset: int
    offset_end: int
    timestamp_ms: int | None
    key: bytes | None
    payload: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    error_class: str
    error: str
    decoder: str | None
    table_sequence: int


@dataclass(frozen=True, slots=True)
class LetterFilter:
    """Which letters are meant: those that meet every part given. `offset_end` is exclusive."""

    error_class: str | None = None
    topic: str | None = None
    partition: int | None = None
    offset_start: int | None = None
    offset_end: int | None = None

    def expression(self, names: OwnNames) -> Any:
        """The filter as pyarrow's, for letters with these names."""
        parts = pc.scalar(value=True)
        for column, value in (
            (ERROR_CLASS, self.error_class),
            (names.topic, self.topic),
            (names.partition, self.partition),
        ):
            if value is not None:
                parts &= pc.field(column) == value
        if self.offset_start is not None:
            parts &= pc.field(names.offset) >= self.offset_start
        if self.offset_end is not None:
            parts &= pc.field(names.offset) < self.offset_end
        return parts

    def replayable(self, names: OwnNames) -> Any:
        """The filter without lost ranges, which have nothing to replay."""
        return self.expression(names) & (pc.field(ERROR_CLASS) != LOST_RANGE)


ALL = LetterFilter()


def list_letters(store: TableStore, wanted: LetterFilter = ALL) -> Iterator[Letter]:
    """The letters that a filter means, in no order; read as they are asked for."""
    for batch in store.dataset(DEAD_LETTERS).to_batches(filter=wanted.expression(store.spec.names)):
        for row in batch.to_pylist():
            yield _letter(row, store.spec.names)


def count_letters(store: TableStore, wanted: LetterFilter = ALL) -> dict[str, int]:
    """How many letters there are of each error class."""
    counts: dict[str, int] = {}
    letters = store.dataset(DEAD_LETTERS)
    if ERROR_CLASS not in letters.schema.names:
        return counts
    for batch in letters.to_batches(
        columns=[ERROR_CLASS], filter=wanted.expression(store.spec.names)
    ):
        for item in pc.value_counts(batch.column(ERROR_CLASS)).to_pylist():
            counts[item["values"]] = counts.get(item["values"], 0) + item["counts"]
    return counts


def _letter(row: dict[str, Any], names: OwnNames) -> Letter:
    time = row[names.time]
    return Letter(
        topic=row[names.topic],
        partition=row[names.partition],
        offset=row[names.offset],
        offset_end=row[names.offset_end],
        timestamp_ms=None if time is None else pa.scalar(time, pa.timestamp("ms", "UTC")).value,
        key=row[names.key],
        payload=row[PAYLOAD],
        headers=tuple((item["key"], item["value"]) for item in row[HEADERS] or ()),
        error_class=row[ERROR_CLASS],
        error=row[ERROR],
        decoder=row[DECODER],
        table_sequence=row[SEQUENCE],
    )
