"""What the parts of a node see of a replica that it consists of, or that serve it in any role.

The roles of a replica, the ledger and the way of its proposals to the controller need no more than
this, and `replica` needs them: so they know this form, and not the class.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from strandline.errors import ErrorCode, StorageError
from strandline.node.purgatory import Watched
from strandline.replication.in_sync import InSyncState
from strandline.replication.leader import Leader
from strandline.storage.log import Log
from strandline.types import BrokerId, Instant, LeaderEpoch, TopicId, TopicPartition


class Listener(Protocol):
    """Observer of a replica's changes."""

    def on_change(self, *, completes_fetch: bool) -> None:
        """`completes_fetch`: what changed may complete a parked fetch that reads to the log end."""


class Traffic:
    """What went through a replica since it is here, counted for people. In bytes, and records."""

    __slots__ = ("bytes_in", "bytes_out", "records_in", "replication_in", "replication_out")

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.records_in = 0
        self.replication_in = 0
        self.replication_out = 0


class HostedReplica(Protocol):
    """See the module, and `replica.Replica` for what the attributes mean."""

    @property
    def topic_partition(self) -> TopicPartition: ...

    @property
    def topic_id(self) -> TopicId: ...

    @property
    def log(self) -> Log: ...

    @property
    def traffic(self) -> Traffic: ...

    @property
    def leader(self) -> Leader | None: ...

    @property
    def leader_epoch(self) -> LeaderEpoch: ...

    @property
    def leader_id(self) -> BrokerId: ...

    @property
    def listeners(self) -> Sequence[Listener]: ...

    @property
    def log_end_waiters(self) -> Watched: ...

    def changed(self) -> None:
        """Have all who wait for anything of this replica checked at the end of the turn."""

    def wake_high_watermark_waiters(self) -> None:
        """Have those checked who wait for the high watermark, if there are any."""

    def wake_low_watermark_waiters(self) -> None:
        """Have those checked who wait until records are deleted everywhere."""

    def note_flush(self) -> None:
        """Have the log synced after this turn, if it wants to be."""

    def fail(self, error: StorageError) -> None:
        """The disk under the log failed."""

    def in_sync_committed(
        self,
        members: Collection[BrokerId],
        partition_epoch: int,
        now: Instant,
        *,
        has_eligible: bool | None = None,
    ) -> None:
        """The controller has committed an in-sync set."""

    def in_sync_refused(
        self,
        code: ErrorCode,
        now: Instant,
        proposal: InSyncState | None = None,
        *,
        is_open: bool = False,
    ) -> None:
        """The controller has refused a proposed in-sync set."""
