"""What must hold between a batch and those in front of it in the same log.

This file knows offsets and leader epochs of successive batches. It must not know where batches come
from, nor the table of leader epochs, which may know more than the batches do.
"""

from __future__ import annotations

from strandline.records.batch import BatchHeader
from strandline.types import NO_EPOCH, LeaderEpoch, Offset


def lacks_records(header: BatchHeader) -> bool:
    """Whether the batch has fewer records than offsets: only compaction makes such."""
    return header.record_count <= header.last_offset_delta


class BatchOrder:
    """Where the batches have come to: `next_offset`, `leader_epoch`; `follow` moves both."""

    __slots__ = ("_last_offset_max", "leader_epoch", "next_offset")

    def __init__(self, next_offset: Offset, last_offset_max: int) -> None:
        """Up to `last_offset_max` the file of these batches may go."""
        self.next_offset = next_offset
        self.leader_epoch: LeaderEpoch = NO_EPOCH
        self._last_offset_max = last_offset_max

    def offset_fault(self, header: BatchHeader) -> str:
        """What is wrong if the batch has offsets that cannot follow; else empty."""
        if header.base_offset < self.next_offset:
            return (
                f"the batch begins with offset {header.base_offset}, but {self.next_offset} is the "
                "least that can follow"
            )
        if header.last_offset > self._last_offset_max:
            return (
                f"the batch ends with offset {header.last_offset}, but {self._last_offset_max} is "
                "the greatest of its segment"
            )
        return ""

    def epoch_fault(self, header: BatchHeader) -> str:
        """What is wrong if the batch is of an older leader than the one before; else empty."""
        return older_epoch(header, self.leader_epoch)

    def follow(self, header: BatchHeader) -> None:
        """Go behind a batch."""
        self.next_offset = header.next_offset
        self.leader_epoch = header.leader_epoch


def older_epoch(header: BatchHeader, newest: LeaderEpoch) -> str:
    """What is wrong if the batch is of an older leader than `newest`; else empty."""
    if header.leader_epoch >= newest:
        return ""
    return f"leader epoch {header.leader_epoch} follows {newest}"
