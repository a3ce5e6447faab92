"""Batches of a stream into topics, each exactly once: a batch is one transaction (KIP-98).

    sink = TopicSink({"kafka.bootstrap.servers": "localhost:9092", "topic": "out",
                      "kafka.transactional.id": "delays-by-hour"})
    rows.writeStream.foreachBatch(sink).option("checkpointLocation", "...").start()

The driver begins the transaction, and tasks write in it under the driver's producer id. With the
records the transaction stores, as the offset of a consumer group that is called like the
transactional id, which batch it was. So readers of committed records see all of a batch or
nothing, and a batch that Spark runs again after a failure is recognised: it was committed, or it
was aborted.

Theory: brokers number the batches of a producer id in each partition. So the rows are exchanged
first, such that each partition is written by one task. A task or stage that Spark tries again does
not know which numbers are used up: the transaction is aborted then, and the batch begins anew under
the next epoch, which fences what is left of the tasks before. Tasks say themselves that they are
not the first attempt; what Spark did with stages is asked of its status tracker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from random import Random
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa
from pyspark import SparkContext, TaskContext

from strandline.client.admin_groups import GroupAdmin
from strandline.client.cluster import ClusterClient
from strandline.client.group_requests import Committed, Membership
from strandline.client.partitioner import partition_for_key
from strandline.client.producer import Producer
from strandline.client.transaction_state import Delegation
from strandline.errors import ErrorCode, InvalidSetting, ProtocolError
from strandline.lakehouse.sink.columns import Columns, OutgoingRecord
from strandline.lakehouse.sink.delivery import NotWritten, raise_failures
from strandline.lakehouse.sink.options import SinkOptions, parse_options
from strandline.types import Offset, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

ATTEMPTS: Final = 3
"""How often a batch is begun before its failure is the query's."""
_PLACED: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
_PLACED_SCHEMA: Final = (
    "topic string, partition int, key binary, value binary, "
    "headers array<struct<key: string, value: binary>>"
)
_FENCED: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})


