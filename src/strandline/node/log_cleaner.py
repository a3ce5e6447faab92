"""Compaction as the node sees it: which log is next, what becomes of results, what makes them void.

At most `log.cleaner.threads` rounds are under way, each of another log. The heavy part of a round
runs in the driver (`CleanLog`); the node swaps in what comes of it, segment by segment, between two
turns. A log that cannot be compacted as it is, is left alone until the next start, as in Kafka; a
person may insist (`ask`). What is compacted, and how, stands in `storage.compaction`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Final, TypeAlias

from strandline.errors import InvalidSetting, StorageError, StrandlineError
from strandline.node.effects import CleanLog, PaceCleaning, StopCleaning
from strandline.node.logs import Directory
from strandline.node.outbox import Outbox
from strandline.node.replica import Replica
from strandline.node.replicas import Replicas
from strandline.node.settings import Settings
from strandline.node.slices import SlicedWork, Slices
from strandline.node.timers import Timer, Timers
from strandline.storage.compaction.bounds import CleanableRange, cleanable_range
from strandline.storage.compaction.choice import Candidate, choose
from strandline.storage.compaction.cleaning import CleaningAborted, Uncleanable
from strandline.storage.compaction.plan import (
    CleanerSettings,
    CleaningPlan,
    CleaningResult,
    CleaningStats,
)
from strandline.storage.compaction.planner import plan_cleaning
from strandline.storage.files import NoRoom
from strandline.storage.log import Log
from strandline.types import Instant, TopicPartition

log = logging.getLogger(__name__)

LOGS_PER_TURN: Final = 50
"""Logs of which it is found out in one turn whether they are due."""

Outcome: TypeAlias = StrandlineError | None
"""Why a round has ended early, if it has."""


@dataclass(slots=True, eq=False)
class Round:
    """A round under way. Times are wall-clock milliseconds."""

    token: int
    replica: Replica
    plan: CleaningPlan
    began_ms: int
    stats: CleaningStats = field(default_factory=CleaningStats)
    is_void: bool = False
    """Nothing that still comes of it is wanted."""

    def is_of(self, log: Log) -> bool:
        """Whether it works on the log, or where the log lies now: one that was loaded again, or
        made anew under the name of a deleted one, has its files where a void round may write."""
        return self.replica.log is log or self.plan.directory == log.directory


@dataclass(frozen=True, slots=True)
class LastRound:
    """How the last round of a log has ended, or why it could not begin.

    `problem` is a sentence, or None if all went well.
    """

    began_ms: int
    ended_ms: int
    stats: CleaningStats
    problem: str | None


class LogCleaner:
    """See the module.

    - `uncleanable`: logs that are left alone, and why.
    - `last`: the last round of each log.
    - `asked`: logs that an operator wants compacted although they may not be due.
    - `held`: logs that are not compacted for now, since they are being copied.
    """

    def __init__(
        self, replicas: Replicas, settings: Settings, timers: Timers, outbox: Outbox
    ) -> None:
        self.uncleanable: dict[Log, str] = {}
        self.last: dict[Log, LastRound] = {}
        self.asked: dict[Log, None] = {}
        self.held: set[Log] = set()
        self._replicas = replicas
        self._settings = settings
        self._timers = timers
        self._outbox = outbox
        self._tokens = count(1)
        self._rounds: dict[int, Round] = {}
        self._search = SlicedWork("Looking for logs to compact", timers, self._look)
        self._timer: Timer | None = None
        self._pace: float | None = None
        self._is_stopping = False

    # -- Life --------------------------------------------------------------------------------

    def start(self, now: Instant) -> None:
        """Begin to look for logs to compact."""
        if self._settings.broker.log_cleaner_enable:
            self._look_after(self._settings.broker.log_cleaner_backoff_ms, now)

    def stop(self) -> None:
        """End what is under way, and begin nothing more."""
        self._is_stopping = True
        for each in self._rounds.values():
            self._void(each)

    def act(self) -> None:
        """Notice what makes rounds void. Once per turn."""
        for each in self._rounds.values():
            replica = each.replica
            if not each.is_void and (
                replica.is_retired
                or replica.log.failure is not None
                or replica.log.offsets.truncations != each.plan.truncations
            ):
                self._void(each)

    def hold(self, of: Log) -> None:
        """Leave a log alone until it is `released`."""
        self.held.add(of)
        for each in self._rounds.values():
            if each.is_of(of):
                self._void(each)

    def release(self, of: Log) -> None:
        """It may be compacted again."""
        self.held.discard(of)

    def is_under_way(self, of: Log) -> bool:
        """Whether a round of the log is under way: its oldest segments must not go meanwhile."""
        return any(each.is_of(of) for each in self._rounds.values())

    def round_of(self, of: Log) -> Round | None:
        """The round of the log that is under way."""
        return next((each for each in self._rounds.values() if each.is_of(of)), None)

    def ask(self, replica: Replica, now: Instant) -> None:
        """Compact the log as soon as a cleaner is free, whether it is due or not.

        What was written so far counts, so the active segment is closed first. Raises
        `StorageError`.
        """
        replica.log.roller.roll(now.wall_ms)
        replica.note_flush()
        self.uncleanable.pop(replica.log, None)
        last = self.last.get(replica.log)
        if last is not None and last.problem is not None:
            del self.last[replica.log]  # or it would be told as the outcome of this wish
        self.asked[replica.log] = None
        self._look_after(0, now)

    # -- Choosing ----------------------------------------------------------------------------

    def _look_after(self, delay_ms: int, now: Instant) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._timers.schedule(now.monotonic_ms + max(1, delay_ms), self._begin)

    def _begin(self, now: Instant) -> None:
        # First the next time: a look that fails must not be the last. One that ends says it anew.
        self._look_after(self._settings.broker.log_cleaner_backoff_ms, now)
        self._search.begin(now)

    def _look(self) -> Slices:
        now = yield
        due: list[tuple[bool, float, TopicPartition, Replica, Directory]] = []
        for looked, (replica, directory) in enumerate(self._candidates(), 1):
            is_asked = replica.log in self.asked
            ratio = self._due_ratio(replica, directory, now)
            if is_asked or ratio is not None:
                key = (not is_asked, -(ratio or 0.0), replica.topic_partition)
                due.append((*key, replica, directory))
            if looked % LOGS_PER_TURN == 0:
                now = yield
        self._forget_the_gone()
        due.sort(key=lambda item: item[:3])
        free = self._settings.broker.log_cleaner_threads - len(self._rounds)
        for _, _, _, replica, directory in due:
            if free > 0 and not replica.is_retired and not self._is_stopping:
                free -= self._start_round(replica, directory, now)
        # Who has asked in the meantime does not wait as long as a log that may become due.
        is_asked_again = bool(self.asked) and free > 0
        self._look_after(0 if is_asked_again else self._settings.broker.log_cleaner_backoff_ms, now)

    def _forget_the_gone(self) -> None:
        hosted = {replica.log for replica in self._replicas if replica.log.failure is None}
        for table in (self.uncleanable, self.last, self.asked):
            for gone in [each for each in table if each not in hosted]:
                table.pop(gone)
        for each in [each for each in self.asked if not each.config.is_compacted]:
            del self.asked[each]

    def _candidates(self) -> Iterator[tuple[Replica, Directory]]:
        """The logs that could be compacted, as far as they still could when their turn comes."""
        for replica in list(self._replicas):
            candidate = replica.log
            if (
                not candidate.config.is_compacted
                or candidate.failure is not None
                or candidate in self.uncleanable
                or candidate in self.held
                or replica.is_retired
                or self.is_under_way(candidate)
            ):
                continue
            directory = self._replicas.logs.directory_of(replica.topic_partition)
            if directory is not None and directory.offline_reason is None:
                yield replica, directory

    def _due_ratio(self, replica: Replica, directory: Directory, now: Instant) -> float | None:
        """The share of the log that can be compacted, if it is due."""
        checkpoint = directory.cleaner_offsets.get(replica.topic_partition)
        try:
            choice = choose([Candidate(replica.log, checkpoint)], now.wall_ms)
        except StorageError as error:
            log.error("%s cannot be compacted: %s", replica.topic_partition, error)
            return None
        return None if choice is None else choice.range.ratio

    def _start_round(self, replica: Replica, directory: Directory, now: Instant) -> bool:
        """Have a log compacted; whether a round began."""
        self.asked.pop(replica.log, None)
        try:
            plan = self._plan(replica, directory, now)
        except (StorageError, InvalidSetting) as error:
            log.error("%s cannot be compacted: %s", replica.topic_partition, error)
            none = CleaningStats()
            self.last[replica.log] = LastRound(now.wall_ms, now.wall_ms, none, str(error))
            return False
        if plan is None:
            return False
        token = next(self._tokens)
        self._rounds[token] = Round(token, replica, plan, now.wall_ms)
        pace = self._settings.broker.log_cleaner_io_max_bytes_per_second
        if pace != self._pace:
            self._pace = pace
            self._outbox.add(PaceCleaning(pace))
        self._outbox.add(CleanLog(token, plan))
        return True

    def plan(self, replica: Replica, now: Instant) -> CleaningPlan | None:
        """What a round of the log would be now, due or not; None if there is nothing to do.

        Raises `StorageError` and `InvalidSetting`.
        """
        directory = self._replicas.logs.directory_of(replica.topic_partition)
        return None if directory is None else self._plan(replica, directory, now)

    def cleanable(self, replica: Replica, now: Instant) -> CleanableRange | None:
        """What of the log can be compacted now; None if its directory cannot be used. Raises
        `StorageError`."""
        directory = self._replicas.logs.directory_of(replica.topic_partition)
        return None if directory is None else _cleanable(replica, directory, now)

    def _plan(self, replica: Replica, directory: Directory, now: Instant) -> CleaningPlan | None:
        found = _cleanable(replica, directory, now)
        return plan_cleaning(replica.log, found, self._cleaner_settings(), now.wall_ms)

    def _cleaner_settings(self) -> CleanerSettings:
        broker = self._settings.broker
        threads = max(1, broker.log_cleaner_threads)
        return CleanerSettings(
            dedupe_buffer_bytes=broker.log_cleaner_dedupe_buffer_size // threads,
            load_factor=broker.log_cleaner_io_buffer_load_factor,
            io_buffer_bytes=broker.log_cleaner_io_buffer_size // threads,
        )

    # -- What comes of it --------------------------------------------------------------------

    def log_cleaned(self, token: int, result: CleaningResult, now: Instant) -> None:
        """A new segment is ready: let it take its place."""
        each = self._rounds[token]
        replica = each.replica
        each.stats = result.stats
        if each.is_void:
            self._guarded(replica, lambda: replica.log.swap.discard_cleaning(result))
            return
        swapped = self._guarded(
            replica, lambda: replica.log.swap.finish_cleaning(result, now.wall_ms)
        )
        if not swapped:
            self._void(each)
            return
        directory = self._replicas.logs.directory_of(replica.topic_partition)
        if result.cleaned_to is not None and directory is not None:
            to = result.cleaned_to
            self._guarded(
                replica, lambda: directory.set_cleaner_offset(replica.topic_partition, to)
            )

    def cleaning_ended(self, token: int, error: Outcome, now: Instant) -> None:
        """Nothing more comes of a round."""
        each = self._rounds.pop(token)
        replica = each.replica
        if error is None and each.is_void:
            error = CleaningAborted("The log has changed meanwhile.")
        problem = None if error is None else str(error)
        self.last[replica.log] = LastRound(each.began_ms, now.wall_ms, each.stats, problem)
        if isinstance(error, Uncleanable):
            log.error("%s is not compacted any more: %s", replica.topic_partition, error)
            self.uncleanable[replica.log] = str(error)
        elif isinstance(error, CleaningAborted | NoRoom):
            log.info("The compaction of %s is put off: %s", replica.topic_partition, error)
        elif isinstance(error, StorageError):
            replica.fail(error)
        else:
            self._log_result(each, now)
        if not self._is_stopping and not isinstance(error, CleaningAborted | NoRoom):
            self._look_after(0, now)  # the next one is chosen without a pause

    def _log_result(self, each: Round, now: Instant) -> None:
        stats = each.stats
        log.info(
            "%s is compacted: %d of %d records stay, %d of %d bytes, in %.1f s",
            each.replica.topic_partition,
            stats.records_kept,
            stats.records_read,
            stats.bytes_written,
            stats.bytes_read,
            (now.wall_ms - each.began_ms) / 1000,
        )

    def _void(self, each: Round) -> None:
        if not each.is_void:
            each.is_void = True
            self._outbox.add(StopCleaning(each.token))

    def _guarded(self, replica: Replica, work: Callable[[], bool | None]) -> bool:
        """Change files; False if that was in vain. A disk that fails is not used any more."""
        try:
            return work() is not False
        except NoRoom as error:
            log.warning("The compaction of %s is put off: %s", replica.topic_partition, error)
            if replica.log.failure is not None:
                replica.fail(error)
        except StorageError as error:
            replica.fail(error)
        return False


def _cleanable(replica: Replica, directory: Directory, now: Instant) -> CleanableRange:
    checkpoint = directory.cleaner_offsets.get(replica.topic_partition)
    return cleanable_range(replica.log, checkpoint, now.wall_ms)
