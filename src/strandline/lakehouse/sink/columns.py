"""Which column of a row means what, with the rules of Spark's own `kafka` sink.

    value      string or binary; the only one that must be there
    key        string or binary
    topic      string; must be there unless the option `topic` names one, which wins
    partition  int
    headers    array<struct<key: string, value: binary>>

Other columns are left alone, so that rows which were read from a topic can be written as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql.types import StructType

from strandline.errors import StrandlineError

_ALLOWED: Final = {
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
}


class UnusableRows(StrandlineError):
    """Rows cannot become records. The sentence names the column."""


class OutgoingRecord(NamedTuple):
    """A record that is to be written."""

    topic: str
    key: bytes | None
    value: bytes | None
    partition: int | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns that are there, for rows of one schema."""

    topic: str | None
    """The topic of all rows, if the option names one."""
    present: frozenset[str]

    @classmethod
    def of(cls, schema: StructType, topic: str | None) -> Columns:
        """Check a schema. Raises `UnusableRows`."""
        types = {field.name: field.dataType.simpleString() for field in schema.fields}
        for name, allowed in _ALLOWED.items():
            if name in types and types[name] not in allowed:
                raise UnusableRows(
                    f"The column {name} must be {' or '.join(allowed)}, not {types[name]}."
                )
        if "value" not in types:
            raise UnusableRows("There is no column value: it is what is written.")
        if topic is None and "topic" not in types:
            raise UnusableRows(
                "Nothing says to which topic the rows go: name it in the option topic, or for "
                "each row in a column topic."
            )
        return cls(topic, frozenset(types) & _ALLOWED.keys())

    def records(self, batch: pa.RecordBatch) -> Iterator[OutgoingRecord]:
        """The records of some rows. Raises `UnusableRows` for one that has no topic."""
        topics = [self.topic] * batch.num_rows if self.topic else self._column(batch, "topic")
        rows = zip(
            topics,
            self._bytes(batch, "key"),
            self._bytes(batch, "value"),
            self._column(batch, "partition"),
            self._column(batch, "headers"),
            strict=True,
        )
        for topic, key, value, partition, headers in rows:
            if topic is None:
                raise UnusableRows(
                    "A row has no topic: its column topic is null. The option topic names one for "
                    "all rows."
                )
            yield OutgoingRecord(topic, key, value, partition, _pairs(headers))

    def _column(self, batch: pa.RecordBatch, name: str) -> list[Any]:
        if name not in self.present:
            return [None] * batch.num_rows
        return batch.column(name).to_pylist()  # type: ignore[no-any-return]

    def _bytes(self, batch: pa.RecordBatch, name: str) -> list[Any]:
        if name not in self.present:
            return [None] * batch.num_rows
        return batch.column(name).cast(pa.binary()).to_pylist()  # type: ignore[no-any-return]


def _pairs(headers: list[dict[str, Any]] | None) -> tuple[tuple[str, bytes | None], ...]:
    return tuple((each["key"], each["value"]) for each in headers or ())
