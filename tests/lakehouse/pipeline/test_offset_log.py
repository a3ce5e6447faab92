"""The exact offsets of a micro-batch, out of what Spark keeps."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from strandline.lakehouse.pipeline.errors import PipelineFailed
from strandline.lakehouse.pipeline.offset_log import (
    End,
    ends_at,
    ends_of,
    parse_ends,
    ranges_between,
)
from strandline.lakehouse.pipeline.start_offsets import LogFacts, start_offsets
from strandline.lakehouse.source.positions import Position, Positions
from strandline.lakehouse.tables.errors import TopicRecreated
from strandline.lakehouse.tables.identity import BatchIdentity, Frontier, OffsetRange
from strandline.types import TopicPartition
from tests.lakehouse.tables.table_world import TOPIC, TableWorld

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
    assert ranges_between({P0: 2}, ends) == (
        OffsetRange("orders", 0, 2, 12, 3, "id"),
        OffsetRange("orders", 1, 0, 9, 1, "id"),
    )
    behind_a_loss = {P0: End(12, begin=8)}
    assert ranges_between({P0: 2}, behind_a_loss) == (OffsetRange("orders", 0, 8, 12),)


def test_what_sparks_connector_has_read_is_of_the_topic_that_the_run_began_with(
    tmp_path: Path,
) -> None:
    """Its offsets have no id: a topic that was made anew went on in the table, at its offsets."""
    place, world = TopicPartition(TOPIC, 0), TableWorld(tmp_path)

    def facts(topic_id: UUID) -> LogFacts:
        return LogFacts({TOPIC: topic_id}, {place: 0}, {place: 9})

    begin = start_offsets({}, facts(ID), accepts_loss=False)
    ends = parse_ends(f'{{"{TOPIC}": {{"0": 1}}}}')
    ranges = ranges_between(begin.starts, ends, begin.topic_ids)
    world.store.commit(BatchIdentity("q", 0, ranges), [world.task([{"n": 1}])])
    frontiers = world.reopen().state().frontiers
    assert start_offsets(frontiers, facts(ID), accepts_loss=False).starts == {place: 1}
    with pytest.raises(TopicRecreated, match="deleted and created again"):
        start_offsets(frontiers, facts(UUID(int=8)), accepts_loss=False)


def test_a_partition_without_records_is_noted_beside_others_if_it_begins_behind_0() -> None:
    ends = {P1: End(9, 1, "id"), P0: End(12, 3, "id")}
    assert ranges_between({P0: 2, P1: 9}, ends) == (
        OffsetRange("orders", 0, 2, 12, 3, "id"),
        OffsetRange("orders", 1, 9, 9, 1, "id"),
    )
    assert ranges_between({P0: 12, P1: 9}, ends) == (), "a batch needs records"
    empty = {P0: End(12), P1: End(0)}
    assert ranges_between({P0: 2, P1: 0}, empty) == (OffsetRange("orders", 0, 2, 12),)


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_where_a_trimmed_partition_begins_is_in_the_table_once(
    tmp_path: Path, table_format: str
) -> None:
    world = TableWorld(tmp_path, format=table_format)
    first, second = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
    starts = {first: 0, second: 3}
    for batch_id in (0, 1):
        ranges = ranges_between(starts, {first: End(batch_id + 1), second: End(3)})
        written = world.task([{"n": batch_id}], start=batch_id)
        committed = world.store.commit(BatchIdentity("q", batch_id, ranges), [written])
        expected = [(0, batch_id, batch_id + 1)] + [(1, 3, 3)] * (batch_id == 0)
        assert [each[1:4] for each in committed.ranges] == expected
        starts[first] = batch_id + 1
    frontiers = world.reopen().state().frontiers
    assert frontiers == {first: Frontier(0, 2), second: Frontier(3, 3)}
    facts = LogFacts({TOPIC: None}, {first: 0, second: 3}, {first: 2, second: 3})
    begin = start_offsets(frontiers, facts, accepts_loss=False)
    assert (begin.starts, begin.has_work) == ({first: 2, second: 3}, False)


def test_a_partition_that_was_added_is_read_once() -> None:
    """Its position says from where it was read until there is something new in it."""
    positions = Positions({"orders": ID}, {P0: Position(13, 3), P1: Position(9, 1, 0)})
    assert [each[1:4] for each in ranges_between({P0: 12}, ends_at(positions))] == [
        (0, 12, 13),
        (1, 0, 9),
    ]
    again = ranges_between({P0: 12, P1: 9}, ends_at(positions))
    assert [each[1:4] for each in again if each.start < each.end] == [(0, 12, 13)]


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
