"""Which transactional batches compaction drops, and when an end marker may go (KIP-98, KIP-534).

This file knows what to think of batches in the order of the log. It must not know keys or files.

Records of an aborted transaction are dropped at once, and no key of theirs counts. A marker stays
as long as a batch of its transaction is left, even an empty one; after that it is treated like a
tombstone: it gets a delete horizon, and goes when that has passed. (Kafka's
CleanedTransactionMetadata.)
"""

from __future__ import annotations

from collections.abc import Iterable

from strandline.errors import CorruptRecords
from strandline.records.batch import BatchHeader, Buffer
from strandline.records.control import ControlType, control_type
from strandline.records.record import read_records
from strandline.storage.transaction_index import AbortedTransaction


class CleanedTransactions:
    """The transactions that are open where a walk over a log has come to.

    `retained` are those whose abort markers stay, for the transaction index of the copy; the
    writer of that index takes them out.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        """`aborted` are all whose markers lie in the walk or behind it, and no others."""
        self.retained: list[AbortedTransaction] = []
        self._waiting = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
        self._aborted: dict[int, AbortedTransaction] = {}
        self._has_batches: set[int] = set()
        """Producers whose open transaction, aborted or not, has a batch in the log."""

    def is_aborted(self, header: BatchHeader) -> bool:
        """Take note of a data batch; whether it belongs to an aborted transaction."""
        self._begin_to(header.last_offset)
        if not header.is_transactional:
            return False
        self._has_batches.add(header.producer_id)
        return header.producer_id in self._aborted

    def is_over(self, header: BatchHeader, batch: Buffer) -> bool:
        """Take note of a control batch; whether nothing is left of the transaction it ended.

        Also of one that was emptied before. Raises `CorruptRecords`.
        """
        self._begin_to(header.last_offset)
        record = next(iter(read_records(batch)), None)
        if record is None:
            return True
        kind = control_type(record)
        if kind not in (ControlType.ABORT, ControlType.COMMIT):
            return False
        aborted = self._aborted.pop(header.producer_id, None)
        if kind is ControlType.COMMIT and aborted is not None:
            raise CorruptRecords(
                f"The transaction of producer {header.producer_id} is in the transaction index as "
                f"aborted and has a commit marker at offset {header.base_offset}."
            )
        has_batches = header.producer_id in self._has_batches
        self._has_batches.discard(header.producer_id)
        if aborted is not None and has_batches:
            self.retained.append(aborted)
        return not has_batches

    def _begin_to(self, offset: int) -> None:
        waiting = self._waiting
        while waiting and waiting[-1].first_offset <= offset:
            begun = waiting.pop()
            self._aborted.setdefault(begun.producer_id, begun)
