"""Rules for what meets by chance: deletions beside moves, rounds, loads and fetches, full disks."""

from __future__ import annotations

from typing import Any, Final

from strandline.node import logs
from strandline.node.fetcher import Fetcher
from strandline.node.fetcher_partition import FetchedPartition
from strandline.node.fetchers import Fetchers
from strandline.node.log_cleaner import Round
from strandline.node.log_moves import LogMoves
from strandline.node.log_reloading import reload_log
from strandline.storage.log import Log
from strandline.storage.log_directory import LogDirectory
from strandline.storage.retention import Retention
from strandline.types import Instant
from tests.sim.mutants.mutant import Mutant, nothing, patch, yes

_true_leave_out = Fetcher._leave_out
_true_work = LogMoves._work


def _is_of_this_log(self: Round, log: Log) -> bool:
    return self.replica.log is log


def _left_out_later(self: Fetcher, partition: FetchedPartition) -> None:
    is_changed = partition in self._changed
    _true_leave_out(self, partition)
    if is_changed:
        self._changed[partition] = None


def _reloaded(*args: Any, **options: Any) -> Log:
    with patch(LogDirectory, write_log_starts=yes)():
        return reload_log(*args, **options)


def _without_looking(self: LogMoves, now: Instant) -> None:
    with patch(LogMoves, act=nothing)():
        _true_work(self, now)


MEETING: Final = (
    Mutant(
        "drop-segments-in-order",
        "While a full disk does not take the log start, a segment is durably gone before the next.",
        ("I-14", "I-23", "I-46", "I-49"),
        patch(Retention, _make_drops_durable=nothing),
    ),
    Mutant(
        "one-round-in-a-directory",
        "No round of compaction begins where a void one of the same files has not ended.",
        ("I-36", "I-44", "I-46", "I-49", "I-50"),
        patch(Round, is_of=_is_of_this_log),
    ),
    Mutant(
        "deleted-logs-do-not-move",
        "The move of a log that is deleted in this turn is no failure of its disk.",
        ("I-49",),
        patch(LogMoves, _work=_without_looking),
    ),
    Mutant(
        "fetch-what-is-followed",
        "What is left out of a follower's fetches is not asked for with the next one.",
        ("I-49", "I-50", "I-09"),
        patch(Fetcher, _leave_out=_left_out_later),
    ),
    Mutant(
        "tell-late-starts",
        "A follower tells its leader of a log start that was written down later (KIP-107).",
        ("I-51",),
        patch(Fetchers, starts_saved=nothing),
    ),
    Mutant(
        "write-starts-of-loaded-logs",
        "The start of a log that is loaded again is written before it counts as saved (I-27).",
        ("I-27",),
        patch(logs, reload_log=_reloaded),
    ),
)
