"""A transform in a table's definition and history: which it is, and that it is another one now."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from strandline.lakehouse.pipeline.errors import TransformFailed
from strandline.lakehouse.tables.definition import TableSpec
from strandline.lakehouse.tables.spec import replace_spec
from strandline.lakehouse.tables.store import TableStore, open_store
from strandline.lakehouse.transforming.given import Select, Transform

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


@contextmanager
def on_trial(before: TableSpec, now: TableSpec) -> Iterator[None]:
    """For a run with another select: one that fails before a row went through it is forgotten.

    The definition is then the one of `before` again, and TransformFailed says so.
    """
    try:
        yield
    except TransformFailed as failed:
        if now.select is None or now.select == before.select or _has_rows(now, now.select):
            raise
        replace_spec(before)
        raise TransformFailed(f"{failed} The table's definition stays as it was.") from failed


def _has_rows(spec: TableSpec, select: str) -> bool:
    last = open_store(spec).last_batch()
    return last is not None and last.through == Select(select).label


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
