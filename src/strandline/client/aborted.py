"""Which transactional batches of a fetched range a committed reader skips (KIP-98).

A fetch response names the transactions that were aborted in its range by producer id and first
offset. A producer's batches from there on are skipped until its abort marker. This file knows only
that; it must not know requests.
"""

from __future__ import annotations

from collections.abc import Iterable

from strandline.records.batch import BatchHeader
from strandline.records.control import ControlType, parse_marker
from strandline.records.record import Record
from strandline.types import Offset, ProducerId


class AbortedFilter:
    """Goes along the batches of one response, in their order.

    Every batch must be told, also markers, to `skips` or `pass_marker`: a response may begin with
    the marker of a transaction whose records lie before it. An entry that no marker has ended yet
    would hide what its producer committed since.
    """

    __slots__ = ("_active", "_coming")

    def __init__(self, aborted: Iterable[tuple[ProducerId, Offset]]) -> None:
        self._coming = sorted(aborted, key=lambda each: each[1], reverse=True)
        self._active: set[ProducerId] = set()

    def skips(self, header: BatchHeader) -> bool:
        """Whether the batch's records belong to an aborted transaction."""
        self._begin_up_to(header.last_offset)
        return header.is_transactional and header.producer_id in self._active

    def pass_marker(self, header: BatchHeader, record: Record) -> None:
        """Note the control record of a control batch: an abort ends what is skipped."""
        self._begin_up_to(header.last_offset)
        marker = parse_marker(record)
        if marker is not None and marker.type is ControlType.ABORT:
            self._active.discard(header.producer_id)

    def _begin_up_to(self, offset: Offset) -> None:
        while self._coming and self._coming[-1][1] <= offset:
            self._active.add(self._coming.pop()[0])
