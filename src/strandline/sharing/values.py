"""What a share partition is told and tells: acknowledgements, records that were given, limits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final, NamedTuple

from strandline.errors import ErrorCode, ProtocolError
from strandline.protocol.acknowledge_type import AckType
from strandline.sharing.runs import RecordState, StateBatch, Status


class AckBatch(NamedTuple):
    """What became of records: one type for all, or one for each."""

    first: int
    last: int
    types: Sequence[int]


class Acquired(NamedTuple):
    """Records that belong to a member now, for the `deliveries`-th time."""

    first: int
    last: int
    deliveries: int


class Write(NamedTuple):
    """What has to be stored; `SharePartition.written` is to be told its end."""

    write_id: int
    start: int
    batches: tuple[StateBatch, ...]
    done_count: int
    """How many records of the window are done, the start left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a group's settings allow; each default is that of Kafka 4.3."""

    lock_ms: int = 30_000
    """`share.record.lock.duration.ms`."""
    deliveries_max: int = 5
    """`share.delivery.count.limit`."""
    window_max: int = 2_000
    """`share.partition.max.record.locks`."""
    may_renew: bool = True
    """`share.renew.acknowledge.enable`."""

    @property
    def careful_after(self) -> int:
        """After so many deliveries a record is given with fewer others each time."""
        return max(2, -(-self.deliveries_max // 2))


class LogBatch(NamedTuple):
    """A record batch of the log. What is `hidden` no member may see (it was aborted, or is a
    marker)."""

    first: int
    last: int
    is_hidden: bool = False


def check_batch(batch: AckBatch, previous_last: int) -> None:
    """Refuse an acknowledgement that makes no sense, or does not come in order. Raises
    `ProtocolError` (INVALID_REQUEST)."""
    count = batch.last - batch.first + 1
    problem = None
    if batch.first < 0 or count < 1:
        problem = "is no range of offsets"
    elif batch.first <= previous_last:
        problem = "does not come behind the ranges before it"
    elif len(batch.types) not in (1, count):
        problem = f"has {len(batch.types)} types for {count} records"
    elif any(kind not in _TYPES for kind in batch.types):
        problem = "has a type that there is not"
    if problem is not None:
        raise ProtocolError(
            ErrorCode.INVALID_REQUEST,
            f"The acknowledgement of {batch.first} to {batch.last} {problem}.",
        )


_TYPES: Final = frozenset(int(kind) for kind in AckType)


def typed(batch: AckBatch) -> Iterator[tuple[int, int, int]]:
    """The parts of a batch that have the same type: first and last offset, type."""
    if len(batch.types) == 1:
        yield batch.first, batch.last, batch.types[0]
        return
    first = batch.first
    for kind, group in groupby(batch.types):
        count = len(list(group))
        yield first, first + count - 1, kind
        first += count


def released(status: Status, limits: Limits) -> RecordState:
    """What becomes of a record that a member gives back."""
    is_over = status.deliveries >= limits.deliveries_max
    return RecordState.ARCHIVED if is_over else RecordState.AVAILABLE


def united(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The ranges in order, those that overlap as one."""
    united: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if united and first <= united[-1][1] + 1:
            united[-1] = (united[-1][0], max(last, united[-1][1]))
        else:
            united.append((first, last))
    return united
