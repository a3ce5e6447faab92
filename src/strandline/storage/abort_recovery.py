"""Which transactions a segment saw aborted, by its batches: for an index that cannot be believed.

This file reads and changes nothing. It must not know what is done about a batch that is damaged.

A transaction index is derived, like other indexes, but is never made anew while the log is read:
without an entry readers of committed records would get aborted ones, so damage must be found before
the first reader comes. The rest of the segment may be trusted as it was.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from strandline.errors import CorruptRecords
from strandline.storage.log_parts import LogParts
from strandline.storage.producer_state import ProducerStates
from strandline.storage.replay import replay_producers
from strandline.storage.segment import Segment
from strandline.storage.transaction_index import AbortedTransaction
from strandline.storage.verify.reading import checked_batches
from strandline.types import Offset


@dataclass(slots=True)
class FoundAborts:
    """What the batches of one segment say, as far as they can be read."""

    end_offset: Offset
    transactions: list[AbortedTransaction] = field(default_factory=list)
    valid_bytes: int = 0
    damage: str | None = None
    """Why the segment cannot be read from `valid_bytes` and `end_offset` on."""


def find_aborts(log: LogParts, segment: Segment, log_start: Offset, now_ms: int) -> FoundAborts:
    """Read every batch of the segment. Raises `StorageError`."""
    base = Offset(segment.base_offset)
    producers = _producers_at(log, base, log_start, now_ms)
    transactions = producers.transactions
    found = FoundAborts(base)
    try:
        for position, header, batch in checked_batches(segment.log, 0, segment.size):
            completed = producers.replay(header, batch, now_ms) if header.producer_id >= 0 else None
            if completed is not None:
                if completed.is_abort:
                    stable = transactions.last_stable_offset_after(completed)
                    found.transactions.append(AbortedTransaction.of(completed, stable))
                transactions.complete(completed)
            found.valid_bytes = position + header.size_bytes
            found.end_offset = header.next_offset
    except CorruptRecords as error:
        found.damage = str(error)
    return found


def _producers_at(log: LogParts, base: Offset, log_start: Offset, now_ms: int) -> ProducerStates:
    """The producers where the segment begins, in a state of its own: that of the log, and the
    snapshots of later segments, stay."""
    location = log.location
    producers = ProducerStates(
        location.files, location.path, expiration_ms=log.producers.expiration_ms
    )
    lowest = min(log_start, base)
    producers.snapshots.offsets = [
        at for at in log.producers.snapshots.offsets if lowest <= at <= base
    ]
    reload = producers.truncate_and_reload(lowest, base, now_ms)
    replay_producers(producers, log.segments, reload.scan_from, base, now_ms)
    return producers
