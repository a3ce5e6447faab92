"""A commit of Delta's log that gives columns other names, as text.

Theory: delta-rs takes no other partition columns and no other table properties in a commit that
writes files, and a change in two commits would show readers half of it. A commit is one file of
JSON lines, which the Delta protocol describes. It counts if it is the first of its number: a hard
link fails where a file is there already, which is how delta-rs commits as well. Only tables of the
protocol's versions 1 and 2 are taken, as this package makes them: a later one may ask for more than
is written here.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.transaction import AddAction

from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.tables.delta_upkeep import dated
from strandline.lakehouse.tables.errors import BadTable

_PROTOCOL = (1, 2)
"""Versions of reader and writer: no features, no constraints, no mapped columns."""


def check_protocol(directory: Location, table: DeltaTable) -> None:
    """Raises BadTable for a table that was given features, or that was moved into a store."""
    if not directory.is_local:
        raise BadTable(
            f"The Delta table in {directory} is of version 0.1.0, which kept tables on disks only: "
            "upgrade it there, and move it afterwards."
        )
    protocol = table.protocol()
    if (protocol.min_reader_version, protocol.min_writer_version) != _PROTOCOL:
        raise BadTable(
            f"The Delta table in {directory} was given features that this package does not write "
            f"(versions {protocol.min_reader_version} and {protocol.min_writer_version} of the "
            "protocol): its columns cannot be renamed. Make another table of the topic."
        )


def renaming(
    table: DeltaTable,
    names: Mapping[str, str],
    adds: Sequence[AddAction],
    marks: Mapping[str, int],
    *,
    information: Mapping[str, str],
    configuration: Mapping[str, str],
    now_ms: int,
) -> list[Mapping[str, Any]]:
    """The actions: `adds` replace all files, columns get `names` by those that they have.

    `marks` become application transactions, `configuration` is added to the table's own.
    """
    information = {"operation": "WRITE", "engineInfo": "strandline", **information}
    parameters = {"mode": "Overwrite"}
    return [
        {"commitInfo": {"timestamp": now_ms, "operationParameters": parameters, **information}},
        {"metaData": _metadata(table, names, configuration)},
        *({"remove": each} for each in _removes(table, now_ms)),
        *({"add": _add(each)} for each in adds),
        *({"txn": _mark(name, number, now_ms)} for name, number in marks.items()),
    ]


def put(directory: Location, version: int, actions: Sequence[Mapping[str, Any]]) -> None:
    """Make them the commit of that number. Raises FileExistsError, and then nothing is changed."""
    log = (directory / "_delta_log").local
    made = log / f".{version}.{uuid.uuid4().hex}.tmp"
    try:
        with made.open("x", encoding="utf-8") as file:
            # Escaped letters are read wrong by some (`statistics`).
            file.writelines(json.dumps(each, ensure_ascii=False) + "\n" for each in actions)
            file.flush()
            os.fsync(file.fileno())
        os.link(made, log / f"{version:020}.json")
    finally:
        made.unlink(missing_ok=True)
    handle = os.open(log, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _mark(name: str, number: int, now_ms: int) -> dict[str, Any]:
    return {"appId": name, "version": number, "lastUpdated": dated(name, now_ms)}


def _metadata(
    table: DeltaTable, names: Mapping[str, str], configuration: Mapping[str, str]
) -> dict[str, Any]:
    present = table.metadata()
    schema = json.loads(table.schema().to_json())
    for field in schema["fields"]:
        field["name"] = names.get(field["name"], field["name"])
    return {
        "id": str(present.id),
        "name": present.name,
        "description": present.description,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(schema),
        "partitionColumns": [names.get(name, name) for name in present.partition_columns],
        "createdTime": present.created_time,
        "configuration": {**present.configuration, **configuration},
    }


def _removes(table: DeltaTable, now_ms: int) -> list[dict[str, Any]]:
    return [
        {
            "path": row["path"],
            "deletionTimestamp": now_ms,
            "dataChange": False,
            "size": row["size_bytes"],
        }
        for row in pa.table(table.get_add_actions(flatten=True)).to_pylist()
    ]


def _add(action: AddAction) -> dict[str, Any]:
    return {
        "path": action.path,
        "partitionValues": action.partition_values,
        "size": action.size,
        "modificationTime": action.modification_time,
        "dataChange": action.data_change,
        "stats": action.stats,
    }
