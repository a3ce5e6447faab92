"""The batches of one query: of the offsets of each becomes one commit.

This file must not know how a query finds offsets: `query` has Spark's streams do it, `rounds` does
it itself.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Final
from uuid import UUID, uuid4

from pyspark.sql import DataFrame, SparkSession

from strandline.lakehouse.pipeline import offset_log
from strandline.lakehouse.pipeline.batch import commit_batch
from strandline.lakehouse.pipeline.events import Committed, Event, Notice
from strandline.lakehouse.pipeline.options import RunOptions, starting_offsets
from strandline.lakehouse.pipeline.start_offsets import StartOffsets
from strandline.lakehouse.pipeline.target import Target
from strandline.lakehouse.pipeline.tasks import write_ranges, write_rows
from strandline.lakehouse.reading.ranges import OffsetRange as ReadRange
from strandline.lakehouse.reading.settings import ReadSettings
from strandline.lakehouse.tables.committing import NOTHING_NEW, CommitResult
from strandline.lakehouse.tables.definition import TableSpec
from strandline.lakehouse.tables.identity import BatchIdentity, OffsetRange
from strandline.lakehouse.tables.store import TableStore
from strandline.lakehouse.tables.written import TaskWrite
from strandline.lakehouse.transforming.given import Transform
from strandline.lakehouse.transforming.utc_session import in_utc
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

    def source_options(self, begin: StartOffsets) -> dict[str, str]:
        """What a source is told that reads the topics from there on."""
        options, config = self.options, self.options.config
        is_java = options.engine == "kafka"
        return {
            "kafka.bootstrap.servers": options.bootstrap,
            "subscribe": ",".join(self.spec.topics),
            "startingOffsets": starting_offsets(begin.starts),
            "maxOffsetsPerTrigger": str(options.rows_per_commit),
            "kafka.isolation.level": self.spec.isolation,
            "failOnDataLoss": "true",
            "includeHeaders": "true",
            **(config.java_options() if is_java else config.spark_options()),
        }


_NOTHING_NEW: Final = (
    "Nothing of a batch was new: its records were committed meanwhile, by another run of the table "
    "or an attempt before."
)


@dataclass(slots=True)
class Batches:
    """See the module. `events` are for the thread of the run; commits may be made in another."""

    context: RunContext
    begin: StartOffsets
    events: SimpleQueue[Event] = field(default_factory=SimpleQueue)
    commits: int = 0
    query_id: str = field(default_factory=lambda: str(uuid4()))
    _starts: dict[TopicPartition, int] = field(init=False)

    def __post_init__(self) -> None:
        self._starts = dict(self.begin.starts)

    def commit(
        self,
        batch_id: int,
        ends: Mapping[TopicPartition, offset_log.End],
        session: SparkSession,
        rows: DataFrame | None = None,
    ) -> None:
        """Write what lies before `ends`, and commit it, if it is anything.

        Tasks of `session` read it from the brokers, unless Spark has read the `rows`.
        """
        began = time.monotonic()
        context = self.context
        ranges = offset_log.ranges_between(self._starts, ends, self.begin.topic_ids)
        if ranges:
            through = "" if context.transform is None else context.transform.label
            identity = BatchIdentity(self.query_id, batch_id, ranges, through=through)
            result = commit_batch(
                context.spec,
                context.store,
                identity,
                lambda target: self._write(session, rows, ranges, target),
            )
            if result.outcome == NOTHING_NEW:
                self.events.put(Notice(_NOTHING_NEW))
            else:
                self.events.put(committed_event(result, (), time.monotonic() - began))
                self.commits += 1
        self._starts.update({partition: end.offset for partition, end in ends.items()})

    def _write(
        self,
        session: SparkSession,
        rows: DataFrame | None,
        ranges: Sequence[OffsetRange],
        target: Target,
    ) -> Sequence[TaskWrite]:
        context = self.context

        def write(target: Target) -> Sequence[TaskWrite]:
            if rows is not None:
                return write_rows(rows, target)
            wanted = list(map(to_read, ranges))
            return write_ranges(context.spark, wanted, context.reading, target)

        if context.transform is None:
            return write(target)
        # A stream's own session: what a select calls `batch` is so for this query alone.
        return Passage(in_utc(session), context.spec, context.transform).writer(write)(target)


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
