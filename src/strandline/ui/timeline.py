"""The time line: the pictures that were seen, compressed, as far as they fit.

Most of a picture is as it was in the one before. Therefore only the first of a stretch is kept as a
whole, and the others as what changed:

    stretch   whole picture 1 | changes 2 | changes 3 | ... | changes 40
    stretch   whole picture 41 | changes 42 | ...

The oldest stretch goes first, and goes entirely: without its whole picture the rest means nothing.
"""

from __future__ import annotations

import json
import threading
import zlib
from collections import deque
from dataclasses import dataclass
from itertools import takewhile
from typing import Final, NamedTuple

from strandline.ui.picture import Json, Key, Picture

BYTES_MAX: Final = 64 << 20
MOMENTS_MAX: Final = 4_000
STRETCH_MAX: Final = 40
"""So many pictures in a stretch: to see its last one, all of them are unpacked."""


class _Moment(NamedTuple):
    number: int
    wall_ms: int
    data: bytes
    """What changed since the moment before; of the first in a stretch, everything."""


@dataclass(frozen=True, slots=True)
class _Stretch:
    moments: list[_Moment]

    @property
    def size_bytes(self) -> int:
        return sum(len(moment.data) for moment in self.moments)

    def picture(self, number: int) -> Json:
        """A picture of this stretch, put together again."""
        rows: dict[Key, object] = {}
        found: Json = {}
        for moment in takewhile(lambda each: each.number <= number, self.moments):
            found = json.loads(zlib.decompress(moment.data))
            for row in found["partitions"]:
                rows[row[0], row[1]] = row
            for topic, partition in found["gone"]:
                del rows[topic, partition]
        head = {name: found[name] for name in ("number", "wall_ms", "controller", "brokers")}
        return {**head, "partitions": [rows[key] for key in sorted(rows)]}


class TimeLine:
    """See the module. It is written in one thread and read in others."""

    def __init__(self, *, bytes_max: int = BYTES_MAX, moments_max: int = MOMENTS_MAX) -> None:
        self._lock = threading.Lock()
        self._stretches: deque[_Stretch] = deque()
        self._bytes = 0
        self._moments = 0
        self._bytes_max = bytes_max
        self._moments_max = moments_max
        self._last: Picture | None = None

    def add(self, picture: Picture) -> None:
        """Keep a picture; the oldest go."""
        is_first = not self._stretches or len(self._stretches[-1].moments) == STRETCH_MAX
        changes = picture.changes_since(None if is_first else self._last)
        data = zlib.compress(json.dumps(changes).encode(), 1)
        moment = _Moment(picture.number, picture.wall_ms, data)
        self._last = picture
        with self._lock:
            if is_first:
                self._stretches.append(_Stretch([]))
            self._stretches[-1].moments.append(moment)
            self._moments += 1
            self._bytes += len(data)
            while len(self._stretches) > 1 and self._is_full():
                gone = self._stretches.popleft()
                self._moments -= len(gone.moments)
                self._bytes -= gone.size_bytes

    def moments(self, after: int = 0) -> list[list[int]]:
        """Number and wall clock of every picture that is kept and newer than the one with the
        number `after`, the oldest first. A number that is still to come is of an earlier server:
        then all are told."""
        with self._lock:
            newest = self._stretches[-1].moments[-1].number if self._stretches else 0
            after = after if after <= newest else 0
            return [
                [moment.number, moment.wall_ms]
                for stretch in self._stretches
                for moment in stretch.moments
                if moment.number > after
            ]

    @property
    def oldest(self) -> int | None:
        """The number of the oldest picture that is kept."""
        with self._lock:
            return self._stretches[0].moments[0].number if self._stretches else None

    def picture(self, number: int) -> Json | None:
        """A picture by its number, if it is still kept."""
        with self._lock:
            found = [
                _Stretch(list(stretch.moments))
                for stretch in self._stretches
                if stretch.moments[0].number <= number <= stretch.moments[-1].number
            ]
        return found[0].picture(number) if found else None

    def _is_full(self) -> bool:
        return self._bytes > self._bytes_max or self._moments > self._moments_max
