"""Which transactions of a partition are unstable: open, or ended but maybe not replicated.

This file knows offsets and producer ids. It must not know batches. Theory: `read_committed`
readers may not pass the first offset of a transaction until its end is known and cannot be lost.
So a transaction is unstable from its first record until its end marker is below the high
watermark, and the lowest first offset of the unstable ones bounds what is stable.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from strandline.errors import InvariantViolated
from strandline.types import Offset, ProducerId


class CompletedTransaction(NamedTuple):
    """A transaction whose marker was written at `last_offset`."""

    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset
    is_abort: bool


class OpenTransactions:
    """The unstable transactions of one partition.

    `first_unstable_offset` is None when everything is stable. Only this class moves it: down never,
    up when a transaction becomes stable.
    """

    __slots__ = ("_ended", "_open", "first_unstable_offset")

    def __init__(self) -> None:
        self.first_unstable_offset: Offset | None = None
        # First offset -> producer, in increasing order of the first offset.
        self._open: dict[Offset, ProducerId] = {}
        # First offset -> offset of the end marker, for markers that may not be replicated.
        self._ended: dict[Offset, Offset] = {}

    def begin(self, producer_id: ProducerId, first_offset: Offset) -> None:
        """A producer's first record of a transaction was written; offsets come in order."""
        self._open[first_offset] = producer_id
        if self.first_unstable_offset is None:
            self.first_unstable_offset = first_offset

    def complete(self, completed: CompletedTransaction) -> None:
        """The end marker was written; the transaction is unstable until that is replicated."""
        if self._open.pop(completed.first_offset, None) is None:
            raise InvariantViolated(f"{completed} was completed, but it was never open.")
        self._ended[completed.first_offset] = completed.last_offset

    def acknowledge_to(self, high_watermark: Offset) -> None:
        """Markers below the high watermark are replicated."""
        if not self._ended:
            return
        for first_offset, marker_offset in list(self._ended.items()):
            if marker_offset < high_watermark:
                del self._ended[first_offset]
        self._find_first_unstable()

    def last_stable_offset_after(self, completed: CompletedTransaction) -> Offset:
        """Where readers may go once `completed` is done: up to the next open transaction."""
        for first_offset, producer_id in self._open.items():
            if producer_id != completed.producer_id:
                return first_offset
        return Offset(completed.last_offset + 1)

    def restart(self, open_transactions: Iterable[tuple[Offset, ProducerId]]) -> None:
        """Forget all and take these as open, in any order; what is ended counts as replicated."""
        self._ended.clear()
        self._open = dict(sorted(open_transactions))
        self._find_first_unstable()

    @property
    def earliest_open(self) -> tuple[Offset, ProducerId] | None:
        """The open transaction with the lowest first offset, whatever is replicated."""
        return next(iter(self._open.items()), None)

    @property
    def has_unreplicated(self) -> bool:
        """Whether a transaction has ended that may not be replicated."""
        return bool(self._ended)

    def check(self, known: Iterable[tuple[Offset, ProducerId]]) -> None:
        """Raise `InvariantViolated` unless the producers know just the open ones (I-06)."""
        if list(self._open.items()) != sorted(known):
            raise InvariantViolated(
                f"{self._open} are open, but the producers know others.", invariant="I-06"
            )
        lowest = min((*self._open, *self._ended), default=None)
        if lowest != self.first_unstable_offset:
            raise InvariantViolated(
                f"The first unstable offset is {lowest}, not {self.first_unstable_offset}.",
                invariant="I-06",
            )

    def _find_first_unstable(self) -> None:
        earliest = self.earliest_open
        candidates = [*self._ended] if earliest is None else [*self._ended, earliest[0]]
        self.first_unstable_offset = min(candidates, default=None)
