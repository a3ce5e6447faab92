"""Answers to look-ups of offsets by time, with the broker that gave each.

Not part of the history: it is judged at once, while the logs are as they were.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from strandline.types import BrokerId, TopicId, TopicPartition


class Leadership(NamedTuple):
    """Who leads a partition: one process in one leader epoch."""

    broker_id: BrokerId
    life: int
    """Of the broker's processes the how-manieth."""
    leader_epoch: int
    topic_id: TopicId


NEWEST: Final = -3
"""In place of a time: which record is the newest (KIP-734)."""


@dataclass(frozen=True, slots=True)
class TimeAnswer:
    """What a leader has said, which led in the same way before and after."""

    at: TopicPartition
    led: Leadership
    high_watermark: int
    """When it was asked."""
    asked: int
    """Milliseconds since 1970, or `NEWEST`."""
    offset: int
    """-1: there is no such record."""
    timestamp: int
