"""Reading a share partition for a member: what the log has, and which of it becomes the member's.

Records go out in whole batches; which of them belong to the member the answer says beside them.
With `share.isolation.level=read_committed` the leader itself leaves out what was aborted, since
members are not told of transactions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from strandline.client.aborted import AbortedFilter
from strandline.node.sharing.leading import READ_COMMITTED, LedSharePartition, LedSharePartitions
from strandline.records.batch import BatchHeader, iterate_headers
from strandline.records.record import read_records
from strandline.sharing.values import Acquired, LogBatch
from strandline.types import Instant, Offset

_BYTES_AT_ONCE: Final = 1 << 20
"""Of one partition in one answer, unless its next batch is larger."""
_ROUNDS_MAX: Final = 16
"""How often to go on after batches of which a member may see nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a member asked for."""

    member_id: str
    bytes_max: int
    records_max: int
    batch_size: int
    """The least number of records in a range of acquired ones, if a batch ends there."""
    is_strict: bool
    """Whether batches may be split to keep to `records_max` (KIP-1206)."""


class Found(NamedTuple):
    """Batches, and what of them belongs to the member now."""

    records: bytes
    acquired: list[Acquired]


class _Placed(NamedTuple):
    batch: LogBatch
    start: int
    end: int


def read_for_member(
    shares: LedSharePartitions,
    led: LedSharePartition,
    wanted: Wanted,
    now: Instant,
    *,
    is_first: bool,
) -> Found | None:
    """Acquire what there is for a member; None if there is nothing now. `is_first`: the next batch
    comes whatever its size. Raises `StorageError`, `CorruptRecords` and `ProtocolError`."""
    state, replica_log = led.state, led.replica.log
    if state is None:
        return None
    limits = shares.limits_of(led.key.group_id)
    if replica_log.log_start_offset > state.first_offset:
        state.raise_start(replica_log.log_start_offset)
    found = None
    for _ in range(_ROUNDS_MAX):
        position = state.next_offset
        end = shares.readable_end(led)
        if position >= end or not state.can_acquire(limits):
            break
        bytes_max = min(wanted.bytes_max, _BYTES_AT_ONCE)
        piece = replica_log.reader.read(
            Offset(position), bytes_max, end_offset=end, at_least_one_batch=is_first
        )
        if piece is None:
            break
        data = piece.file.read_at(piece.position, piece.length)
        aborted = None
        if shares.isolation_of(led.key.group_id) == READ_COMMITTED:
            aborted = AbortedFilter(
                (each.producer_id, Offset(each.first_offset))
                for each in replica_log.reader.aborted_transactions(
                    Offset(position), piece.upper_offset
                )
            )
        placed = list(_placed(data, aborted))
        acquired = state.acquire(
            wanted.member_id,
            [each.batch for each in placed],
            limits,
            now,
            records_max=wanted.records_max,
            is_strict=wanted.is_strict,
        )
        if acquired:
            found = _cut(data, placed, acquired, wanted.batch_size)
            break
        if state.next_offset == position:
            break
    shares.follow(led, now)
    return found


def _placed(data: bytes, aborted: AbortedFilter | None) -> Iterator[_Placed]:
    """The batches and where they are; markers, and what was aborted, hidden."""
    for at, header in iterate_headers(data):
        batch = LogBatch(
            header.base_offset, header.last_offset, _is_hidden(data, at, header, aborted)
        )
        yield _Placed(batch, at, at + header.size_bytes)


def _is_hidden(data: bytes, at: int, header: BatchHeader, aborted: AbortedFilter | None) -> bool:
    if header.is_control:
        if aborted is not None:
            for record in read_records(data, at):
                aborted.pass_marker(header, record)
        return True
    return aborted is not None and aborted.skips(header)


def _cut(
    data: bytes, placed: Sequence[_Placed], acquired: list[Acquired], batch_size: int
) -> Found:
    """The batches that hold what was acquired, and nothing before or behind them."""
    holding = [
        each
        for each in placed
        if each.batch.last >= acquired[0].first and each.batch.first <= acquired[-1].last
    ]
    if not holding:
        return Found(b"", acquired)
    ends = [each.batch.last for each in holding]
    return Found(data[holding[0].start : holding[-1].end], list(_split(acquired, ends, batch_size)))


def _split(acquired: list[Acquired], ends: list[int], size: int) -> Iterator[Acquired]:
    """The ranges, cut where a batch ends if that makes parts of `size` records or more."""
    for first, last, deliveries in acquired:
        for end in ends:
            if first <= end < last and end - first + 1 >= max(1, size):
                yield Acquired(first, end, deliveries)
                first = end + 1
        yield Acquired(first, last, deliveries)
