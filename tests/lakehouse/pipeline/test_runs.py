"""Tables that are run: what becomes of good, bad, late and doubled records, and of stops."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import cast

import pytest
from pyspark.sql import SparkSession

from strandline.client.admin import Admin
from strandline.client.cluster import ClusterClient
from strandline.client.offsets import committed_offsets
from strandline.lakehouse.deadletters.listing import list_letters
from strandline.lakehouse.pipeline import patience, runner
from strandline.lakehouse.pipeline.batches import RunContext
from strandline.lakehouse.pipeline.errors import PipelineFailed
from strandline.lakehouse.pipeline.events import Committed, Event, Notice
from strandline.lakehouse.pipeline.log_facts import ask
from strandline.lakehouse.pipeline.options import RunOptions
from strandline.lakehouse.pipeline.query import Attempt
from strandline.lakehouse.pipeline.rounds import Rounds, RoundsQuery
from strandline.lakehouse.pipeline.runner import Runner, StopRequest
from strandline.lakehouse.pipeline.start_offsets import start_offsets
from strandline.lakehouse.tables.committing import CommitResult
from strandline.lakehouse.tables.definition import LATE
from strandline.lakehouse.tables.errors import FencedWriter
from strandline.lakehouse.tables.identity import BatchIdentity, group_of
from strandline.lakehouse.tables.maintenance import CompactionResult
from strandline.lakehouse.tables.store import TableStore, open_store
from strandline.lakehouse.tables.written import TaskWrite
from strandline.lakehouse.verify.report import Verdict
from strandline.testing import Cluster
from strandline.types import TopicPartition
from tests.faults.processes import until
from tests.lakehouse.conftest import KAFKA_CONNECTOR_JARS
from tests.lakehouse.pipeline.conftest import Stop, TableUnderTest
from tests.lakehouse.tables.table_world import TableWorld

MakeTable = Callable[..., TableUnderTest]
HOUR = 3_600_000


def at(hour: int) -> str:
    return f"2026-03-01T{hour:02d}:00:00Z"


def test_every_record_finds_its_place_once(make_table: MakeTable) -> None:
    """Good, late and poisoned records, and a schema that grows, over three runs with a checkpoint
    of its own each; a producer without idempotence sent one record twice, and both are rows."""
    table = make_table(
        partitions=2, event_time="at", watermark_ms=HOUR, columns={"n": "long"}, evolve=True
    )
    table.produce([(b"a", {"n": 1, "at": at(5)}), (b"a", {"n": 2, "at": at(6)})])
    table.produce([(b"b", {"n": 3, "at": at(6)})], partition=1)
    assert table.run().rows == 3

    twice = (b"a", {"n": 4, "at": at(7), "price": 1})
    table.produce([twice, twice, (b"a", b"{poison"), (b"a", {"n": "no number", "at": at(7)})])
    table.produce([(b"b", {"n": 5, "at": at(2)}), (b"b", {"n": 6, "at": at(7), "price": 1.5})], 1)
    table.run()
    [commit] = table.commits
    assert (commit.rows, commit.late_rows, commit.dead_letters) == (3, 1, 2)
    assert commit.lag is not None
    assert commit.lag.records == 0
    assert table.rows("n", "price") == [
        (1, None),
        (2, None),
        (4, 1.0),
        (4, 1.0),
        (3, None),
        (6, 1.5),
    ]
    assert table.store.dataset(LATE).to_table().column("n").to_pylist() == [5]
    assert [each.offset for each in list_letters(table.store)] == [4, 5]

    assert table.run().commits == 0
    report = table.verify()
    assert report.is_good, report
    assert report.total(Verdict.GOOD) == 9
    frontier = {TopicPartition(table.topic, 0): 6, TopicPartition(table.topic, 1): 3}
    published = committed_offsets(table.client, group_of("t"), frontier)
    assert {each: found.offset for each, found in published.items()} == frontier


def test_a_row_per_key(make_table: MakeTable) -> None:
    """Updates win by offset, tombstones delete, what has no key is a dead letter."""
    table = make_table(mode="upsert", buckets=2)
    table.produce([(b"a", {"n": 1}), (b"b", {"n": 2}), (b"c", {"n": 3}), (None, {"n": 4})])
    table.run()
    table.produce(
        [(b"a", {"n": 5}), (b"b", None), (b"d", {"n": 6}), (b"d", None), (b"a", {"n": 7})]
    )
    table.run()
    assert table.rows("kafka_key", "n") == [(b"c", 3), (b"a", 7)]
    report = table.verify()
    assert report.is_good, report
    assert report.total(Verdict.GOOD) == 2


def test_a_stop_comes_with_a_last_commit(make_table: MakeTable) -> None:
    """Records that wait for the next interval are committed when the run is asked to stop."""
    table = make_table()
    table.produce([(None, {"n": 1})])
    stop = Stop()

    def show(event: Event) -> None:
        if isinstance(event, Committed) and not stop.is_set:
            table.produce([(None, {"n": 2}), (None, {"n": 3})])
            stop.is_set = True

    stopped = table.run(stop, show, once=False, interval_ms=HOUR)
    assert (stopped.commits, stopped.rows) == (2, 3)
    assert table.rows("n") == [(1,), (2,), (3,)]


def test_of_two_runs_the_older_is_fenced(make_table: MakeTable) -> None:
    """A second run takes the table over; the first one's next commit is refused, loudly."""
    table = make_table()
    other = TableUnderTest(table.spark, table.client, table.bootstrap, table.spec, table.store)

    class TakenOver(TableStore):
        """Another run commits the second batch while this one has written it."""

        def commit(self, identity: BatchIdentity, writes: Sequence[TaskWrite]) -> CommitResult:
            if identity.batch_id == 1:
                other.run()
            return super().commit(identity, writes)

    def show(event: Event) -> None:
        if isinstance(event, Committed):
            table.produce([(None, {"n": 2})])

    table.produce([(None, {"n": 1})])
    with pytest.raises(FencedWriter, match="this one must stop"):
        table.run(None, show, store=TakenOver(table.spec), once=False, interval_ms=100)
    assert len(other.commits) == 1
    assert table.rows("n") == [(1,), (2,)]
    assert table.verify().is_good


