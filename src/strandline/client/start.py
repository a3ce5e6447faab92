"""Where to begin reading a partition: places, and the offsets that they stand for.

This file knows which offsets must be asked for. It must not know how that is done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from strandline.client.offsets import EARLIEST, LATEST
from strandline.types import Offset, TopicPartition

AskOffsets: TypeAlias = Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, int]]
"""The offsets of `EARLIEST`, `LATEST` or a time, below 0 where there is no such record."""


class _Anchor(Enum):
    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class Start:
    """Where to begin in a partition."""

    anchor: _Anchor
    value: int = 0

    @classmethod
    def earliest(cls, plus: int = 0) -> Start:
        """The log's first offset, or so many after it."""
        return cls(_Anchor.EARLIEST, plus)

    @classmethod
    def latest(cls, minus: int = 0) -> Start:
        """The end of the log, or so many offsets before it but not before its start."""
        return cls(_Anchor.LATEST, minus)

    @classmethod
    def at_offset(cls, offset: int) -> Start:
        """Exactly there."""
        return cls(_Anchor.OFFSET, offset)

    @classmethod
    def at_time(cls, timestamp_ms: int) -> Start:
        """The first record at or after a time; the end of the log if there is none."""
        return cls(_Anchor.TIME, timestamp_ms)


STARTS: Final = {"earliest": Start.earliest(), "latest": Start.latest(), "none": None}
"""By the values of `auto.offset.reset`."""


def first_starts(
    partitions: Iterable[TopicPartition],
    committed: Mapping[TopicPartition, Offset],
    reset: Start | None,
) -> dict[TopicPartition, Start | None]:
    """Where the group has come to, or else `reset`; None without either."""
    return {
        each: Start.at_offset(committed[each]) if each in committed else reset
        for each in partitions
    }


def resolve_starts(
    starts: Mapping[TopicPartition, Start], ask: AskOffsets
) -> dict[TopicPartition, Offset]:
    """The offsets that the places stand for at the moment; `ask` is called where it is needed, and
    what it does not tell is absent."""

    def asked(needs: Callable[[Start], bool], which: int) -> Mapping[TopicPartition, int]:
        wanted = {at: which for at, start in starts.items() if needs(start)}
        return ask(wanted) if wanted else {}

    earliest = asked(_needs_start, EARLIEST)
    latest = asked(_needs_end, LATEST)
    times = {at: each.value for at, each in starts.items() if each.anchor is _Anchor.TIME}
    timed = ask(times) if times else {}
    found: dict[TopicPartition, Offset] = {}
    for partition, start in starts.items():
        try:
            match start.anchor:
                case _Anchor.EARLIEST:
                    offset = earliest[partition] + start.value
                case _Anchor.LATEST:
                    offset = latest[partition] - start.value
                    if start.value:
                        offset = max(offset, earliest[partition])
                case _Anchor.OFFSET:
                    offset = start.value
                case _Anchor.TIME:
                    offset = timed[partition]
                    if offset < 0:
                        offset = latest[partition]
        except KeyError:
            continue
        found[partition] = Offset(offset)
    return found


def _needs_start(start: Start) -> bool:
    return start.anchor is _Anchor.EARLIEST or (start.anchor is _Anchor.LATEST and start.value > 0)


def _needs_end(start: Start) -> bool:
    return start.anchor in (_Anchor.LATEST, _Anchor.TIME)
