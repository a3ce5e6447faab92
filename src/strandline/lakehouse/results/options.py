"""What a user may say to the format `strandline_table` when writing, read and checked.

Options that are about the table have the names of its definition (docs/tables.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from strandline.errors import InvalidSetting
from strandline.lakehouse.options import Options
from strandline.lakehouse.tables.definition import (
    QUERIES,
    parse_duration,
    parse_partitioning,
)

_WHAT: Final = "format strandline_table for writing"
_DEFINING: Final = (
    *("format", "keys", "partition_by", "catalog", "catalog_properties", "namespace"),
    *("keep_history", "vacuum", "evolve"),
)
_KNOWN: Final = (
    *("path", "table", "tables", "create", "takeover", "queries", "on_gap"),
    *_DEFINING,
    # What Spark itself adds for a stream.
    *("checkpointLocation", "queryName"),
)
_READING: Final = ("commit", "since")


@dataclass(frozen=True, slots=True)
class ResultOptions:
    """What was said. `name` is a table's name or its directory, `tables` where names are looked up.

    `defined` are fields of the definition that were given, `evolve` among them. `may_create`: a
    table that is missing is made. `takes_over`: a query that the table does not know takes it from
    the one that wrote it before. `shared`: several queries append to the table. `accepts_gap`: a
    query may begin, or go on, behind batches that the table has not.
    """

    name: str
    tables: str | None = None
    defined: Mapping[str, Any] = field(default_factory=dict)
    may_create: bool = True
    takes_over: bool = False
    shared: bool = False
    accepts_gap: bool = False


def parse_options(given: Mapping[str, str]) -> ResultOptions:
    """Raises `InvalidSetting` for an option that is unknown, wrong or missing."""
    for each in given:
        if each.lower() in _READING:
            raise InvalidSetting(each, f"The option {each} is for reading a table.")
    options = Options(given, known=_KNOWN, what=_WHAT)
    path, table = options.text("path"), options.text("table")
    if path and table and path != table:
        raise InvalidSetting(
            "table", f"The option table says {table}, and path (or start) {path}: give one of them."
        )
    name = path or table
    if not name:
        raise InvalidSetting(
            "path",
            "Which table is written stands in start() or save(), or in the option table: its name, "
            "or its directory.",
        )
    return ResultOptions(
        name=name,
        tables=options.text("tables"),
        defined=_defined(options),
        may_create=options.flag("create", default=True),
        takes_over=options.flag("takeover", default=False),
        shared=options.one_of("queries", {"one": False, "many": True}, default=False),
        accepts_gap=options.one_of("on_gap", {"refuse": False, "accept": True}, default=False),
    )


def _defined(options: Options) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if (word := options.text("format")) is not None:
        if word not in ("delta", "iceberg"):
            raise InvalidSetting(
                "format",
                f"The option format is delta or iceberg, not '{word}': no other format "
                "takes the files of a batch in one step.",
            )
        found["format"] = word
    if (keys := options.text("keys")) is not None:
        found["keys"] = tuple(each.strip() for each in keys.split(",") if each.strip())
        found["mode"] = "upsert" if found["keys"] else "append"
    if (partitions := options.text("partition_by")) is not None:
        found["partition_by"] = parse_partitioning(partitions)
    for name in ("catalog", "namespace"):
        if (text := options.text(name)) is not None:
            found[name] = text
    properties = options.json_object("catalog_properties", '{"uri": "http://HOST:8181"}')
    if properties is not None:
        found["catalog_properties"] = dict(properties)
    for name in ("keep_history", "vacuum"):
        if (text := options.text(name)) is not None:
            found[f"{name}_ms"] = parse_duration(name, text)
    if options.given(["evolve"]):
        found["evolve"] = options.flag("evolve", default=True)
    if "catalog" in found:
        found.setdefault("format", "iceberg")
    return found


def definition(name: str, location: str, options: ResultOptions) -> dict[str, Any]:
    """The fields of the definition of a table that is made."""
    return {
        "name": name,
        "topics": (),
        "location": location,
        "filled_by": QUERIES,
        **options.defined,
    }
