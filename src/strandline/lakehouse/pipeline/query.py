"""One streaming query: Spark finds and remembers offsets, each batch of them becomes one commit.

The query has a checkpoint of its own that goes with it: what outlives a run is in the table alone
(`beginning.py`). Spark calls `on_batch` in a thread of its own; what happened there is handed over
in a queue, and an error is kept as it was raised, since Spark would only pass on its text.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue
from uuid import UUID, uuid4

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from strandline.client.clock import SystemClock
from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.pipeline import offset_log
from strandline.lakehouse.pipeline.batch import commit_batch
from strandline.lakehouse.pipeline.events import Committed, Event, Notice
from strandline.lakehouse.pipeline.options import RunOptions, starting_offsets
from strandline.lakehouse.pipeline.start_offsets import StartOffsets
from strandline.lakehouse.pipeline.target import Target
from strandline.lakehouse.pipeline.tasks import write_ranges, write_rows
from strandline.lakehouse.reading.ranges import OffsetRange as ReadRange
from strandline.lakehouse.reading.settings import ReadSettings
from strandline.lakehouse.scratch_directory import OF_QUERIES, ScratchDirectory
from strandline.lakehouse.tables.committing import NOTHING_NEW, CommitResult
from strandline.lakehouse.tables.definition import TableSpec
from strandline.lakehouse.tables.identity import BatchIdentity, OffsetRange
from strandline.lakehouse.tables.store import TableStore
from strandline.lakehouse.tables.written import TaskWrite
from strandline.lakehouse.transforming.given import Transform
from strandline.lakehouse.transforming.writing import Passage
from strandline.types import TopicPartition


@dataclass(frozen=True, slots=True)
class RunContext:
    """What a run works with: a Spark session, a table's definition and store, options."""

    spark: SparkSession
    spec: TableSpec
    store: TableStore
    options: RunOptions
    transform: Transform | None = None
    """What rows go through on their way to the table."""

    @property
    def reading(self) -> ReadSettings:
        """How tasks read the topics."""
        return self.options.read_settings(self.spec)


@dataclass(slots=True)
class Attempt:
    """See the module. `start` it once; `close` removes the checkpoint."""

    context: RunContext
    begin: StartOffsets
    events: SimpleQueue[Event] = field(default_factory=SimpleQueue)
    failure: Exception | None = None
    """What ended the query, if it came out of `on_batch`."""
    is_busy: bool = False
    """A batch is being written or committed."""
    commits: int = 0
    query_id: str = field(default_factory=lambda: str(uuid4()))
    _starts: dict[TopicPartition, int] = field(init=False)
    _checkpoint: ScratchDirectory = field(default_factory=partial(ScratchDirectory, OF_QUERIES))

    def __post_init__(self) -> None:
        self._starts = dict(self.begin.starts)

    def start(self, *, available_now: bool) -> StreamingQuery:
        """Begin: with all that is there now, or for ever, a commit per interval."""
        options = self.context.options
        writer = self._rows().writeStream.foreachBatch(self._on_batch)
        writer = writer.option("checkpointLocation", Location.parse(self._checkpoint.path).spark)
        writer = writer.queryName(f"{self.context.spec.name}-{self.query_id[:8]}")
        return _triggered(writer, options.interval_ms, available_now=available_now).start()

    def close(self) -> None:
        """After the query has ended."""
        self._checkpoint.close()

    def _rows(self) -> DataFrame:
        options = self.context.options
        config = options.config
        reader = self.context.spark.readStream.format(options.engine)
        for name, value in {
            "kafka.bootstrap.servers": options.bootstrap,
            "subscribe": ",".join(self.context.spec.topics),
            "startingOffsets": starting_offsets(self.begin.starts),
            "maxOffsetsPerTrigger": str(options.rows_per_commit),
            "kafka.isolation.level": self.context.spec.isolation,
            "failOnDataLoss": "true",
            "includeHeaders": "true",
            **(config.java_options() if options.engine == "kafka" else config.spark_options()),
        }.items():
            reader = reader.option(name, value)
        return reader.load()

    def _on_batch(self, rows: DataFrame, batch_id: int) -> None:
        self.is_busy = True
        try:
            self._commit(rows, batch_id)
        except Exception as error:
            self.failure = error
            raise
        finally:
            self.is_busy = False

    def _commit(self, rows: DataFrame, batch_id: int) -> None:
        began = time.monotonic()
        context = self.context
        ends = offset_log.ends_of(self._checkpoint.path, batch_id)
        ranges = offset_log.ranges_between(self._starts, ends)
        if ranges:
            through = "" if context.transform is None else context.transform.label
            identity = BatchIdentity(self.query_id, batch_id, ranges, through=through)
            result = commit_batch(
                context.spec,
                context.store,
                identity,
                lambda target: self._write(rows, ranges, target),
            )
            self.events.put(committed_event(result, (), time.monotonic() - began))
            if result.outcome != NOTHING_NEW:
                self.commits += 1
            self._maybe_compact(result.sequence)
        self._starts.update({partition: end.offset for partition, end in ends.items()})

    def _write(
        self, rows: DataFrame, ranges: Sequence[OffsetRange], target: Target
    ) -> Sequence[TaskWrite]:
        context = self.context

        def write(target: Target) -> Sequence[TaskWrite]:
            if context.options.engine == "strandline":
                wanted = list(map(to_read, ranges))
                return write_ranges(context.spark, wanted, context.reading, target)
            return write_rows(rows, target)

        if context.transform is None:
            return write(target)
        # The stream's own session: what a select calls `batch` is so for this query alone.
        passage = Passage(rows.sparkSession, context.spec, context.transform)
        return passage.writer(write)(target)

    def _maybe_compact(self, sequence: int) -> None:
        every = self.context.options.compact_every
        if every and sequence % every == 0:
            done = self.context.store.compact()
            self.events.put(Notice(f"Compacted {done.files_before} files into {done.files_after}."))
            self._maybe_vacuum()

    def _maybe_vacuum(self) -> None:
        older_than_ms = self.context.options.vacuum_ms
        if older_than_ms is not None:
            now_ms = SystemClock().wall_ms()
            gone = self.context.store.vacuum(now_ms=now_ms, older_than_ms=older_than_ms)
            files = "1 file" if len(gone) == 1 else f"{len(gone):,} files"
            self.events.put(Notice(f"Deleted {files} that no reader needs."))


def committed_event(
    result: CommitResult, lost: tuple[OffsetRange, ...], seconds: float
) -> Committed:
    """A commit as an event."""
    return Committed(
        sequence=result.sequence,
        version=result.version,
        rows=result.rows,
        late_rows=result.late_rows,
        dead_letters=result.dead_letters,
        dropped=result.dropped,
        ranges=tuple(result.ranges),
        lost=lost,
        seconds=seconds,
    )


def to_read(each: OffsetRange) -> ReadRange:
    """A committed range as the reader takes it: it refuses another incarnation of the topic."""
    topic_id = UUID(each.topic_id) if each.topic_id else None
    return ReadRange(
        topic=each.topic,
        partition=each.partition,
        start=each.start,
        end=each.end,
        topic_id=topic_id,
        leader_epoch=each.leader_epoch,
    )


def _triggered(
    writer: DataStreamWriter, interval_ms: int, *, available_now: bool
) -> DataStreamWriter:
    if available_now:
        return writer.trigger(availableNow=True)
    return writer.trigger(processingTime=f"{interval_ms} milliseconds")
