"""What a round of compaction would drop, found by doing all of it but the writing.

This file knows how to put it into a document. It reads as much as the round itself does, so it
belongs into another thread, with a `Files` of its own.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Final

from strandline.storage.compaction.cleaning import UNHURRIED, Pace, Round, as_cleaning_errors
from strandline.storage.compaction.plan import CleaningPlan
from strandline.storage.files import Files

RANGES_MAX: Final = 1000
"""How many ranges of offsets are named for each group."""


@dataclass(frozen=True, slots=True)
class GroupOutlook:
    """What would become of neighbouring segments."""

    segments: tuple[int, ...]
    """Their base offsets; the first would be the new segment's."""
    bytes_before: int
    bytes_after: int
    records_before: int
    records_after: int
    gone: tuple[tuple[int, int], ...]
    """The first `RANGES_MAX` ranges (first, last) of offsets that would go."""
    is_complete: bool
    """Whether `gone` names all of them."""


@dataclass(frozen=True, slots=True)
class DryRun:
    """The outlook of a whole round."""

    cleaned_to: int
    map_is_full: bool
    keys: int
    groups: tuple[GroupOutlook, ...]

    def to_json(self) -> dict[str, object]:
        """For documents."""
        return {
            "cleaned_to": self.cleaned_to,
            "map_is_full": self.map_is_full,
            "keys": self.keys,
            "bytes_before": sum(group.bytes_before for group in self.groups),
            "bytes_after": sum(group.bytes_after for group in self.groups),
            "records_before": sum(group.records_before for group in self.groups),
            "records_after": sum(group.records_after for group in self.groups),
            "groups": [asdict(group) for group in self.groups],
        }


def dry_run(plan: CleaningPlan, files: Files, pace: Pace = UNHURRIED) -> DryRun:
    """What `carry_out` would do with the plan. Raises the same errors."""
    with as_cleaning_errors(plan):
        return _dry_run(Round(plan, files, pace, notes_gone=True))


def _dry_run(round_: Round) -> DryRun:
    groups = round_.prepare()
    copier, batch_filter = round_.copier(), round_.filter
    outlooks: list[GroupOutlook] = []
    for group in groups:
        read, kept = batch_filter.records_read, batch_filter.records_kept
        written = sum(len(copied.batches) for copied in copier.copy(group))
        gone = batch_filter.take_gone()
        outlooks.append(
            GroupOutlook(
                segments=tuple(segment.base_offset for segment in group),
                bytes_before=sum(segment.size_bytes for segment in group),
                bytes_after=written,
                records_before=batch_filter.records_read - read,
                records_after=batch_filter.records_kept - kept,
                gone=tuple(gone[:RANGES_MAX]),
                is_complete=len(gone) <= RANGES_MAX,
            )
        )
    stats = round_.stats
    return DryRun(round_.end_offset, stats.map_is_full, stats.keys, tuple(outlooks))
