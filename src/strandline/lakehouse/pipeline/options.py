"""How a table is run: what a user may choose for one run, and what Spark's sources make of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from strandline.client.fetching import Isolation
from strandline.client.security.config import UNSECURED, ClientConfig
from strandline.errors import InvalidSetting
from strandline.lakehouse.reading.settings import ReadSettings
from strandline.lakehouse.tables.definition import TableSpec
from strandline.lakehouse.tables.upkeep import check_upkeep
from strandline.types import TopicPartition

ENGINES: Final = ("strandline", "kafka")
"""Our own reader, or Spark's connector for Kafka, whose jars the user brings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Of one run. The table's definition says the rest."""

    bootstrap: str
    config: ClientConfig = UNSECURED
    """How the cluster lets the run in."""
    once: bool = False
    """Commit what is there now, and end."""
    interval_ms: int = 10_000
    """From one commit to the next, while there is something to commit."""
    engine: str = "strandline"
    accepts_loss: bool = False
    """Go on behind records that the log lost before the table had them, and note them."""
    rows_per_commit: int = 1_000_000
    """Offsets, of all partitions together, that one commit holds at most."""
    compact_every: int = 100
    """Commits from one compaction of small files to the next; 0 is never."""
    vacuum_ms: int | None = None
    """Whenever small files were compacted, delete files that no reader needs and that are older."""
    dead_share: float = 0.01
    """Of the records of a commit, what more dead letters than this are told at the run's end."""
    patience_s: float = 300.0
    """How long trouble is met with another attempt, counted from the first since all was well."""
    waits_at_start: bool = True
    """Whether this goes for brokers, too, that do not answer when the run begins."""

    def __post_init__(self) -> None:
        if self.vacuum_ms is None:
            return
        check_upkeep(None, None, self.vacuum_ms)
        if not self.compact_every:
            raise InvalidSetting(
                "vacuum", "vacuum comes with compactions, and compact-every 0 makes none."
            )

    def read_settings(self, spec: TableSpec) -> ReadSettings:
        """How the table's topics are read."""
        return ReadSettings(
            bootstrap=self.bootstrap,
            isolation=isolation_of(spec),
            with_headers=True,
            client_id=f"strandline-table-{spec.name}",
            security=self.config.security,
        )


def isolation_of(spec: TableSpec) -> Isolation:
    """What the table gets to see of transactions."""
    return Isolation[spec.isolation.upper()]


def starting_offsets(starts: Mapping[TopicPartition, int]) -> str:
    """The sources' option of that name."""
    topics: dict[str, dict[str, int]] = {}
    for partition, offset in sorted(starts.items()):
        topics.setdefault(partition.topic, {})[str(partition.partition)] = offset
    return json.dumps(topics)
