"""A batch of a stream is one transaction: all of it is there once, or nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from strandline.client.cluster import ClusterClient
from strandline.client.consumer import Consumer
from strandline.client.fetching import FetchSettings, Isolation
from strandline.client.partitioner import partition_for_key
from strandline.client.start import Start
from strandline.client.transaction_state import Delegation
from strandline.errors import InvalidSetting, ProtocolError
from strandline.lakehouse.sink import transactional
from strandline.lakehouse.sink.options import SinkOptions
from strandline.lakehouse.sink.transactional import TopicSink
from strandline.testing import Cluster
from strandline.types import TopicPartition

NewTopic = Callable[..., str]
PARTITIONS = 3
Read = Callable[..., list[list[bytes]]]


@pytest.fixture
def topic(new_topic: NewTopic) -> str:
    return new_topic(partitions=PARTITIONS)


@pytest.fixture
def read(client: ClusterClient, topic: str) -> Read:
    """The values in the topic, by partition; without `committed`, also those of no use."""

    def values(*, committed: bool = True) -> list[list[bytes]]:
        level = Isolation.READ_COMMITTED if committed else Isolation.READ_UNCOMMITTED
        consumer = Consumer(client, FetchSettings(isolation=level))
        found: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        consumer.assign({TopicPartition(topic, n): Start.earliest() for n in range(PARTITIONS)})
        ends = consumer.end_offsets()
        while any(consumer.positions[each] < end for each, end in ends.items()):
            for fetched in consumer.poll(1000):
                found[fetched.topic_partition.partition] += [
                    record.value or b"" for record in fetched.records
                ]
        return found

    return values


@pytest.fixture
def sink(cluster: Cluster, topic: str) -> TopicSink:
    return TopicSink(options(cluster, topic))


def options(cluster: Cluster, topic: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": cluster.bootstrap_servers,
        "topic": topic,
        "kafka.transactional.id": f"query-{topic}",
    }


def numbered(spark: SparkSession, numbers: range) -> DataFrame:
    return spark.range(numbers.start, numbers.stop, numPartitions=2).selectExpr(
        "cast(id as string) key", "cast(id as string) value"
    )


def flat(values: list[list[bytes]]) -> list[bytes]:
    return sorted(chain.from_iterable(values))


def every(numbers: Iterable[int]) -> list[bytes]:
    return sorted(b"%d" % each for each in numbers)


def test_a_batch_is_written_once_however_often_it_is_run(
    spark: SparkSession, sink: TopicSink, read: Read
) -> None:
    assert sink.last_batch() is None
    sink(numbered(spark, range(100)), 0)
    sink(numbered(spark, range(100, 200)), 1)
    for batch_id in (1, 0):
        sink(numbered(spark, range(100, 200)), batch_id)
    found = read()
    assert flat(found) == every(range(200))
    assert sink.last_batch() == 1
    for partition, values in enumerate(found):
        assert {partition_for_key(value, PARTITIONS) for value in values} == {partition}


def test_a_batch_that_fails_leaves_nothing_for_readers_of_committed_records(
    spark: SparkSession, sink: TopicSink, read: Read
) -> None:
    def fails_late(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        raise ValueError("a row that cannot be computed")

    rows = numbered(spark, range(50))
    with pytest.raises(Exception, match="a row that cannot be computed"):
        sink(rows.mapInArrow(fails_late, rows.schema), 0)
    assert sink.last_batch() is None
    sink(rows, 0)
    assert flat(read()) == every(range(50))


def test_a_task_that_is_run_again_begins_the_batch_anew(
    spark: SparkSession,
    sink: TopicSink,
    read: Read,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first one dies behind its records, before Spark hears of them."""
    once, writing = tmp_path / "died", transactional._writing

    def dying(options: SinkOptions, delegation: Delegation) -> transactional._Task:
        write = writing(options, delegation)

        def write_and_die(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            results = list(write(batches))
            if not once.exists():
                once.touch()
                os._exit(1)
            yield from results

        return write_and_die

    monkeypatch.setattr(transactional, "_writing", dying)
    sink(numbered(spark, range(50)), 0)
    assert once.exists()
    assert flat(read()) == every(range(50))
    assert len(flat(read(committed=False))) > 50


def test_another_driver_with_the_id_takes_over(
    spark: SparkSession,
    cluster: Cluster,
    topic: str,
    sink: TopicSink,
    read: Read,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    overtaken: list[int] = []
    other = TopicSink(options(cluster, topic))
    first = TopicSink(options(cluster, topic))
    run = first._run

    def run_and_lose(*words: Any) -> None:
        run(*words)
        other(numbered(spark, range(100, 120)), 7)
        overtaken.append(1)

    monkeypatch.setattr(first, "_run", run_and_lose)
    with pytest.raises(ProtocolError, match=r"FENCED|fence|another"):
        first(numbered(spark, range(20)), 7)
    assert overtaken == [1]
    assert flat(read()) == every(range(100, 120))


def test_a_stream_goes_on_where_it_was(
    spark: SparkSession, sink: TopicSink, read: Read, tmp_path: Path
) -> None:
    """Also one with a state, which Spark wants to be written in a batch that is left alone."""
    source, checkpoint = tmp_path / "rows", tmp_path / "checkpoint"

    def run() -> None:
        (
            spark.readStream.schema("value string")
            .text(str(source))
            .dropDuplicates(["value"])
            .writeStream.foreachBatch(sink)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
            .awaitTermination()
        )

    source.mkdir()
    for batch_id, values in enumerate((range(30), range(30, 60))):
        (source / f"{batch_id}.txt").write_text("\n".join(map(str, values)))
        run()
        # As when the driver died before Spark had noted that the batch was done.
        (checkpoint / "commits" / str(batch_id)).unlink()
        (checkpoint / "commits" / f".{batch_id}.crc").unlink(missing_ok=True)
        run()
    assert flat(read()) == every(range(60))
    assert sink.last_batch() == 1


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"kafka.transactional.id": ""}, "names the query in all its runs"),
        ({"topic": ""}, "progress_topic"),
        ({"kafka.acks": "1"}, "acks=all"),
    ],
)
def test_what_transactions_need_is_asked_for(
    cluster: Cluster, topic: str, changes: dict[str, str], says: str
) -> None:
    with pytest.raises(InvalidSetting, match=says):
        TopicSink(options(cluster, topic) | changes)
