"""What a proof compares: a table at one commit, and its topics' logs at one moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from pyspark.sql import DataFrame, SparkSession

from strandline.lakehouse.pipeline.start_offsets import LogFacts
from strandline.lakehouse.reading.ranges import OffsetRange
from strandline.lakehouse.reading.settings import ReadSettings
from strandline.lakehouse.tables.backend import DataFile
from strandline.lakehouse.tables.definition import TableSpec
from strandline.lakehouse.tables.identity import TableState
from strandline.lakehouse.verify.places import held

_FACTS: Final = (
    "topic string, partition int, start long, end long, log_start long, compacted boolean"
)


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

    def held(self, side: str | None) -> DataFrame:
        """topic, partition, offset and key of the rows in the table, or in one beside it."""
        return held(self.spark, self.spec, side, self.files[side])

    def ranges(self) -> list[OffsetRange]:
        """What the log still has of what the table should hold."""
        found = []
        for partition, frontier in sorted(self.state.frontiers.items()):
            start = max(frontier.start, self.facts.earliest[partition])
            if start < frontier.end:
                found.append(
                    OffsetRange(
                        topic=partition.topic,
                        partition=partition.partition,
                        start=start,
                        end=frontier.end,
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
