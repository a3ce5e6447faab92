"""A partition's own files as rows."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pytest

from strandline.client.fetching import Isolation
from strandline.lakehouse.reading import segments
from strandline.lakehouse.reading.errors import RangeGone
from strandline.lakehouse.reading.segments import read_segments
from strandline.records.columns import BuilderLimits
from tests.storage.verify.replicas import FILES, ORDERS, Replicas, orders

MARKERS = {66, 70, 71}
ABORTED = {60, 61, 62, 63, 64, 65}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> str:
    replicas = Replicas(tmp_path_factory.mktemp("segments"))
    replicas.write(ORDERS, orders(), brokers=[1])
    replicas.finish()
    return str(replicas.directory(1))


def offsets(batches: Iterable[pa.RecordBatch]) -> list[int]:
    return [offset for each in batches for offset in each.column("offset").to_pylist()]


@pytest.mark.parametrize("chunk_bytes", [8 * 1024 * 1024, 400, 10])
def test_any_range_is_read_across_segments_and_pieces(
    directory: str, monkeypatch: pytest.MonkeyPatch, chunk_bytes: int
) -> None:
    monkeypatch.setattr(segments, "_CHUNK_BYTES", chunk_bytes)
    for start, end in ((0, 180), (17, 19), (59, 73), (179, 180)):
        limits = BuilderLimits(start=start, end=end)
        found = offsets(read_segments(FILES, directory, ORDERS, limits))
        assert found == [each for each in range(start, end) if each not in MARKERS]


@pytest.mark.parametrize("start", [0, 61, 64, 66, 67])
def test_aborted_transactions_are_left_out_wherever_the_range_begins(
    directory: str, start: int
) -> None:
    limits = BuilderLimits(start=start, end=100)
    found = offsets(read_segments(FILES, directory, ORDERS, limits, Isolation.READ_COMMITTED))
    assert found == [each for each in range(start, 100) if each not in MARKERS | ABORTED]


def test_what_the_files_do_not_have_is_gone(directory: str, tmp_path: Path) -> None:
    with pytest.raises(RangeGone, match="ends at offset 180"):
        list(read_segments(FILES, directory, ORDERS, BuilderLimits(start=5, end=181)))
    with pytest.raises(RangeGone):
        list(read_segments(FILES, str(tmp_path), ORDERS, BuilderLimits(start=0, end=1)))
