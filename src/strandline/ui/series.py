"""What pages draw over time: a few numbers of every look, kept in rings of fixed length.

Two rings: one of points `FINE_S` apart for about an hour, one of points a minute apart for a day.
A point is the mean of the rates of the looks in it, the sum of what happened in them, and for all
else what was seen last. Lags of groups have a ring of their own, since they are asked for apart.

    point   wall_ms and one number for each of `COLUMNS`, null where nothing is known
    lag     wall_ms and a number of records for each group

Memory: 3,240 points of 10 numbers, 1,080 samples of the lags of 50 groups at most. This file knows
pictures, no sockets and no page.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from strandline.node.status.meters import BUCKETS_MS
from strandline.types import NO_LEADER
from strandline.ui.picture import Json, Picture

KINDS: Final = ("fine", "coarse")
FINE_S: Final = 2
COARSE_S: Final = 60
FINE_MAX: Final = 1_800
COARSE_MAX: Final = 1_440
LAGS_MAX: Final = 1_080

COLUMNS: Final = (
    "bytes_in",  # B/s from producers, the three of all brokers together
    "bytes_out",  # B/s to consumers
    "records_in",  # records/s
    "produce_median_ms",  # upper bounds of the buckets in which half of all answers ...
    "produce_p99_ms",  # ... and 99 of 100 answers to produce requests are
    "under_replicated",  # partitions
    "without_leader",  # partitions
    "in_sync_changes",  # partitions whose in-sync set or leader differs from the look before
    "log_bytes",  # of all replicas
    "brokers",  # that answer
)
_RATES: Final = ("bytes_in", "bytes_out", "records_in")
_SUMS: Final = ("in_sync_changes",)
_OF_PARTITIONS: Final = ("under_replicated", "without_leader", "in_sync_changes", "log_bytes")
_BEYOND_MS: Final = 60_000
"""Shown for answers that took longer than the last bucket."""

Values = dict[str, float | None]
Point: TypeAlias = list[float | None]


class _Ring:
    """Points that are `seconds` apart; the last one still takes in looks."""

    def __init__(self, seconds: int, length: int) -> None:
        self._seconds = seconds
        self._points: deque[Point] = deque(maxlen=length)
        self._open: list[Values] = []
        self._until_ms = 0

    def add(self, wall_ms: int, values: Values) -> None:
        """Take in a look; a clock that was set back begins a new point."""
        if self._open and not self._until_ms - self._seconds * 1000 <= wall_ms < self._until_ms:
            self._open = []
        if not self._open:
            step_ms = self._seconds * 1000
            self._until_ms = (wall_ms // step_ms + 1) * step_ms
            self._points.append([])
        self._open.append(values)
        self._points[-1] = [wall_ms, *(_merged(name, self._open) for name in COLUMNS)]

    def after(self, wall_ms: int) -> list[Point]:
        """The points that are newer; the newest is told again while it still changes."""
        found = list(self._points)
        return found[bisect_right(found, wall_ms, key=lambda point: int(point[0] or 0)) :]


def _merged(name: str, looks: Sequence[Values]) -> float | None:
    known = [value for look in looks if (value := look[name]) is not None]
    if not known:
        return None
    if name in _SUMS:
        return sum(known)
    if name in _RATES:
        return round(sum(known) / len(known), 1)
    return known[-1]


class Series:
    """See the module. It is written by the watcher's thread and read in others."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        rings = (_Ring(FINE_S, FINE_MAX), _Ring(COARSE_S, COARSE_MAX))
        self._rings = dict(zip(KINDS, rings, strict=True))
        self._lags: deque[tuple[int, Mapping[str, int]]] = deque(maxlen=LAGS_MAX)
        self._before: Picture | None = None

    def add(self, picture: Picture) -> None:
        """Take in a look."""
        values = _values(picture, self._before)
        self._before = picture
        with self._lock:
            for ring in self._rings.values():
                ring.add(picture.wall_ms, values)

    def add_lags(self, wall_ms: int, lags: Mapping[str, int]) -> None:
        """Take in the lags of groups."""
        with self._lock:
            self._lags.append((wall_ms, dict(lags)))

    def told(self, kind: str, after: int) -> Json:
        """The points of a ring (`fine` or `coarse`) that are newer than a moment, and the lags."""
        with self._lock:
            points = self._rings[kind].after(after)
            lags = [[at, found] for at, found in self._lags if at > after]
        return {"columns": ["wall_ms", *COLUMNS], "points": points, "lags": lags}


def _values(picture: Picture, before: Picture | None) -> Values:
    heard = [each for each in picture.brokers if not each["error"]]
    rates = [each["rates"] for each in heard if each.get("rates")]
    rows = picture.partitions.values()
    median, highest = _produce_times(picture, before)
    found: Values = {
        name: round(sum(each[name] for each in rates), 1) if rates else None for name in _RATES
    }
    found |= {"produce_median_ms": median, "produce_p99_ms": highest, "brokers": len(heard)}
    if not heard:
        return found | dict.fromkeys(_OF_PARTITIONS)
    return found | {
        "under_replicated": sum(row[5] is not None and len(row[5]) < len(row[4]) for row in rows),
        "without_leader": sum(row[2] == NO_LEADER for row in rows),
        "in_sync_changes": _changes(picture, before),
        "log_bytes": sum(copy[8] for row in rows for copy in row[6]),
    }


def _changes(picture: Picture, before: Picture | None) -> int:
    if before is None:
        return 0
    return sum(
        (old := before.partitions.get(key)) is not None
        and old is not row
        and (old[5] is not None and row[5] is not None)
        and (old[2], old[5]) != (row[2], row[5])
        for key, row in picture.partitions.items()
    )


def _produce_times(picture: Picture, before: Picture | None) -> tuple[float | None, float | None]:
    """Of the answers since the look before: the median and the 99th percentile, as bounds."""
    counts = [0] * (len(BUCKETS_MS) + 1)
    earlier = {} if before is None else {each["id"]: each.get("produce") for each in before.brokers}
    for each in picture.brokers:
        now, then = each.get("produce"), earlier.get(each["id"])
        if not now or not then or now[0] < then[0]:
            continue  # it is new, silent, or counts from zero again
        for at, (new, old) in enumerate(zip(now[1:], then[1:], strict=True)):
            counts[at] += new - old
    return _bound(counts, 0.5), _bound(counts, 0.99)


def _bound(counts: Sequence[int], share: float) -> float | None:
    wanted = share * sum(counts)
    if not wanted:
        return None
    so_far = 0
    for count, bound in zip(counts, (*BUCKETS_MS, _BEYOND_MS), strict=True):
        so_far += count
        if so_far >= wanted:
            return bound
    return None
