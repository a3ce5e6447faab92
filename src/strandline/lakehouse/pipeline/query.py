"""One streaming query: Spark finds and remembers offsets, each batch of them becomes one commit.

The query has a checkpoint of its own that goes with it: what outlives a run is in the table alone
(`beginning.py`). Spark calls `on_batch` in a thread of its own; what happened there is handed over
in a queue, and an error is kept as it was raised, since Spark would only pass on its text.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.pipeline import offset_log
from strandline.lakehouse.pipeline.batches import Batches, RunContext
from strandline.lakehouse.pipeline.start_offsets import StartOffsets
from strandline.lakehouse.scratch_directory import OF_QUERIES, ScratchDirectory


@dataclass(slots=True)
class Attempt:
    """See the module. `start` it once; `close` removes the checkpoint."""

    context: RunContext
    begin: StartOffsets
    failure: Exception | None = None
    """What ended the query, if it came out of `on_batch`."""
    is_busy: bool = False
    """A batch is being written or committed."""
    batches: Batches = field(init=False)
    _checkpoint: ScratchDirectory = field(default_factory=partial(ScratchDirectory, OF_QUERIES))

    def __post_init__(self) -> None:
        self.batches = Batches(self.context, self.begin)

    def start(self, *, available_now: bool) -> StreamingQuery:
        """Begin: with all that is there now, or for ever, a commit per interval."""
        options = self.context.options
        writer = self._rows().writeStream.foreachBatch(self._on_batch)
        writer = writer.option("checkpointLocation", Location.parse(self._checkpoint.path).spark)
        writer = writer.queryName(f"{self.context.spec.name}-{self.batches.query_id[:8]}")
        return _triggered(writer, options.interval_ms, available_now=available_now).start()

    def close(self) -> None:
        """After the query has ended."""
        self._checkpoint.close()

    def _rows(self) -> DataFrame:
        reader = self.context.spark.readStream.format(self.context.options.engine)
        return reader.options(**self.context.source_options(self.begin)).load()

    def _on_batch(self, rows: DataFrame, batch_id: int) -> None:
        self.is_busy = True
        try:
            ends = offset_log.ends_of(self._checkpoint.path, batch_id)
            is_read = self.context.options.engine != "strandline"
            self.batches.commit(batch_id, ends, rows.sparkSession, rows if is_read else None)
        except Exception as error:
            self.failure = error
            raise
        finally:
            self.is_busy = False


def _triggered(
    writer: DataStreamWriter, interval_ms: int, *, available_now: bool
) -> DataStreamWriter:
    if available_now:
        return writer.trigger(availableNow=True)
    return writer.trigger(processingTime=f"{interval_ms} milliseconds")