def test_trouble_is_told_once_for_as_long_as_it_is_the_same(make_table: MakeTable) -> None:
    """A cluster that is not there is asked again and again, and then given up."""
    table = make_table()
    said = "not brought further: Cannot connect .* tried for 2.5 s; --patience"
    with pytest.raises(PipelineFailed, match=said):
        table.run(bootstrap="127.0.0.1:1", patience_s=2.5)
    [told] = table.told
    assert isinstance(told, Notice)
    assert re.search(r"Trying again until \d\d:\d\d:\d\d \(--patience 2.5 s\)", told.sentence)


class Trouble:
    """Queries of a run that has no Spark: how long each of them lasts before it fails."""

    def __init__(self, lasting_s: Sequence[float], stop: Stop) -> None:
        self.now_s = 0.0
        self.left = list(lasting_s)
        self._stop = stop

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def awaitTermination(self, timeout: float) -> bool:  # noqa: N802 -- Spark's name
        if not self.left:
            self._stop.is_set = True
            return False
        self.sleep(timeout)
        self.left[0] -= timeout
        if self.left[0] <= 0:
            del self.left[0]
            raise ConnectionError("A hiccup.")
        return False


@pytest.mark.parametrize(
    ("lasting_s", "has_everything", "ends"),
    [
        pytest.param([3600], True, True, id="one after a quiet hour"),
        pytest.param([3600, 3600, 3600], True, True, id="one an hour"),
        pytest.param([3600, 400], False, False, id="something is missing all the time"),
        pytest.param([1] * 400, True, False, id="no query lasts"),
    ],
)
def test_patience_counts_from_the_first_trouble_since_all_was_well(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    lasting_s: Sequence[float],
    has_everything: bool,
    ends: bool,
) -> None:
    stop = Stop()
    trouble = Trouble(lasting_s, stop)
    for each in (runner, patience):
        monkeypatch.setattr(each, "time", trouble)

    class Hiccups(Runner):
        def _one_query(self, stop: StopRequest, *, available_now: bool, is_last: bool) -> None:
            attempt = cast("Attempt", SimpleNamespace(batches=self._batches, is_busy=False))
            self._follow(cast("RoundsQuery", trouble), attempt, stop, is_last=False)

        _batches = SimpleNamespace(events=SimpleQueue(), commits=0)

        def _has_everything(self) -> bool:
            return has_everything or stop.is_set

    spec = TableWorld(tmp_path / "t").spec
    options = RunOptions(bootstrap="127.0.0.1:1", patience_s=300.0)
    context = RunContext(cast("SparkSession", None), spec, open_store(spec), options)
    run = Hiccups(context, lambda event: None, renew=lambda is_stuck: None)
    if ends:
        run.run(stop)
    else:
        with pytest.raises(PipelineFailed, match="not brought further: A hiccup"):
            run.run(stop)
        assert trouble.now_s > 300


