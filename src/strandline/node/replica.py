"""One partition as this node hosts it: its log, its role, who waits for it.

Everything that reads or writes records goes through this class, so that who may do so, and how far
readers may see, is decided in one place. A replica leads (`leader` holds what that takes, for one
leader epoch) or follows; `become_leader` and `become_follower` are the only doors between the two.

    replica_state       its parts, who waits, what readers may see
    replica_leading     appends, followers, the in-sync set
    replica_following   records and offsets of the leader, truncation
"""

from __future__ import annotations

from strandline.cluster.image import PartitionImage
from strandline.errors import ErrorCode
from strandline.node.replica_following import FollowsPartition
from strandline.node.replica_leading import LeadsPartition
from strandline.node.replica_state import NOBODY, READ_COMMITTED
from strandline.replication.leader import Leader
from strandline.types import Instant

__all__ = ["NOBODY", "READ_COMMITTED", "Replica"]


class Replica(LeadsPartition, FollowsPartition):
    """See the module and `ReplicaState` for the attributes."""

    __slots__ = ()

    def become_leader(self, state: PartitionImage, now: Instant) -> None:
        """Lead in a new epoch. Nothing is truncated (I-10); raises `StorageError`."""
        log, host = self.log, self.host
        if log.offsets.needs_checkpoint:
            host.logs.save_lowered_offsets(log)
        # KAFKA-7415: the epoch begins where the log ends now, whether or not it writes anything.
        log.flusher.begin_epoch(state.leader_epoch, log.log_end_offset)
        self.leader = Leader(
            host.broker_id,
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
            start_offset=log.log_end_offset,
            replicas=state.replicas,
            in_sync=state.in_sync_replicas,
            lag_max_ms=host.lag_max_ms,
            min_in_sync=log.config.min_insync_replicas,
            now_ms=now.monotonic_ms,
            log_start_offset=log.log_start_offset,
            has_eligible=state.has_eligible,
            former=self.leader,
            policies=host.policies,
        )
        self.leader_epoch = state.leader_epoch
        self.leader_id = host.broker_id
        self.is_alone = len(state.replicas) == 1
        self.advance(now)
        self.changed()

    def become_follower(self, state: PartitionImage) -> None:
        """Follow another leader, or wait for one (-1)."""
        self.leader_epoch = state.leader_epoch
        self.leader_id = state.leader
        self._stop_leading(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def retire(self, code: ErrorCode) -> None:
        """The partition is gone from this node: whoever waits for it is told `code`."""
        self.is_retired = True
        self.leader_id = NOBODY
        self._stop_leading(code)

    def _stop_leading(self, code: ErrorCode) -> None:
        self.leader = None
        self.is_alone = False
        if self._commits is not None:
            # Now, and not at the end of the turn: the node might lead again by then.
            self._commits.fail_all(code)
        self.changed()
