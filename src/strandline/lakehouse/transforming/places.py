"""Sets of records by their places, small enough to travel from every task to the driver.

Theory: whether a transform lost a record is only known from the rows that were really written, by
all tasks together. So each task notes the offsets of its rows in a bitmap per partition, from the
least to the greatest of them, and the driver holds these against the bitmaps of what went in. A
batch of a million offsets takes 125 kB before zlib. Dead letters that are replayed may lie far
apart: behind a long gap another bitmap begins.

+-----------+-------+-----------------------------------------
| partition | first | bit k: offset first + k; zlib, base64
+-----------+-------+-----------------------------------------
"""

from __future__ import annotations

import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.lakehouse.tables.names import OwnNames, dropped_schema
from strandline.lakehouse.tables.written import Places
from strandline.types import TopicPartition

Offsets: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.int64]]"
"""Ascending, each once."""
PlaceSet: TypeAlias = Mapping[TopicPartition, Offsets]
Spans: TypeAlias = Mapping[TopicPartition, tuple[int, int]]

_NONE: Final[Offsets] = np.empty(0, np.int64)
_GAP: Final = 1 << 16
"""Offsets without a row that still are bits of one bitmap."""


class PlaceNotes:
    """Collects the places of rows, batch by batch.

    With `spans`, the first and last offset of each partition that rows may come from: a place
    outside of them is noted as a single one, and takes no room in a bitmap.
    """

    def __init__(self, names: OwnNames, spans: Spans | None = None) -> None:
        self._names = names.record
        self._spans = spans
        self._found: dict[TopicPartition, list[Offsets]] = {}
        self._foreign: tuple[Places, ...] = ()

    def add(self, rows: pa.RecordBatch) -> None:
        """Note the places of rows; those with none are noted as rows of nowhere."""
        topic, partition, offset = self._names
        if any(rows.column(name).null_count for name in self._names):
            self._foreign = (Places("", -1, -1, ""),)
            return
        if not rows.num_rows:
            return
        offsets = rows.column(offset).to_numpy(zero_copy_only=False)
        there = pa.Table.from_batches([rows.select([topic, partition])])
        for place in there.group_by([topic, partition]).aggregate([]).to_pylist():
            mine = pc.and_(
                pc.equal(rows.column(topic), place[topic]),
                pc.equal(rows.column(partition), place[partition]),
            )
            chosen = np.unique(offsets[mine.to_numpy(zero_copy_only=False)])
            at = TopicPartition(place[topic], place[partition])
            self._found.setdefault(at, []).append(self._within(at, chosen))

    def pack(self) -> tuple[Places, ...]:
        """All that was noted, as a task's result."""
        packed = [
            _pack(place, near)
            for place, some in sorted(self.whole().items())
            for near in np.split(some, np.flatnonzero(np.diff(some) > _GAP) + 1)
            if len(near)
        ]
        return (*packed, *self._foreign)

    def whole(self) -> dict[TopicPartition, Offsets]:
        """All that was noted, but what is outside of spans or of nowhere."""
        return {place: np.unique(np.concatenate(all_)) for place, all_ in self._found.items()}

    def _within(self, place: TopicPartition, offsets: Offsets) -> Offsets:
        if self._spans is None:
            return offsets
        first, last = self._spans.get(place, (0, -1))
        inside = (offsets >= first) & (offsets <= last)
        if not inside.all():
            self._foreign = (Places(*place, int(offsets[~inside][0]), ""),)
        return offsets[inside]


def unpack(packed: Iterable[Places]) -> dict[TopicPartition, Offsets]:
    """The union of what tasks noted."""
    found: dict[TopicPartition, list[Offsets]] = {}
    for each in packed:
        at = TopicPartition(each.topic, each.partition)
        if not each.bits:
            found.setdefault(at, []).append(np.array([each.first], np.int64))
            continue
        bits = np.frombuffer(zlib.decompress(b64decode(each.bits)), np.uint8)
        offsets = np.flatnonzero(np.unpackbits(bits)).astype(np.int64) + each.first
        found.setdefault(at, []).append(offsets)
    return {place: np.unique(np.concatenate(parts)) for place, parts in found.items()}


def spans_of(places: PlaceSet) -> dict[TopicPartition, tuple[int, int]]:
    """The first and last offset of each partition."""
    return {place: (int(some[0]), int(some[-1])) for place, some in places.items()}


def count(places: PlaceSet) -> int:
    """How many records these are."""
    return sum(len(offsets) for offsets in places.values())


def without(places: PlaceSet, others: PlaceSet) -> dict[TopicPartition, Offsets]:
    """Those of `places` that are not among `others`."""
    left = {
        place: np.setdiff1d(offsets, others.get(place, _NONE), assume_unique=True)
        for place, offsets in places.items()
    }
    return {place: offsets for place, offsets in left.items() if len(offsets)}


def runs(offsets: Offsets) -> Iterator[tuple[int, int]]:
    """Offsets that follow one another, as (first, behind the last)."""
    ends = np.flatnonzero(np.diff(offsets) > 1)
    starts = np.r_[0, ends + 1]
    for start, end in zip(starts, np.r_[ends, len(offsets) - 1], strict=True):
        yield int(offsets[start]), int(offsets[end]) + 1


def as_rows(places: PlaceSet, names: OwnNames) -> pa.RecordBatch:
    """The rows of the side table of dropped records."""
    found = [
        (place.topic, place.partition, start, end)
        for place, offsets in sorted(places.items())
        for start, end in runs(offsets)
    ]
    schema = dropped_schema(names)
    columns = list(zip(*found, strict=True)) or [()] * len(schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _pack(place: TopicPartition, offsets: Offsets) -> Places:
    first = int(offsets[0])
    bits = np.zeros(int(offsets[-1]) - first + 1, np.uint8)
    bits[offsets - first] = 1
    text = b64encode(zlib.compress(np.packbits(bits).tobytes(), 1)).decode()
    return Places(place.topic, place.partition, first, text)
