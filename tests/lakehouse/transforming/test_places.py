"""Sets of records by their places, on their way from tasks to the driver."""

from __future__ import annotations

import pyarrow as pa
import pytest

from strandline.lakehouse.tables.names import NAMES
from strandline.lakehouse.transforming.places import PlaceNotes, unpack
from strandline.types import TopicPartition

AT = TopicPartition("t", 0)


@pytest.mark.parametrize(
    ("offsets", "bitmaps"),
    [([7], 1), ([5, 7, 60_000], 1), ([0, 1 << 16, 1 << 18], 2), ([3, 10**12, 2 * 10**12], 3)],
)
def test_what_is_packed_is_unpacked(offsets: list[int], bitmaps: int) -> None:
    """Letters of a long history are replayed together: a bitmap over all of it took 931 GiB."""
    notes = PlaceNotes(NAMES)
    columns = (["t"] * len(offsets), pa.array([0] * len(offsets), pa.int32()), offsets)
    notes.add(pa.RecordBatch.from_arrays([*map(pa.array, columns)], list(NAMES.record)))
    packed = notes.pack()
    assert len(packed) == bitmaps
    assert {place: found.tolist() for place, found in unpack(packed).items()} == {AT: offsets}
