"""What of a table goes when, and why; and what stays.

This file looks and removes nothing. What it says comes from the functions by which things are
removed, so that the two cannot differ.
"""

from __future__ import annotations

from typing import NamedTuple

from strandline.lakehouse.locations import stores
from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.tables.definition import TableSpec
from strandline.lakehouse.tables.expiring import FileAge, doomed, patience_us
from strandline.lakehouse.tables.store import TableStore

GOES, WAITS, STAYS = "goes", "waits", "stays"


class Fate(NamedTuple):
    """Of a `number` of like things: `what` they are, and their `fate`: GOES, WAITS or STAYS.

    `rows` and `bytes` are None where things have none; `at_ms` is when the first of those that wait
    goes, if that is known.
    """

    what: str
    number: int
    fate: str
    why: str
    rows: int | None = None
    bytes: int | None = None
    at_ms: int | None = None


def explain(store: TableStore, *, now_ms: int) -> list[Fate]:
    """Everything, the table's own rows first. Raises TableError, StoreTrouble."""
    return [
        *(fate for side, ages in store.ages().items() for fate in _rows(store, side, ages, now_ms)),
        *_versions(store, now_ms),
        *_files(store, now_ms),
    ]


def _rows(store: TableStore, side: str | None, ages: list[FileAge], now_ms: int) -> list[Fate]:
    spec, what = store.spec, f"files of {side or 'rows'}"
    if not ages:
        return []
    if spec.expire_rows_ms is None:
        return [_of(what, ages, STAYS, "expire-rows is not set: rows may get as old as they like")]
    life, limit_us = _days(spec.expire_rows_ms), (now_ms - spec.expire_rows_ms) * 1000
    gone = doomed(spec.expire_rows_ms, side, ages, limit_us)
    whole = {each.path for each in gone.whole}
    part = {each.path for each in store.with_old_rows(side, gone.part, limit_us=limit_us)}
    # Rows of these are younger than bounds can say; when they go is not known.
    spared = {each.path for each in gone.part} - part
    age_of = f"by {_clock(spec, side)}"
    groups: dict[str, list[FileAge]] = {"whole": [], "part": [], "waits": [], "stays": []}
    for each in ages:
        if each.file.path in whole:
            groups["whole"].append(each)
        elif each.file.path in part:
            groups["part"].append(each)
        else:
            groups["stays" if each.oldest_us is None else "waits"].append(each)
    waits = [
        min(
            each.oldest_us + patience_us(spec.expire_rows_ms),
            each.youngest_us if each.youngest_us is not None else 1 << 62,
        )
        for each in groups["waits"]
        if each.oldest_us is not None and each.file.path not in spared
    ]
    found = [
        _of(what, groups["whole"], GOES, f"every row is older than {life}, {age_of}"),
        _of(
            what,
            groups["part"],
            GOES,
            f"written again without rows older than {life}, {age_of}; younger ones stay",
        ),
        _of(
            what,
            groups["waits"],
            WAITS,
            f"rows are younger than {life}, {age_of}, or not a tenth older",
            at_ms=min(waits) // 1000 + spec.expire_rows_ms + 1 if waits else None,
        ),
        _of(what, groups["stays"], STAYS, "no row has a time, or the file does not say"),
    ]
    return [each for each in found if each.number]


def _versions(store: TableStore, now_ms: int) -> list[Fate]:
    spec = store.spec
    times = sorted(each.at_ms for each in store.history())
    if not times:
        return []
    if spec.keep_history_ms is None:
        default = "30 days" if spec.format == "delta" else "the newest 100"
        return [Fate("versions", len(times), STAYS, f"keep-history is not set: {default} are kept")]
    limit_ms = now_ms - spec.keep_history_ms
    old = [each for each in times if each < limit_ms]
    young = [each for each in times if each >= limit_ms]
    kept = _days(spec.keep_history_ms)
    found = [
        Fate(
            "versions", len(old), GOES, f"older than {kept}; the newest 20, and tagged ones, stay"
        ),
        Fate(
            "versions",
            len(young),
            WAITS,
            f"readable for {kept}",
            at_ms=young[0] + spec.keep_history_ms if young else None,
        ),
    ]
    return [each for each in found if each.number]


def _files(store: TableStore, now_ms: int) -> list[Fate]:
    spec = store.spec
    unused = set(store.vacuum(now_ms=now_ms + _FAR_MS, older_than_ms=0, dry_run=True))
    if not unused:
        return []
    what = "files of no version"
    if spec.vacuum_ms is None:
        why = "vacuum is not set: they stay until strandline table compact --vacuum"
        return [Fate(what, len(unused), STAYS, why, bytes=_bytes(unused))]
    old = set(store.vacuum(now_ms=now_ms, older_than_ms=spec.vacuum_ms, dry_run=True))
    kept = _days(spec.vacuum_ms)
    found = [
        Fate(what, len(old), GOES, f"not needed for {kept}", bytes=_bytes(old)),
        Fate(
            what,
            len(unused - old),
            WAITS,
            f"made, or replaced, less than {kept} ago: a reader or a batch may need them",
            bytes=_bytes(unused - old),
        ),
    ]
    return [each for each in found if each.number]


def _of(what: str, ages: list[FileAge], fate: str, why: str, *, at_ms: int | None = None) -> Fate:
    files = [each.file for each in ages]
    rows, size = sum(each.rows for each in files), sum(each.size for each in files)
    return Fate(what, len(files), fate, why, rows, size, at_ms)


def _bytes(files: set[str]) -> int:
    return sum(filter(None, stores.sizes([Location.parse(each) for each in sorted(files)])))


def _clock(spec: TableSpec, side: str | None) -> str:
    if side == "dead_letters" or spec.explode or spec.event_time is None:
        return "the record's own time"
    return spec.event_time


def _days(duration_ms: int) -> str:
    for unit, size in (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000)):
        if duration_ms % size == 0:
            count = duration_ms // size
            return f"{count:,} {unit}{'' if count == 1 else 's'}"
    return f"{duration_ms / 1000:,g} seconds"


_FAR_MS = 10 * 365 * 86_400_000
"""So far ahead every file is old."""
