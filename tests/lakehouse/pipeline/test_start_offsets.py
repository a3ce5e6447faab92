"""Where a run begins, and when it must not."""

from __future__ import annotations

from uuid import UUID

import pytest

from strandline.lakehouse.pipeline.errors import LogReplaced, RecordsLost
from strandline.lakehouse.pipeline.start_offsets import LogFacts, start_offsets
from strandline.lakehouse.tables.errors import TopicRecreated
from strandline.lakehouse.tables.identity import Frontier, OffsetRange
from strandline.types import TopicPartition

ID = UUID(int=7)
P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


def facts(
    earliest: dict[TopicPartition, int],
    *,
    end: int = 100,
    topic_id: UUID | None = ID,
    epoch_ends: dict[TopicPartition, int] | None = None,
) -> LogFacts:
    return LogFacts({"orders": topic_id}, earliest, dict.fromkeys(earliest, end), epoch_ends or {})


def reached(end: int, epoch: int = 3, topic_id: UUID = ID) -> Frontier:
    return Frontier(0, end, epoch, str(topic_id))


def test_a_new_table_begins_where_the_logs_begin() -> None:
    found = start_offsets({}, facts({P0: 0, P1: 40}), accepts_loss=False)
    assert (found.starts, found.lost) == ({P0: 0, P1: 40}, ())


def test_a_table_goes_on_at_its_frontier_and_takes_new_partitions_in() -> None:
    found = start_offsets({P0: reached(60)}, facts({P0: 10, P1: 0}), accepts_loss=False)
    assert (found.starts, found.lost) == ({P0: 60, P1: 0}, ())


def test_records_that_retention_took_first_are_told() -> None:
    with pytest.raises(RecordsLost, match=r"offsets 60 to 70 of orders-0.*--on-data-loss"):
        start_offsets({P0: reached(60)}, facts({P0: 70}), accepts_loss=False)
    found = start_offsets({P0: reached(60)}, facts({P0: 70}), accepts_loss=True)
    assert found.starts == {P0: 70}
    assert found.lost == (OffsetRange("orders", 0, 60, 70, topic_id=str(ID)),)


def test_a_partition_that_was_added_has_to_begin_at_its_first_record() -> None:
    with pytest.raises(RecordsLost, match="offsets 0 to 5 of orders-1"):
        start_offsets({P0: reached(60)}, facts({P0: 0, P1: 5}), accepts_loss=False)


def test_another_topic_of_the_same_name_is_refused() -> None:
    other = facts({P0: 0}, topic_id=UUID(int=8))
    for accepts_loss in (False, True):
        with pytest.raises(TopicRecreated, match="deleted and created again"):
            start_offsets({P0: reached(60)}, other, accepts_loss=accepts_loss)


def test_a_cluster_without_topic_ids_is_trusted() -> None:
    found = start_offsets({P0: reached(60)}, facts({P0: 0}, topic_id=None), accepts_loss=False)
    assert found.starts == {P0: 60}


def test_a_log_that_is_shorter_than_the_table_is_refused() -> None:
    with pytest.raises(LogReplaced, match="ends at offset 50"):
        start_offsets({P0: reached(60)}, facts({P0: 0}, end=50), accepts_loss=True)


def test_a_log_whose_end_was_written_anew_is_refused() -> None:
    with pytest.raises(LogReplaced, match="leaves leader epoch 3 at offset 55"):
        start_offsets({P0: reached(60)}, facts({P0: 0}, epoch_ends={P0: 55}), accepts_loss=True)
    same = start_offsets({P0: reached(60)}, facts({P0: 0}, epoch_ends={P0: 60}), accepts_loss=False)
    assert same.starts == {P0: 60}
