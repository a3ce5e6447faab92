"""Rules of compaction: what may be compacted, what has to stay, when it is durable."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from strandline.node import log_cleaner
from strandline.records.compacting import FilterRules
from strandline.storage.compaction import bounds, cleaning
from strandline.storage.compaction.bounds import Bound
from strandline.storage.compaction.plan import CleaningPlan, CleaningResult
from strandline.storage.compaction.planner import plan_cleaning
from strandline.storage.log import Log
from strandline.storage.segment_swap import SegmentSwap
from strandline.types import Offset
from tests.sim.mutants.mutant import Mutant, patch

_true_finish = SegmentSwap.finish_cleaning
_END_OF_TIME: Final = 2**62


def _up_to_the_active_segment(log: Log, first_dirty: Offset, now_ms: int) -> tuple[Offset, Bound]:
    del first_dirty, now_ms
    return Offset(log.active.base_offset), Bound.ACTIVE_SEGMENT


def _all_horizons_are_over(**rules: Any) -> FilterRules:
    return FilterRules(**{**rules, "now_ms": _END_OF_TIME})


def _without_producers(*args: Any) -> CleaningPlan | None:
    plan = plan_cleaning(*args)
    return None if plan is None else replace(plan, producers=())


class _NeverSynced:
    """The files of a log, with directories that are not synced."""

    def __init__(self, files: Any) -> None:
        self._files = files

    def sync_directory(self, path: str) -> None:
        del path

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)


def _not_durably(self: SegmentSwap, result: CleaningResult, now_ms: int) -> bool:
    location = self._location
    files = location.files
    location.files = _NeverSynced(files)
    try:
        return _true_finish(self, result, now_ms)
    finally:
        location.files = files


COMPACTING: Final = (
    Mutant(
        "compact-what-is-committed",
        "Compaction keeps away from what is not committed yet, or undecided (4.6).",
        ("I-44", "I-14", "I-23", "I-25"),
        patch(bounds, _bound=_up_to_the_active_segment),
    ),
    Mutant(
        "tombstones-have-a-horizon",
        "A tombstone stays until its horizon is over: readers on their way must see it (KIP-534).",
        ("I-44",),
        patch(cleaning, FilterRules=_all_horizons_are_over),
    ),
    Mutant(
        "remember-last-batches",
        "The last batch of a producer stays, without records if need be (4.6).",
        ("I-05", "I-30", "I-46"),
        patch(log_cleaner, plan_cleaning=_without_producers),
    ),
    Mutant(
        "swaps-are-durable",
        "Each step of a swap is on disk before the next one (4.6, F-53).",
        ("I-46", "I-44", "I-36", "I-07", "I-08", "I-04", "I-02"),
        patch(SegmentSwap, finish_cleaning=_not_durably),
    ),
)
