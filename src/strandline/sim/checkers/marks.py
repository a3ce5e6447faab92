"""The fingerprint of a replica: it differs from the one before if an event changed the replica.

Made by `mark_of`, in this order; read by the rules that compare two of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from strandline.replication.in_sync import InSyncState
    from strandline.replication.leader import Leader
    from strandline.storage.log import Log

Mark: TypeAlias = tuple[Any, ...]
"""By the names below."""
(
    END, HIGH_WATERMARK, LOG_START, CUTS, RECOVERY_POINT, SEGMENTS, LATEST_EPOCH, FIRST_BASE,
    LEADER, LEADER_EPOCH, LEADER_ID, IN_SYNC, MIN_IN_SYNC, PARTITION_EPOCH,
) = range(14)  # fmt: skip
NO_ROLE: Mark = (None, -1, -1, None, 0)
"""What `LEADER` and all after it are for a log that no replica uses yet."""


def first_base(log: Log) -> int:
    """Where the first segment begins; -1 of a log that has failed while it had none."""
    bases = log.segments.base_offsets
    return bases[0] if bases else -1


def mark_of(
    log: Log,
    leader: Leader | None,
    leader_epoch: int,
    leader_id: int,
    in_sync: InSyncState | None,
    min_in_sync: int,
) -> Mark:
    """The fingerprint of a log and of the role of its replica, in the order of the names above."""
    bases, offsets = log.segments.base_offsets, log.offsets
    return (
        offsets.log_end_offset,
        offsets.high_watermark,
        offsets.log_start_offset,
        offsets.truncations,
        offsets.recovery_point,
        len(bases),
        log.leader_epochs.latest,
        bases[0] if bases else -1,
        leader,
        leader_epoch,
        leader_id,
        in_sync,
        min_in_sync,
        -1 if leader is None else leader.partition_epoch,
    )


def mark_without_role(log: Log) -> Mark:
    """The fingerprint of a log that no replica has yet."""
    return mark_of(log, *NO_ROLE)
