"""What the share coordinator wants done, and its settings under Kafka's names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from strandline.protocol.coordinator_log import CoordinatorRecord
from strandline.types import Instant, LeaderEpoch

Done: TypeAlias = Callable[[Any, Instant], object]
"""Gets the response to a request, once."""


@dataclass(frozen=True, slots=True)
class AppendRecords:
    """Append these records, as one batch, to a partition of `__share_group_state`.

    Only the leader of `leader_epoch` may do so, with acks=-1. Where they were put is told with
    `ShareCoordinator.placed`, their end with `appended`.
    """

    append_id: int
    partition: int
    leader_epoch: LeaderEpoch
    records: tuple[CoordinatorRecord, ...]


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer a request."""

    done: Done
    response: Any


@dataclass(frozen=True, slots=True)
class Prune:
    """Nothing before this offset of a partition is needed any more."""

    partition: int
    leader_epoch: LeaderEpoch
    before: int


Effect: TypeAlias = AppendRecords | Reply | Prune


@dataclass(frozen=True, slots=True)
class ShareCoordinatorSettings:
    """The coordinator's settings; each default is that of Kafka 4.3."""

    updates_per_snapshot: int = 500
    """`share.coordinator.snapshot.update.records.per.snapshot`."""
    write_timeout_ms: int = 5_000
    """`share.coordinator.write.timeout.ms`."""
    prune_interval_ms: int = 300_000
    """`share.coordinator.state.topic.prune.interval.ms`."""
    snapshots_per_append: int = 100
    """How many idle share partitions get a new snapshot at once. Kafka does all."""