class TopicSink:
    """Writes batches of a stream to topics, exactly once each. For `foreachBatch`.

    `options` are those of the format `strandline` for writing, and `kafka.transactional.id`, which
    names the query: the same in all of its runs, and in that of no other query;
    `kafka.transaction.timeout.ms` is how long a batch may take, in milliseconds (900000). For
    partition 0 of the topic `progress_topic`, by default that of the option `topic`, the number of
    the last batch is stored as an offset. Raises `InvalidSetting` for an option that is missing or
    wrong.

    Batches are numbered from 0 by the stream's checkpoint. A stream that begins anew, with another
    checkpoint, needs another transactional id: else its first batches count as written.
    """

    def __init__(self, options: Mapping[str, str], *, progress_topic: str | None = None) -> None:
        self._options = found = parse_options(options, in_transactions=True)
        if not found.producer.transactional_id:
            raise InvalidSetting(
                "kafka.transactional.id",
                "The option kafka.transactional.id is missing: it names the query in all its runs.",
            )
        if found.producer.acks != -1 or not found.producer.is_idempotent:
            raise InvalidSetting("kafka.acks", "Transactions need kafka.acks=all and idempotence.")
        topic = progress_topic or found.topic
        if topic is None:
            raise InvalidSetting(
                "progress_topic", "Name the option topic, or a progress_topic of your own."
            )
        self._id = found.producer.transactional_id
        self._progress = TopicPartition(topic, 0)

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        """Write a batch, unless it was written. Raises `NotWritten`, `UnusableRows`,
        `ProtocolError` (PRODUCER_FENCED: another driver with the transactional id has begun)."""
        columns = Columns.of(rows.schema, self._options.topic)
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self._write(rows, columns, batch_id)
            except Exception as error:
                # What failed in a task comes as an error of Spark's with the task's text in it.
                is_fenced = isinstance(error, ProtocolError) and error.code in _FENCED
                if is_fenced or attempt == ATTEMPTS:
                    raise
                log.warning("Batch %d begins anew: %s", batch_id, str(error).partition("\n")[0])
            else:
                return

    def last_batch(self) -> int | None:
        """The number of the last batch that is committed; None before the first. Raises
        `ProtocolError`."""
        with ClusterClient(self._options.bootstrap, self._options.client) as cluster:
            return self._last_batch(cluster)

    def _last_batch(self, cluster: ClusterClient) -> int | None:
        stored = GroupAdmin(cluster).offsets(self._id).get(self._progress)
        return None if stored is None else stored.offset - 1

    def _write(self, rows: DataFrame, columns: Columns, batch_id: int) -> None:
        with ClusterClient(self._options.bootstrap, self._options.client) as cluster:
            producer = Producer(cluster, self._options.producer)
            producer.init_transactions()  # ends what a run before has left open
            last = self._last_batch(cluster)
            if last is not None and batch_id <= last:
                log.info("Batch %d is written already: the last one is %d.", batch_id, last)
                # A query with a state writes that in the batch's own job, and Spark asks for it.
                rows.write.format("noop").mode("overwrite").save()
                return
            producer.begin()
            try:
                self._run(rows, columns, producer.delegate())
                progress = {self._progress: Committed(Offset(batch_id + 1))}
                producer.send_offsets(progress, Membership(self._id, None))
                producer.commit()
            finally:
                producer.abort_open()

    def _run(self, rows: DataFrame, columns: Columns, delegation: Delegation) -> None:
        placed = rows.mapInArrow(_placing(self._options, columns), _PLACED_SCHEMA)
        tasks = int(rows.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
        exchanged = placed.repartition(tasks, "topic", "partition")
        written = exchanged.mapInArrow(_writing(self._options, delegation), "records bigint")
        stages = _Stages(rows.sparkSession.sparkContext)
        written.collect()
        if stages.were_repeated():
            raise NotWritten("Spark ran a stage again: what its tasks wrote is not certain.")


class _Stages:
    """The stages that Spark runs for this thread from now on."""

    def __init__(self, context: SparkContext) -> None:
        self._tracker = context.statusTracker()
        self._group = context.getLocalProperty("spark.jobGroup.id")
        """A stream has one for all of its jobs, by which it is stopped."""
        self._before = self._jobs()

    def _jobs(self) -> set[int]:
        return set(self._tracker.getJobIdsForGroup(self._group))

    def were_repeated(self) -> bool:
        """Whether any of them had more than one attempt."""
        jobs = map(self._tracker.getJobInfo, self._jobs() - self._before)
        stages = (stage for job in jobs if job is not None for stage in job.stageIds)
        infos = map(self._tracker.getStageInfo, stages)
        return any(info is not None and info.currentAttemptId > 0 for info in infos)


_Task: TypeAlias = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def _placing(options: SinkOptions, columns: Columns) -> _Task:
    """Rows with the partition that each is for."""

    def place(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with ClusterClient(options.bootstrap, options.client) as cluster:
            choose = _Choice(cluster, may_create=options.producer.may_create_topics)
            for batch in batches:
                choose.next_batch()
                placed = [choose.placed(record) for record in columns.records(batch)]
                yield pa.RecordBatch.from_pylist(placed, _PLACED)

    return place


class _Choice:
    """The partitions of records, as a producer chooses them."""

    def __init__(self, cluster: ClusterClient, *, may_create: bool) -> None:
        self._cluster = cluster
        self._may_create = may_create
        self._counts: dict[str, int] = {}
        self._random = Random()  # noqa: S311 -- spreads records without keys
        self._drawn = 0

    def next_batch(self) -> None:
        """Records without a key go to another partition from here on."""
        self._drawn = self._random.getrandbits(30)

    def placed(self, record: OutgoingRecord) -> dict[str, Any]:
        """A row of `_PLACED`. Raises `ProtocolError` for a topic that is not there."""
        topic, key, value, partition, headers = record
        if partition is None:
            count = self._counts.get(topic)
            if count is None:
                found = self._cluster.topic(topic, may_create=self._may_create)
                count = self._counts[topic] = len(found.partitions)
            partition = self._drawn % count if key is None else partition_for_key(key, count)
        pairs = [{"key": name, "value": content} for name, content in headers]
        return {
            "topic": topic,
            "partition": partition,
            "key": key,
            "value": value,
            "headers": pairs,
        }


def _writing(options: SinkOptions, delegation: Delegation) -> _Task:
    """Rows of `_PLACED` into their partitions; yields how many they were."""
    columns = Columns(None, frozenset(_PLACED.names))

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        _refuse_to_repeat()
        count = 0
        with ClusterClient(options.bootstrap, options.client) as cluster:
            producer = Producer(cluster, options.producer)
            producer.join(delegation)
            for batch in batches:
                for topic, key, value, partition, headers in columns.records(batch):
                    producer.send(topic, value, key=key, headers=headers, partition=partition)
                raise_failures(producer.flush())
                count += batch.num_rows
        yield pa.RecordBatch.from_pydict({"records": [count]}, pa.schema([("records", pa.int64())]))

    return write


def _refuse_to_repeat() -> None:
    """A task that is tried again does not know what the one before it has written."""
    context = TaskContext.get()
    if context is not None and context.attemptNumber() > 0:
        raise NotWritten("A task was lost: its transaction is aborted, and the batch begins anew.")
