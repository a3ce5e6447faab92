"""How an update changes the stored state of a share partition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from strandline.sharing.records import Change, ShareState, Update
from strandline.sharing.runs import StateBatch

UNCHANGED = -1


def updated(state: ShareState | None, change: Change) -> ShareState | None:
    """The state after a change."""
    if not isinstance(change, Update):
        return change
    if state is None:
        return None  # what compaction, or pruning, left of a share partition that is gone
    start = state.start if change.start == UNCHANGED else change.start
    return replace(
        state,
        leader_epoch=state.leader_epoch
        if change.leader_epoch == UNCHANGED
        else change.leader_epoch,
        start=start,
        done_count=change.done_count,
        batches=combined(state.batches, change.batches, start),
    )


def combined(
    old: Sequence[StateBatch], new: Iterable[StateBatch], start: int
) -> tuple[StateBatch, ...]:
    """The newer batches over the older ones, without what is before the start; neighbours in the
    same state are one batch."""
    newer = sorted(new)
    pieces = sorted([*newer, *_uncovered(old, newer)])
    combined: list[StateBatch] = []
    for piece in pieces:
        if piece.last < start:
            continue
        batch = piece._replace(first=max(piece.first, start))
        last = combined[-1] if combined else None
        if last is not None and last[2:] == batch[2:] and last.last + 1 == batch.first:
            combined[-1] = last._replace(last=batch.last)
        else:
            combined.append(batch)
    return tuple(combined)


def _uncovered(old: Sequence[StateBatch], newer: Sequence[StateBatch]) -> Iterator[StateBatch]:
    """What of the older batches no newer one is about; both are in order."""
    at = 0
    for batch in old:
        first = batch.first
        while at < len(newer) and newer[at].last < first:
            at += 1
        here = at
        while here < len(newer) and newer[here].first <= batch.last:
            if first < newer[here].first:
                yield batch._replace(first=first, last=newer[here].first - 1)
            first = newer[here].last + 1
            here += 1
        if first <= batch.last:
            yield batch._replace(first=first)
