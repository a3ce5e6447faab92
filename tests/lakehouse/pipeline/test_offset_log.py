"""The exact offsets of a micro-batch, out of what Spark keeps."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from strandline.lakehouse.pipeline.errors import PipelineFailed
from strandline.lakehouse.pipeline.offset_log import End, ends_of, parse_ends, ranges_between
from strandline.lakehouse.source.positions import Position, Positions
from strandline.lakehouse.tables.identity import OffsetRange
from strandline.types import TopicPartition

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
ID = UUID(int=7)


def test_documents_of_both_sources() -> None:
    import json

    ours = Positions({"orders": ID}, {P0: Position(12, 3), P1: Position(9, 1, 4)})
    assert parse_ends(json.dumps(ours.document())) == {
        P0: End(12, 3, str(ID)),
        P1: End(9, 1, str(ID), 4),
    }
    assert parse_ends('{"orders":{"1":9,"0":12}}') == {P0: End(12), P1: End(9)}


def test_what_lies_between() -> None:
    ends = {P0: End(12, 3, "id"), P1: End(9, 1, "id")}
    assert ranges_between({P0: 12}, ends) == (OffsetRange("orders", 1, 0, 9, 1, "id"),)
    assert ranges_between({P0: 2, P1: 9}, ends) == (OffsetRange("orders", 0, 2, 12, 3, "id"),)
    behind_a_loss = {P0: End(12, begin=8)}
    assert ranges_between({P0: 2}, behind_a_loss) == (OffsetRange("orders", 0, 8, 12),)


def test_the_file_of_a_batch(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    log = tmp_path / "offsets" / "4"
    log.write_text('v1\n{"batchWatermarkMs":0}\n{"orders":{"0":12}}')
    assert ends_of(tmp_path, 4) == {P0: End(12)}
    for wrong in ("v9\n{}\n{}", "v1\n{}\n{}\n{}", ""):
        log.write_text(wrong)
        with pytest.raises(PipelineFailed, match="offsets/4 is not what Spark"):
            ends_of(tmp_path, 4)
    with pytest.raises(PipelineFailed):
        ends_of(tmp_path, 5)
