"""What keeps the metadata of an Iceberg table short, what it says of files, and of which nothing.

Theory: the metadata names every snapshot and holds every mark, and is written with each commit. The
newest snapshots stay, as many as the history has or as are young enough, and those that a tag or a
branch names. Each run of a table is a new query and leaves a mark, which says nothing once the
query has ended: it goes when no snapshot that is kept was made by that query. A query that then
goes on all the same is not recognised as one that was fenced; it still cannot double a record,
since its ranges are held against the frontier.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, NamedTuple

from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import NestedField, PrimitiveType
from pyiceberg.utils.datetime import days_to_date

from strandline.lakehouse.locations import stores
from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.locations.stores import Entry
from strandline.lakehouse.tables.backend import Bounds, number_of
from strandline.lakehouse.tables.iceberg_escaped import escaped_metadata

METADATA: Final = "strandline"
SNAPSHOTS_KEPT: Final = 100
"""As much history as a table tells whose definition does not say."""
SNAPSHOTS_MIN: Final = 20
"""Side tables, and looks for a lost answer, need the newest commits, whatever their age."""
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""What Spark calls its queries."""


class Superfluous(NamedTuple):
    """Ids of snapshots, and names of marks, that nothing needs."""

    snapshots: list[int]
    marks: list[str]


def superfluous(metadata: TableMetadata, *, now_ms: int, keep_ms: int | None) -> Superfluous:
    """What of a table's metadata may go; `keep_ms` is how old snapshots may get, if not many."""
    newest = sorted(metadata.snapshots, key=lambda each: each.sequence_number or 0, reverse=True)
    if keep_ms is None:
        old = newest[SNAPSHOTS_KEPT:]
    else:
        limit = now_ms - keep_ms
        old = [each for each in newest[SNAPSHOTS_MIN:] if each.timestamp_ms < limit]
    named = {each.snapshot_id for each in metadata.refs.values()}
    old = [each for each in old if each.snapshot_id not in named]
    gone = {each.snapshot_id for each in old}
    kept = [each for each in newest if each.snapshot_id not in gone]
    needed = {_query_of(each) for each in kept}
    known = {_query_of(each) for each in old}
    marks = [
        name
        for name in metadata.properties
        if name not in needed and (name in known or _UUID.fullmatch(name))
    ]
    return Superfluous([each.snapshot_id for each in old], marks)


def unnamed(table: Table, directory: Location) -> list[Entry]:
    """The files of the table in `directory` that no snapshot names."""
    texts: set[str] = set(table.inspect.all_files()["file_path"].to_pylist())
    for item in table.metadata.snapshots:
        texts.add(item.manifest_list)
        texts |= {part.manifest_path for part in item.manifests(table.io)}
    named = {Location.parse(text) for text in texts}
    found = [
        each
        for place, suffix in ((directory, ".parquet"), (directory / "metadata", ".avro"))
        for each in stores.listed(place)
        if each.location.name.endswith(suffix) and each.location not in named
    ]
    escaped = escaped_metadata(directory).items()
    return found + [each for text, each in escaped if text.endswith(".avro") and text not in texts]


def bounds_of(file: DataFile, field: NestedField) -> Bounds:
    """A column's bounds in a file."""
    nulls = (file.null_value_counts or {}).get(field.field_id)
    return Bounds(
        _bound(file.lower_bounds, field, upper=False),
        _bound(file.upper_bounds, field, upper=True),
        has_nulls=nulls is None or nulls > 0,
    )


def _bound(bounds: dict[int, bytes] | None, field: NestedField, *, upper: bool) -> int | None:
    raw = (bounds or {}).get(field.field_id)
    if raw is None or not isinstance(field.field_type, PrimitiveType):
        return None
    value: Any = from_bytes(field.field_type, raw)
    if str(field.field_type) == "date":
        value = days_to_date(value)
    return number_of(value, upper=upper)


def _query_of(snapshot: Snapshot) -> str:
    text = (snapshot.summary.additional_properties if snapshot.summary else {}).get(METADATA)
    return str(json.loads(text).get("query_id", "")) if text else ""
