"""A transform in a table's definition and history: which it is, and that it is another one now."""

from __future__ import annotations

from dataclasses import replace

from strandline.lakehouse.tables.definition import TableSpec
from strandline.lakehouse.tables.spec import replace_spec
from strandline.lakehouse.tables.store import TableStore
from strandline.lakehouse.transforming.given import Transform

_NOTHING = "no transform"


def remembered(
    spec: TableSpec,
    *,
    select: str | None = None,
    transform: str | None = None,
    explode: bool | None = None,
) -> TableSpec:
    """The definition with another select or transform, which is written if it is another.

    What is not given stays; a select takes a transform's place, and the other way round. Raises
    InvalidSetting for what does not go together.
    """
    newer = spec
    if select is not None:
        newer = replace(newer, select=select, transform=None)
    if transform is not None:
        newer = replace(newer, transform=transform, select=newer.select if select else None)
    if explode is not None:
        newer = replace(newer, explode=explode)
    if newer != spec:
        replace_spec(newer)
    return newer


def told_of_change(store: TableStore, transform: Transform | None) -> str | None:
    """A sentence when the table's newest rows went through something else than `transform`."""
    now = "" if transform is None else transform.label
    last = store.last_batch()
    if last is None or last.through == now:
        return None
    name = store.spec.name
    return (
        f"From here on, rows of table '{name}' go through {now or _NOTHING}; those up to commit "
        f"{last.sequence} went through {last.through or _NOTHING}. strandline table rebuild {name} "
        "makes all of them anew, beside it."
    )
