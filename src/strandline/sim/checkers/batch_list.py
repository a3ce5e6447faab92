"""Which batches a log consists of, where each stands, and what compaction has left of it.

Plain lists and look-ups in them. This file must not know where the batches come from.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from strandline.sim.checkers.batches import Batch, Records, Remains


class BatchList:
    """`batches`, `bases` (their base offsets) and `ends` (bytes up to the end of each, counted from
    some time ago) go together.

    - `cut_bytes`: how many of the bytes that `ends` count have gone with the front of the log.
    - `remains`: of batches that have lost records to compaction, by base offset: what is left.
    """

    __slots__ = ("bases", "batches", "cut_bytes", "ends", "remains")

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.bases: list[int] = []
        self.ends: list[int] = []
        self.cut_bytes = 0
        self.remains: dict[int, Remains] = {}

    @property
    def end(self) -> int:
        """The offset behind the last batch; -1 without any."""
        return self.batches[-1].next_offset if self.batches else -1

    @property
    def size_bytes(self) -> int:
        """Bytes of all batches."""
        return self.ends[-1] - self.cut_bytes if self.ends else 0

    def records_of(self, batch: Batch) -> Records | None:
        """What this log has of the batch; None if its records were never read."""
        remains = self.remains.get(batch.base_offset)
        return batch.records if remains is None else remains.records

    def newest_in(self, batch: Batch) -> int:
        """The largest time of the batch, as its header has it here."""
        remains = self.remains.get(batch.base_offset)
        return batch.max_timestamp if remains is None else remains.max_timestamp

    def crc_of(self, batch: Batch) -> int:
        """The checksum that the batch has here."""
        remains = self.remains.get(batch.base_offset)
        return batch.crc if remains is None else remains.crc

    def size_of(self, index: int) -> int:
        """How many bytes the batch with that index has here."""
        return self.bytes_between(index, index + 1)

    def below(self, offset: int) -> Batch | None:
        """The last batch that begins below the offset."""
        index = bisect_left(self.bases, offset)
        return self.batches[index - 1] if index else None

    def content_end(self, offset: int) -> int:
        """Where what lies below the offset ends. Compaction may have left nothing just below it, as
        after a truncation to there: then the log's end is known to the process only."""
        newest = self.below(offset)
        return 0 if newest is None else min(offset, newest.next_offset)

    def index_at(self, offset: int) -> int:
        """The index of the first batch that begins at the offset or above."""
        return bisect_left(self.bases, offset)

    def bytes_between(self, first: int, stop: int) -> int:
        """How many bytes the batches from index `first` up to `stop` have."""
        if stop <= first:
            return 0
        before = self.ends[first - 1] if first else self.cut_bytes
        return self.ends[stop - 1] - before

    def epoch_starts(self, log_start: int) -> list[tuple[int, int]]:
        """Where each leader epoch begins, of the batches that end behind the log start."""
        found: list[tuple[int, int]] = []
        first = bisect_right(self.bases, log_start) - 1
        for batch in self.batches[max(0, first) :]:
            if batch.next_offset <= log_start:
                continue
            if not found or batch.leader_epoch != found[-1][0]:
                found.append((batch.leader_epoch, batch.base_offset))
        return found
