"""Whether a table's commits, one after the other, cover each partition without gap or repetition.

This file knows ranges of offsets in the order in which they were committed. It must not know where
they are kept, nor what the rows are: that is the other half of the proof (`job.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from strandline.types import TopicPartition


@dataclass(frozen=True, slots=True)
class Span:
    """Offsets from `start` up to but not including `end`."""

    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.start} to {self.end - 1}"


@dataclass(frozen=True, slots=True)
class Step:
    """What one commit says of one partition."""

    version: int
    span: Span


@dataclass(slots=True)
class Coverage:
    """What the commits say of one partition, and what is wrong with it."""

    start: int
    end: int
    """Behind the last range: the frontier as the commits tell it."""
    wrong: list[str] = field(default_factory=list)


def coverage(steps: Mapping[TopicPartition, Iterable[Step]]) -> dict[TopicPartition, Coverage]:
    """Follow each partition's ranges from the first commit to the last."""
    found: dict[TopicPartition, Coverage] = {}
    for partition, in_order in steps.items():
        for step in in_order:
            known = found.get(partition)
            if known is None:
                known = found[partition] = Coverage(step.span.start, step.span.start)
            _follow(known, step, partition)
    return found


def _follow(known: Coverage, step: Step, partition: TopicPartition) -> None:
    span = step.span
    if span.end < span.start:
        known.wrong.append(
            f"{partition}: commit {step.version} claims offsets from {span.start} back to "
            f"{span.end}."
        )
        return
    if span.start > known.end:
        missing = Span(known.end, span.start)
        known.wrong.append(
            f"{partition}: offsets {missing} are in no commit: commit {step.version} begins "
            f"at {span.start}."
        )
    elif span.start < known.end and span.end > span.start:
        twice = Span(span.start, min(span.end, known.end))
        known.wrong.append(
            f"{partition}: offsets {twice} are in more than one commit, the last of them "
            f"{step.version}."
        )
    known.end = max(known.end, span.end)
