"""Logs that have gaps by right: what compaction took, and what transactions took back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from strandline.client.cluster import ClusterClient
from strandline.client.inspection import inspect_all
from strandline.lakehouse.tables.definition import TableSpec
from strandline.lakehouse.tables.spec import save_spec
from strandline.lakehouse.tables.store import open_store
from strandline.lakehouse.verify.report import Verdict
from strandline.records.builder import build_batch, build_control_batch
from strandline.records.control import ControlType, EndTransactionMarker
from strandline.records.record import Record
from strandline.testing import Cluster
from strandline.types import LeaderEpoch, Offset, ProducerEpoch, ProducerId
from tests.lakehouse.pipeline.conftest import TableUnderTest, make_table

__all__ = ["make_table"]

MakeTable = Callable[..., TableUnderTest]
PATIENCE_S = 240.0
NOW_MS = 1_790_000_000_000


def compact(client: ClusterClient, topic: str) -> None:
    """Now, and all of it."""
    inspect_all(client, "compact", topic=topic, begin=True)
    until = time.monotonic() + PATIENCE_S
    while True:
        found = inspect_all(client, "compact", topic=topic)
        replicas = [each for document in found.values() for each in document["partitions"]]
        if all(each["last_round"] and each["state"] == "idle" for each in replicas):
            return
        assert time.monotonic() < until, replicas
        time.sleep(0.05)


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_compacted_topic(make_table: MakeTable, mode: str) -> None:
    """Of what the log dropped, the table has what it read before, once; the rest it never saw."""
    table = make_table(mode=mode, configs={"cleanup_policy": "compact"}, columns={"n": "long"})
    table.produce([(b"a", {"n": 0}), (b"b", {"n": 1}), (b"a", {"n": 2}), (b"d", {"n": 3})])
    table.run()
    table.produce([(b"a", {"n": 4}), (b"b", {"n": 5}), (b"c", {"n": 6}), (b"a", {"n": 7})])
    table.produce([(b"d", None)])
    compact(table.client, table.topic)
    table.run()
    if mode == "upsert":
        assert table.rows("n") == [(5,), (6,), (7,)]
        report = table.verify()
        assert report.is_good, report
        assert (report.total(Verdict.GOOD), report.total(Verdict.COMPACTED)) == (3, 0)
        return
    assert table.rows("n") == [(each,) for each in (0, 1, 2, 3, 5, 6, 7, None)]
    report = table.verify()
    assert report.is_good, report
    assert (report.total(Verdict.GOOD), report.total(Verdict.COMPACTED)) == (4, 4)
    assert "4 records were compacted away in the log since they came." in report.sentences()

    delta = DeltaTable(str(table.spec.directory()))
    again = delta.to_pyarrow_dataset().to_table().sort_by("kafka_offset").slice(2, 1)
    delta.delete("kafka_offset = 5")
    write_deltalake(str(table.spec.directory()), again, mode="append")
    found = {(each.offset, each.verdict) for each in table.verify().examples}
    assert found == {(2, Verdict.DOUBLED), (5, Verdict.MISSING)}


# -- Transactions --------------------------------------------------------------------------------


def transactional(first: int, producer: int, *values: int) -> bytes:
    """A batch of one transaction; the second of a producer follows its first."""
    return build_batch(
        [Record(timestamp=NOW_MS, key=None, value=b'{"n": %d}' % each) for each in values],
        base_offset=Offset(first),
        leader_epoch=LeaderEpoch(0),
        producer_id=ProducerId(producer),
        producer_epoch=ProducerEpoch(0),
        base_sequence=0,
        is_transactional=True,
    )


def marker(offset: int, producer: int, kind: ControlType) -> bytes:
    return build_control_batch(
        EndTransactionMarker(kind, 0),
        timestamp=NOW_MS,
        base_offset=Offset(offset),
        leader_epoch=LeaderEpoch(0),
        producer_id=ProducerId(producer),
        producer_epoch=ProducerEpoch(0),
    )


@contextmanager
def log_taken_over(cluster: Cluster, topic: str, batches: list[bytes]) -> Iterator[ClusterClient]:
    """The broker finds these batches in its log at a start, as it would those of a Kafka broker."""
    cluster.kill()
    (log,) = Path(cluster.data_dir).rglob(f"{topic}-0/00000000000000000000.log")
    log.write_bytes(b"".join(batches))
    cluster.start()
    cluster.wait_for_leader(topic)
    with ClusterClient(cluster.bootstrap_servers) as client:
        yield client


def test_what_transactions_took_back(
    spark: SparkSession, strandline_broker: Cluster, tmp_path: Path
) -> None:
    """An aborted record is no row and is not missed; one of an open transaction is not read yet."""
    strandline_broker.create_topic("paid")
    batches = [
        transactional(0, 7, 0, 1),
        transactional(2, 8, 2),
        marker(3, 7, ControlType.ABORT),
        marker(4, 8, ControlType.COMMIT),
        transactional(5, 9, 5),
    ]
    with log_taken_over(strandline_broker, "paid", batches) as client:
        tables = {}
        for isolation in ("read_committed", "read_uncommitted"):
            spec = TableSpec(
                name=isolation,
                topics=("paid",),
                location=str(tmp_path / isolation),
                isolation=isolation,
                columns={"n": "long"},
            )
            save_spec(spec)
            bootstrap = strandline_broker.bootstrap_servers
            store = open_store(spec, create=True)
            tables[isolation] = TableUnderTest(spark, client, bootstrap, spec, store)
        committed, uncommitted = tables.values()
        committed.run()
        uncommitted.run()
        assert committed.rows("n") == [(2,)]
        assert uncommitted.rows("n") == [(0,), (1,), (2,), (5,)]
        for table, end, rows in ((committed, 5, 1), (uncommitted, 6, 4)):
            report = table.verify()
            assert report.is_good, report
            assert report.total(Verdict.GOOD) == rows
            [partition] = report.partitions.values()
            assert (partition.start, partition.end) == (0, end), "an open transaction is not read"

        # What was taken back must not be a row either.
        aborted = DeltaTable(str(uncommitted.spec.directory())).to_pyarrow_dataset().to_table()
        write_deltalake(
            str(committed.spec.directory()), aborted.sort_by("n").slice(0, 1), mode="append"
        )
        [found] = committed.verify().examples
        assert (found.offset, found.verdict) == (0, Verdict.UNEXPLAINED)
