"""What a run is made of, without Spark: shares of offsets, and offsets that a group shows."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import SparkSession

from strandline.client.cluster import ClusterClient
from strandline.client.fetching import Isolation
from strandline.client.offsets import committed_offsets
from strandline.client.producer import Producer
from strandline.lakehouse.pipeline.batches import Batches, RunContext
from strandline.lakehouse.pipeline.events import Committed as CommittedEvent
from strandline.lakehouse.pipeline.events import Notice
from strandline.lakehouse.pipeline.lag import lag_of
from strandline.lakehouse.pipeline.offset_log import End
from strandline.lakehouse.pipeline.options import RunOptions
from strandline.lakehouse.pipeline.publishing import Publisher
from strandline.lakehouse.pipeline.start_offsets import LogFacts, StartOffsets
from strandline.lakehouse.pipeline.tasks import ROWS_PER_TASK, shares
from strandline.lakehouse.reading.ranges import OffsetRange
from strandline.lakehouse.rebuild.selection import batches, selection
from strandline.lakehouse.tables.committing import COMMITTED, NOTHING_NEW, CommitResult
from strandline.lakehouse.tables.identity import Frontier, group_of
from strandline.lakehouse.tables.identity import OffsetRange as Committed
from strandline.lakehouse.tables.store import open_store
from strandline.testing import Cluster
from strandline.types import Offset, TopicPartition
from tests.lakehouse.tables.table_world import TableWorld

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.mark.parametrize("most", [1, 2, 3, 8])
@pytest.mark.parametrize(
    "sizes", [(1,), (ROWS_PER_TASK * 5,), (10, ROWS_PER_TASK * 3 + 1, 7), (ROWS_PER_TASK,) * 4]
)
def test_shares_cover_everything_once(most: int, sizes: tuple[int, ...]) -> None:
    ranges = [
        OffsetRange(topic="orders", partition=number, start=100, end=100 + size)
        for number, size in enumerate(sizes)
    ]
    tasks = shares(ranges, most)
    assert 1 <= len(tasks) <= most
    for each in ranges:
        parts = [part for task in tasks for part in task if part.partition == each.partition]
        assert (parts[0].start, parts[-1].end) == (each.start, each.end)
        assert all(one.end == next_.start for one, next_ in pairwise(parts))
    counts = [sum(part.end - part.start for part in task) for task in tasks]
    assert max(counts) - min(counts) < max(2, len(tasks))


def test_a_rebuild_reads_what_the_table_holds_and_the_log_has() -> None:
    facts = LogFacts({"orders": None}, {P0: 30, P1: 0}, {P0: 100, P1: 100})
    frontiers = {P0: Frontier(0, 90), P1: Frontier(10, 50)}
    whole = (Committed("orders", 0, 30, 90), Committed("orders", 1, 10, 50))
    assert tuple(each._replace(leader_epoch=-1) for each in selection(frontiers, facts)) == whole
    assert [each[1:4] for each in selection(frontiers, facts, partitions=[1])] == [(1, 10, 50)]
    some = selection(frontiers, facts, since={P0: 40, P1: 60}, until={P0: 95, P1: 70})
    assert [each[1:4] for each in some] == [(0, 40, 90)]
    cut = batches(whole, 50)
    assert [[each[1:4] for each in batch] for batch in cut] == [
        [(0, 30, 55), (1, 10, 35)],
        [(0, 55, 80), (1, 35, 50)],
        [(0, 80, 90)],
    ]


def test_a_group_shows_what_is_committed(
    cluster: Cluster, client: ClusterClient, new_topic: Callable[..., str]
) -> None:
    here = TopicPartition(new_topic(), 0)
    with Producer(client) as producer:
        for number in range(5):
            producer.send(here.topic, b"%d" % number, partition=0)
    told: list[str] = []
    publisher = Publisher(cluster.bootstrap_servers, here.topic, told.append)
    assert publisher.publish({here: Offset(2)})
    assert publisher.publish({here: Offset(3)})
    publisher.close()
    assert committed_offsets(client, group_of(here.topic))[here].offset == 3
    lag = lag_of(client, {here: Offset(3)}, Isolation.READ_COMMITTED)
    assert (lag.records, lag.by_partition) == (2, {here: 2})
    assert lag.seconds is not None
    assert lag_of(client, {here: Offset(5)}, Isolation.READ_COMMITTED).seconds == 0.0
    assert told == []


def test_a_group_that_cannot_be_written_costs_one_sentence() -> None:
    told: list[str] = []
    publisher = Publisher("127.0.0.1:1", "orders", told.append, patience_ms=50)
    for offset in (2, 3):
        assert not publisher.publish({P0: Offset(offset)})
    publisher.close()
    [sentence] = told
    assert "strandline-table-orders" in sentence
    assert sentence.endswith("The table itself is not affected.")


def test_a_batch_that_another_run_has_committed_is_no_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was shown as one, of no row, with the number of the other run's."""
    spec = TableWorld.spec_in(tmp_path / "t")
    options = RunOptions(bootstrap="127.0.0.1:1")
    context = RunContext(cast("SparkSession", None), spec, open_store(spec, create=True), options)
    here = TopicPartition("orders", 0)
    rounds = Batches(context, StartOffsets({here: 0}))
    results = iter([CommitResult(NOTHING_NEW, 7, 7), CommitResult(COMMITTED, 8, 8, rows=1)])
    monkeypatch.setattr(
        "strandline.lakehouse.pipeline.batches.commit_batch", lambda *_: next(results)
    )
    rounds.commit(0, {here: End(2)}, context.spark)
    assert isinstance(told := rounds.events.get(), Notice)
    assert "committed meanwhile, by another run" in told.sentence
    rounds.commit(1, {here: End(3)}, context.spark)
    assert isinstance(rounds.events.get(), CommittedEvent)
    assert rounds.commits == 1
