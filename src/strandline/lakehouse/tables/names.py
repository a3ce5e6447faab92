"""What a table's own columns are called: those that say which record a row comes from.

Theory: the names must be free in every engine that reads tables. Iceberg's engines refuse a table
that has a column of a name that they keep for themselves, `_partition` among them, which tables of
the first version of the definition have: they keep their names, which are in the queries of their
users. Design note 0013 tells what was looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

TIMESTAMP: Final = pa.timestamp("us", "UTC")

KEY_VALUE: Final = "kafka_key_value"
"""The column of the decoded key, in tables that decode keys."""
RECORD_HEADERS: Final = "kafka_headers"
"""The column of the record's headers, in tables that keep them."""
HEADERS_TYPE: Final = pa.list_(
    pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())]))
)

RESERVED_BY_ENGINES: Final = frozenset(
    {
        # Iceberg (`MetadataColumns`): where a row lies, its lineage, and what changed.
        *("_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id"),
        *("_last_updated_sequence_number", "_change_type", "_change_ordinal"),
        "_commit_snapshot_id",
        # Delta's change data feed. Spark's own `_metadata` gives way to a column of that name.
        *("_commit_version", "_commit_timestamp"),
    }
)
"""Names, in lower case, under which no top-level column can be read everywhere."""


@dataclass(frozen=True, slots=True)
class OwnNames:
    """The names of one version of the definition. `offset_end` is of side tables only.

    `row` is of tables whose transform may give several rows for a record. `reserved` are names, in
    lower case, that no column of a value may have.
    """

    topic: str
    partition: str
    offset: str
    time: str
    key: str
    offset_end: str
    row: str = ""
    others: frozenset[str] = frozenset()

    @property
    def own(self) -> frozenset[str]:
        """The columns of rows."""
        return frozenset({self.topic, self.partition, self.offset, self.time, self.key})

    @property
    def reserved(self) -> frozenset[str]:
        """What no column of a value may be called."""
        return self.own | self.others

    @property
    def record(self) -> tuple[str, str, str]:
        """Which record it is."""
        return (self.topic, self.partition, self.offset)

    @property
    def place(self) -> tuple[pa.Field, ...]:
        """Where each row comes from; what `verify` proves with."""
        return (
            pa.field(self.topic, pa.string(), nullable=True),
            pa.field(self.partition, pa.int32(), nullable=True),
            pa.field(self.offset, pa.int64(), nullable=True),
            pa.field(self.time, TIMESTAMP, nullable=True),
        )

    def renamed(self, other: OwnNames, *, letters: bool = False) -> dict[str, str]:
        """The names of `other` by those of this version, of rows or of dead letters."""
        ends = {self.offset_end: other.offset_end} if letters else {}
        return {
            self.topic: other.topic,
            self.partition: other.partition,
            self.offset: other.offset,
            self.time: other.time,
            self.key: other.key,
            **ends,
        }


FIRST: Final = OwnNames("_topic", "_partition", "_offset", "_timestamp", "_key", "_offset_end")
NAMES: Final = OwnNames(
    *("kafka_topic", "kafka_partition", "kafka_offset", "kafka_timestamp", "kafka_key"),
    "kafka_offset_end",
    "kafka_row",
    others=RESERVED_BY_ENGINES,
)


def dropped_schema(names: OwnNames) -> pa.Schema:
    """The columns of tables of dropped or expired records: runs of offsets, ends exclusive."""
    ends = pa.field(names.offset_end, pa.int64())
    return pa.schema([*names.place[:3], ends])


def names_of(columns: list[str]) -> OwnNames:
    """The version whose names a file of rows or letters has."""
    return NAMES if NAMES.offset in columns else FIRST
