"""How far a table is, and what it holds: what `status` shows, and a service measures.

This file asks a store and a cluster, and must not know Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from strandline.client.cluster import ClusterClient
from strandline.client.offsets import EARLIEST, list_offsets
from strandline.errors import ProtocolError
from strandline.lakehouse.pipeline.errors import LogReplaced
from strandline.lakehouse.pipeline.lag import Lag, ends_of, lag_before
from strandline.lakehouse.pipeline.options import isolation_of
from strandline.lakehouse.pipeline.start_offsets import LogFacts, check_same_logs
from strandline.lakehouse.tables.backend import DataFile
from strandline.lakehouse.tables.definition import (
    DEAD_LETTERS,
    DROPPED,
    EXPIRED,
    LATE,
    TableSpec,
)
from strandline.lakehouse.tables.errors import TopicRecreated
from strandline.lakehouse.tables.identity import TableState
from strandline.lakehouse.tables.store import TableStore
from strandline.types import NO_TOPIC_ID, Offset, TopicPartition

Reached: TypeAlias = dict[TopicPartition, tuple[int, int]]
"""The offsets that a table has of each partition, from the first up to but without the second."""

ROWS = "rows"
"""What the table itself is called among its side tables."""


class Progress(NamedTuple):
    """How far a table is. Without a `lag`, `trouble` says why it is not known."""

    reached: Reached
    lag: Lag | None
    trouble: str | None


class Held(NamedTuple):
    """The files of a table, or of a side table."""

    files: Sequence[DataFile]

    def counts(self) -> dict[str, int]:
        """Rows, files and bytes."""
        return {
            "rows": sum(each.rows for each in self.files),
            "files": len(self.files),
            "bytes": sum(each.size for each in self.files),
        }


def progress_of(client: ClusterClient, spec: TableSpec, state: TableState) -> Progress:
    """How far the table is in each partition.

    A partition that the table has nothing of is behind from its first record on.
    """
    reached = {each: (found.start, found.end) for each, found in state.frontiers.items()}
    isolation = isolation_of(spec)
    try:
        topics = [client.topic(name) for name in spec.topics]
        there = {TopicPartition(each.name, number) for each in topics for number in each.partitions}
        absent = dict.fromkeys(sorted(there - reached.keys()), EARLIEST)
        for partition, first in list_offsets(client, absent, isolation).items():
            reached[partition] = (first.offset, first.offset)
        frontier = {each: Offset(end) for each, (_, end) in reached.items()}
        ends = ends_of(client, frontier, isolation)
        # Where leader epochs end is not asked for: a run does that before it goes on.
        ids = {each.name: each.topic_id for each in topics if each.topic_id != NO_TOPIC_ID}
        check_same_logs(state.frontiers, LogFacts(topic_ids=ids, earliest={}, latest=ends))
        return Progress(reached, lag_before(client, ends, frontier, isolation), None)
    except ProtocolError as error:
        return Progress(reached, None, error.sentence)
    except (TopicRecreated, LogReplaced) as error:
        return Progress(reached, None, str(error))


def held_in(store: TableStore) -> dict[str, Held]:
    """The table's files under `rows`, and those of its side tables under their names."""
    spec = store.spec
    beside = [] if spec.is_of_queries else [LATE, DEAD_LETTERS]
    beside += [DROPPED] if spec.is_transformed else []
    beside += [EXPIRED] if spec.expire_rows_ms is not None else []
    return {side or ROWS: Held(store.files(side)) for side in (None, *beside)}
