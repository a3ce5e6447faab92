"""The batches of several replicas beside each other, where they must be equal.

This file knows that replicas hold the same batches, byte for byte, below the high watermarks that
both know and above what compaction may have changed. It must not know files. Batches that a finding
is about already, and places where nothing is, are not compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from strandline.storage.verify.findings import Findings, Kind
from strandline.storage.verify.walk import Fact, Walk

_OTHER_BOUNDS: Final = "a batch that begins before"


class _Reader:
    """One replica on its way. `covered_to` is behind the last batch that was passed."""

    def __init__(self, walk: Walk) -> None:
        self.broker = walk.replica.broker
        self.start = walk.first_offset
        self.end = walk.replica.high_watermark or 0
        self.head: Fact | None = None
        self.covered_to = 0
        self.was_sound = True
        self._facts: Iterator[Fact] = walk.facts()
        self.advance()

    def advance(self) -> None:
        """Go to the next batch."""
        if self.head is not None:
            self.covered_to = max(self.covered_to, self.head.last_offset + 1)
            self.was_sound = self.head.is_sound
        self.head = next(self._facts, None)

    def describe(self, fact: Fact) -> str | None:
        """What this replica has where another one has `fact`; None if it cannot be judged there."""
        if fact.base_offset < self.start or fact.last_offset >= self.end:
            return None
        head = self.head
        if fact.base_offset < self.covered_to:
            return _OTHER_BOUNDS if self.was_sound else None
        if head is None or not head.is_sound:
            return None
        if head.base_offset != fact.base_offset:
            return None  # below its end and yet not there: its own walk has said so
        return (
            f"offsets {head.base_offset} to {head.last_offset} of leader epoch {head.leader_epoch} "
            f"in {head.size_bytes} bytes with checksum {head.crc:#010x}"
        )


def compare(walks: Sequence[Walk], findings: Findings, *, frontier: int) -> None:
    """Walk through all replicas to their ends, and note where they differ from `frontier` on."""
    readers = [_Reader(walk) for walk in walks]
    diverged_to = 0
    while True:
        heads = [reader.head for reader in readers if reader.head is not None]
        if not heads:
            return
        fact = min(heads, key=_place)
        if fact.is_sound and fact.base_offset >= max(frontier, diverged_to):
            diverged_to = max(diverged_to, _compare_at(readers, fact, findings))
        elif fact.is_sound and fact.base_offset < diverged_to:
            diverged_to = max(diverged_to, fact.last_offset + 1)
        for reader in readers:
            if reader.head is not None and reader.head.base_offset == fact.base_offset:
                reader.advance()


def _compare_at(readers: Sequence[_Reader], fact: Fact, findings: Findings) -> int:
    """Compare at one batch; returns up to where the replicas differ, 0 if they do not."""
    told: dict[str, list[int]] = {}
    for reader in readers:
        description = reader.describe(fact)
        if description is not None:
            told.setdefault(description, []).append(reader.broker)
    if len(told) < 2:
        return 0
    brokers = tuple(sorted(broker for group in told.values() for broker in group))
    groups = sorted(told.items(), key=lambda each: (-len(each[1]), each[1]))
    sentence = ", ".join(f"{_names(group)} {description}" for description, group in groups)
    end = max(
        reader.head.last_offset + 1
        for reader in readers
        if reader.head is not None and reader.head.base_offset == fact.base_offset
    )
    findings.add(
        Kind.DIVERGENCE,
        f"{sentence[0].upper()}{sentence[1:]}.",
        offset=fact.base_offset,
        end_offset=end,
        brokers=brokers,
    )
    return end


def _names(brokers: Sequence[int]) -> str:
    names = ", ".join(map(str, sorted(brokers)))
    return f"broker {names} has" if len(brokers) == 1 else f"brokers {names} have"


def _place(fact: Fact) -> tuple[int, bool]:
    """Sound batches come before the holes that begin with them."""
    return fact.base_offset, not fact.is_sound
