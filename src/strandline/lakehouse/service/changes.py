"""What would become of a table's definition: made, changed, left, or refused.

Rows that are there were made by the definition as it was. So only what counts from the next batch
on may change; the rest asks for another table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from strandline.errors import InvalidSetting
from strandline.lakehouse.tables.definition import TableSpec

CHANGEABLE: Final = frozenset(
    {
        "catalog_properties",
        "commit_interval_ms",
        "engine",
        "evolve",
        "expire_rows_ms",
        "explode",
        "keep_history_ms",
        "late",
        "numbers",
        "registry",
        "select",
        "time_formats",
        "transform",
        "vacuum_ms",
        "watermark_ms",
    }
)
_GROWING: Final = frozenset({"columns", "topics"})
"""Further topics are read from their start; further columns are those of rows to come."""
_NOT_COMPARED: Final = frozenset({"location", "version"})
_OF_REGISTRY: Final = frozenset({"schema", "message"})
"""They came with the first commit, and are the table's since then."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One field, as it is and as it would be."""

    name: str
    before: object
    after: object

    def __str__(self) -> str:
        return f"{self.name}: {_shown(self.before)} becomes {_shown(self.after)}"


@dataclass(frozen=True, slots=True)
class Plan:
    """Of one table. `wanted` is its definition once this is carried out."""

    wanted: TableSpec
    is_new: bool
    differences: tuple[Difference, ...] = ()
    refused: tuple[Difference, ...] = ()

    @property
    def kind(self) -> str:
        """In one word."""
        if self.is_new:
            return "create"
        if self.refused:
            return "refused"
        return "change" if self.differences else "same"

    def check(self) -> None:
        """Raises InvalidSetting when it cannot be carried out."""
        if self.refused:
            first = self.refused[0]
            raise InvalidSetting(
                first.name,
                f"{first}, which cannot change once a table is there: restore the setting, or make "
                "a table of another name.",
            )


def plan_of(wanted: TableSpec, present: TableSpec | None) -> Plan:
    """Compare."""
    if present is None:
        return Plan(wanted, is_new=True)
    wanted = replace(wanted, version=present.version)
    changed: list[Difference] = []
    refused: list[Difference] = []
    for item in fields(TableSpec):
        before, after = getattr(present, item.name), getattr(wanted, item.name)
        if before == after or item.name in _NOT_COMPARED:
            continue
        if item.name in _OF_REGISTRY and wanted.registry is not None:
            continue
        known = item.name in CHANGEABLE or (item.name in _GROWING and _has_grown(before, after))
        (changed if known else refused).append(Difference(item.name, before, after))
    return Plan(wanted, is_new=False, differences=tuple(changed), refused=tuple(refused))


def _has_grown(before: Any, after: Any) -> bool:
    if isinstance(before, Mapping):
        return all(after.get(name) == value for name, value in before.items())
    return set(before) <= set(after)


def _shown(value: object) -> str:
    if isinstance(value, (tuple, list)):
        return ", ".join(map(str, value)) or "nothing"
    text = "nothing" if value in (None, {}) else str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