def test_a_partition_that_is_added_as_a_query_begins_is_met_with_another(
    cluster: Cluster, client: ClusterClient, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """Of Spark Connect: between the run's look at the topics and that of its query."""
    topic = new_topic()
    spec = TableWorld.spec_in(tmp_path / "t", topics=(topic,))
    options = RunOptions(bootstrap=cluster.bootstrap_servers)
    store = open_store(spec, create=True)
    context = RunContext(cast("SparkSession", None), spec, store, options)
    begin = start_offsets({}, ask(context.reading, spec.topics, {}), accepts_loss=False)
    Admin(client).topics.add_partitions(topic, 2)
    query = Rounds(context, begin).start(available_now=True)
    with closing(query._planner), pytest.raises(PipelineFailed, match="partitions changed"):
        until(lambda: query.awaitTermination(0.1), "another look at the partitions", seconds=30)


def test_a_partition_is_added(make_table: MakeTable) -> None:
    table = make_table()
    table.produce([(None, {"n": 1})])
    table.run()
    Admin(table.client).topics.add_partitions(table.topic, 3)
    table.client.forget([table.topic])
    table.produce([(None, {"n": 2})], partition=2)
    table.run()
    assert table.rows("n") == [(1,), (2,)]
    assert table.verify().is_good


@pytest.mark.skipif(not KAFKA_CONNECTOR_JARS, reason="the jars of Spark's connector are not there")
def test_spark_s_own_connector_reads_the_topic(make_table: MakeTable) -> None:
    """One run with either engine: the table does not notice."""
    table = make_table(partitions=2)
    table.produce([(b"k", {"n": 1}), (b"k", {"n": 2})], partition=1)
    table.run(engine="kafka")
    assert all(each.topic_id for each in table.store.state().frontiers.values())
    table.produce([(b"k", {"n": 3})], partition=1)
    table.run(engine="strandline")
    table.produce([(b"k", {"n": 4})], partition=0)
    table.run(engine="kafka")
    assert table.rows("n") == [(4,), (1,), (2,), (3,)]
    assert table.verify().is_good


def test_a_run_vacuums_after_a_compaction(make_table: Callable[..., TableUnderTest]) -> None:
    table = make_table()
    table.produce([(None, {"n": 1})])
    table.run()
    [held] = table.store.files()
    old, young = held.path.local.with_name("old.parquet"), held.path.local.with_name("new.parquet")
    for path in (old, young):
        path.write_bytes(held.path.local.read_bytes())
    os.utime(old, (0, 0))
    table.produce([(None, {"n": 2})])
    table.run(compact_every=1, vacuum_ms=86_400_000)
    assert (old.exists(), young.exists()) == (False, True)
    said = [each.sentence for each in table.told if isinstance(each, Notice)]
    assert "Deleted 1 file that no reader needs." in said
    assert table.rows("n") == [(1,), (2,)]


def test_batches_are_committed_while_files_are_joined(
    make_table: Callable[..., TableUnderTest], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table()
    compact, stop = TableStore.compact, Stop()
    place = TopicPartition(table.topic, 0)

    def reached(offset: int) -> bool:
        frontier = open_store(table.spec).frontier(place)
        return frontier is not None and frontier.end >= offset

    def compact_at_leisure(store: TableStore, **_: int) -> CompactionResult:
        monkeypatch.undo()
        table.produce([(None, {"n": 3})])
        until(lambda: reached(3), "a commit beside the compaction", seconds=60)
        stop.is_set = True
        return compact(store, min_files=2)

    monkeypatch.setattr(TableStore, "compact", compact_at_leisure)
    table.produce([(None, {"n": 1})])
    table.run()
    table.produce([(None, {"n": 2})])
    table.run(stop, once=False, interval_ms=100, compact_every=2)
    said = [each.sentence for each in table.told if isinstance(each, Notice)]
    assert "Compacted 3 files into 1." in said
    assert table.rows("n") == [(1,), (2,), (3,)]
