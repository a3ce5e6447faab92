"""Whether the transaction indexes of a replica tell the truth about its markers (KIP-98).

This file knows which entry an abort marker must have made. It must not know where batches come
from. Compaction drops what was aborted and then the markers, so below its frontier only what an
entry says is judged, and not what may be missing. A transaction that began in front of the log's
start has an entry that nothing here can bear out in full.
"""

from __future__ import annotations

from strandline.errors import StorageError
from strandline.storage.files import Files
from strandline.storage.segment_names import TRANSACTION_INDEX
from strandline.storage.transaction_index import AbortedTransaction, TransactionIndex
from strandline.storage.verify.files import SegmentFiles
from strandline.storage.verify.findings import Findings, Kind
from strandline.storage.verify.indexes import checked_aborts
from strandline.storage.verify.reading import StoredBatch
from strandline.types import ProducerId


class TransactionHistory:
    """The open transactions of one replica along its batches, and the index of each segment."""

    def __init__(self, files: Files, findings: Findings, *, frontier: int) -> None:
        """Below `frontier` compaction may have been at work."""
        self._files = files
        self._findings = findings
        self._frontier = frontier
        self._open: dict[ProducerId, int] = {}
        self._is_certain = True
        self._path = ""
        self._is_judged = False
        self._entries: dict[int, AbortedTransaction] = {}

    def miss_something(self) -> None:
        """Batches are not there or cannot be believed: what they began or ended is not known."""
        self._is_certain = False

    def begin_segment(self, segment: SegmentFiles) -> None:
        """Read the index of the next segment; an index that is not there is an empty one."""
        self._entries = {}
        self._path = segment.index_path(TRANSACTION_INDEX)
        self._is_judged = not segment.is_swapped
        if not self._is_judged:
            return
        try:
            index = TransactionIndex(self._files, self._path)
            for entry, fault in checked_aborts(index, segment.base_offset):
                if fault is None:
                    self._entries[entry.last_offset] = entry
                else:
                    self._add(fault.sentence)
        except StorageError as error:
            self._add(str(error))
            self._is_judged = False

    def see(self, batch: StoredBatch) -> None:
        """Follow a sound batch."""
        header = batch.header
        if batch.marker is None:
            if header.is_transactional and not header.is_control:
                self._open.setdefault(header.producer_id, header.base_offset)
            return
        first = self._open.pop(header.producer_id, None)
        entry = self._entries.pop(header.base_offset, None)
        if not self._is_judged:
            return
        if batch.marker.commits:
            if entry is not None:
                self._add(
                    f"It has an abort at offset {header.base_offset}, where a transaction was "
                    "committed.",
                    header.base_offset,
                )
            return
        if entry is None:
            if first is not None and self._is_certain and header.base_offset >= self._frontier:
                self._add(
                    f"It lacks the transaction that was aborted at offset {header.base_offset}.",
                    header.base_offset,
                )
            return
        self._compare(entry, header.producer_id, first)

    def finish_segment(self, judged_to: int) -> None:
        """After the last batch of a segment: entries below `judged_to` must have had a marker."""
        if not (self._is_judged and self._is_certain):
            return
        for offset, entry in self._entries.items():
            if self._frontier <= offset < judged_to:
                self._add(
                    f"It has an abort of producer {entry.producer_id} at offset {offset}, where "
                    "there is no marker.",
                    offset,
                )

    def _compare(
        self, entry: AbortedTransaction, producer_id: ProducerId, first: int | None
    ) -> None:
        offset = entry.last_offset
        if entry.producer_id != producer_id:
            self._add(
                f"The abort at offset {offset} is of producer {producer_id}, but the entry says "
                f"{entry.producer_id}.",
                offset,
            )
            return
        is_certain = offset >= self._frontier and self._is_certain
        if first is not None and entry.first_offset != first and is_certain:
            self._add(
                f"The transaction aborted at offset {offset} began at {first}, but the entry says "
                f"{entry.first_offset}.",
                offset,
            )
        stable = min(self._open.values(), default=offset + 1)
        if entry.last_stable_offset > offset + 1 or (
            is_certain and entry.last_stable_offset != stable
        ):
            self._add(
                f"After the abort at offset {offset} everything below {stable} was stable, but the "
                f"entry says {entry.last_stable_offset}.",
                offset,
            )

    def _add(self, sentence: str, offset: int = -1) -> None:
        self._findings.add(
            Kind.TRANSACTION_INDEX, sentence, path=self._path, offset=offset, end_offset=offset
        )
