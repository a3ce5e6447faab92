"""What a proof compares: a table at one commit, and its topics' logs at one moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from strandline.lakehouse.pipeline.start_offsets import LogFacts
from strandline.lakehouse.reading.ranges import OffsetRange
from strandline.lakehouse.reading.settings import ReadSettings
from strandline.lakehouse.tables.backend import DataFile
from strandline.lakehouse.tables.definition import TableSpec
from strandline.lakehouse.tables.identity import TableState
from strandline.lakehouse.verify.coverage import Span
from strandline.lakehouse.verify.places import held
from strandline.lakehouse.verify.standing import Open, Spans

_FACTS: Final = (
    "topic string, partition int, start long, end long, log_start long, compacted boolean"
)

_SPANS: Final = "its_topic string, its_partition int, open_from long, open_to long"


@dataclass(frozen=True, slots=True)
class Compared:
    """See the module."""

    spark: SparkSession
    spec: TableSpec
    state: TableState
    files: Mapping[str | None, Sequence[DataFile]]
    """Of the table and of those beside it, at the same commit as `state`."""
    facts: LogFacts
    compacted: frozenset[str]
    """Topics whose log drops records that have a newer one."""
    settings: ReadSettings
    open: Open | None = None
    """What an earlier proof has left to prove; None: everything."""

    def held(self, side: str | None) -> DataFrame:
        """topic, partition, offset and key of the rows in the table, or in one beside it.

        Of files that stand, only the rows with open offsets.
        """
        new, old = self._files(side)
        rows = held(self.spark, self.spec, side, new)
        if not old or self.open is None:
            return rows
        earlier = held(self.spark, self.spec, side, old)
        return rows.unionByName(self._opened(earlier, self.open.spans))

    def has(self, side: str | None) -> bool:
        """Whether there are files to compare: a frame of none costs Spark as much as one of one."""
        return any(self._files(side))

    def _opened(self, rows: DataFrame, spans: Spans) -> DataFrame:
        """Those of the rows that have open offsets."""
        listed = [
            (*partition, span.start, span.end) for partition, each in spans.items() for span in each
        ]
        is_in = (
            (f.col("topic") == f.col("its_topic"))
            & (f.col("partition") == f.col("its_partition"))
            & (f.col("offset") >= f.col("open_from"))
            & (f.col("offset") < f.col("open_to"))
        )
        return rows.join(f.broadcast(self.spark.createDataFrame(listed, _SPANS)), is_in, "semi")

    def _files(self, side: str | None) -> tuple[list[DataFile], list[DataFile]]:
        """Those to read all rows of, and those of which only some are open; they can be read."""
        there = list(self.files[side])
        if self.open is None:
            return there, []
        new = {each.path for each in self.open.new.get(side, ())}
        kept = {each.path for each in self.open.kept.get(side, ())}
        return (
            [each for each in there if each.path in new],
            [each for each in there if each.path in kept],
        )

    def ranges(self) -> list[OffsetRange]:
        """What the log still has of what is to be compared."""
        found = []
        for partition, frontier in sorted(self.state.frontiers.items()):
            spans = [Span(frontier.start, frontier.end)]
            for span in spans if self.open is None else self.open.spans.get(partition, ()):
                start = max(span.start, self.facts.earliest[partition])
                if start < span.end:
                    found.append(
                        OffsetRange(
                            topic=partition.topic,
                            partition=partition.partition,
                            start=start,
                            end=span.end,
                            topic_id=UUID(frontier.topic_id) if frontier.topic_id else None,
                        )
                    )
        return found

    def facts_frame(self) -> DataFrame:
        """One row per partition, for joins."""
        return self.spark.createDataFrame(
            [
                (
                    *partition,
                    frontier.start,
                    frontier.end,
                    self.facts.earliest[partition],
                    partition.topic in self.compacted,
                )
                for partition, frontier in sorted(self.state.frontiers.items())
            ],
            _FACTS,
        )
