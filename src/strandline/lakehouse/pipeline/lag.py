"""How far a table is behind its topics: in records, and in seconds.

Seconds are the age of the oldest record that the table lacks: now, less the time of the record at
the frontier, by the clocks of this machine and of the one that stamped the record. A table that has
everything is 0 seconds behind, however long ago the last record came.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from strandline.client.cluster import ClusterClient
from strandline.client.consumer import Consumer
from strandline.client.fetching import FetchSettings, Isolation
from strandline.client.offsets import LATEST, list_offsets
from strandline.client.start import Start
from strandline.errors import ProtocolError
from strandline.types import Offset, TopicPartition

_OLDEST_BYTES_MAX = 64 * 1024
"""For the record at a frontier, in one fetch; a broker sends one batch at least."""
_LOOK_MS = 1000


@dataclass(frozen=True, slots=True)
class Lag:
    """What a table lacks. `seconds` is None when the oldest missing record could not be read."""

    records: int
    seconds: float | None
    by_partition: Mapping[TopicPartition, int]


def lag_of(
    cluster: ClusterClient, frontier: Mapping[TopicPartition, Offset], isolation: Isolation
) -> Lag:
    """What lies between the frontier and the ends of the partitions. Raises `ProtocolError`."""
    return lag_before(cluster, ends_of(cluster, frontier, isolation), frontier, isolation)


def ends_of(
    cluster: ClusterClient, partitions: Iterable[TopicPartition], isolation: Isolation
) -> dict[TopicPartition, Offset]:
    """Where the partitions end for a reader of that isolation. Raises `ProtocolError`."""
    found = list_offsets(cluster, dict.fromkeys(partitions, LATEST), isolation)
    return {partition: end.offset for partition, end in found.items()}


def lag_before(
    cluster: ClusterClient,
    ends: Mapping[TopicPartition, Offset],
    frontier: Mapping[TopicPartition, Offset],
    isolation: Isolation,
) -> Lag:
    """What lies between the frontier and these ends.

    Offsets are counted: markers of transactions, and what compaction removed, count as records.
    """
    behind = {partition: max(0, ends[partition] - offset) for partition, offset in frontier.items()}
    missing = {partition: frontier[partition] for partition, count in behind.items() if count}
    oldest_ms = _oldest_timestamp(cluster, missing, isolation) if missing else None
    seconds: float | None = 0.0 if not missing else None
    if oldest_ms is not None:
        seconds = max(0.0, (cluster.clock.wall_ms() - oldest_ms) / 1000)
    return Lag(sum(behind.values()), seconds, behind)


def _oldest_timestamp(
    cluster: ClusterClient, missing: Mapping[TopicPartition, Offset], isolation: Isolation
) -> int | None:
    """Of the first records behind these offsets; milliseconds."""
    settings = FetchSettings(isolation=isolation, partition_max_bytes=_OLDEST_BYTES_MAX)
    found: list[int] = []
    for partition, offset in missing.items():
        consumer = Consumer(cluster, settings)
        try:
            consumer.assign({partition: Start.at_offset(offset)})
            fetched = consumer.poll(_LOOK_MS)
        except ProtocolError:
            # Retention may have removed it: what the lag is in records is known all the same.
            continue
        found += [each.records[0].timestamp for each in fetched if each.records]
    return min(found, default=None)
