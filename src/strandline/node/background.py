"""What a node does without being asked: checkpoints, and the timers of all other periodic work.

Each piece of work has Kafka's interval and its own timer. Retention stands in `retention_task`,
rolls by age in `rolling_task`, compaction in `log_cleaner`. Syncing log data is the driver's work
in another thread; what is asked of it, and when, stands in `log_syncer`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from strandline.errors import StorageError
from strandline.node.dry_runs import DryRuns
from strandline.node.log_cleaner import LogCleaner
from strandline.node.log_moves import LogMoves
from strandline.node.log_syncer import LogSyncer
from strandline.node.logs import Directory
from strandline.node.outbox import Outbox
from strandline.node.replicas import Replicas
from strandline.node.retention_task import RetentionTask
from strandline.node.rolling_task import RollingTask
from strandline.node.settings import Settings
from strandline.node.timers import Timers
from strandline.storage.files import NoRoom
from strandline.types import Instant

log = logging.getLogger(__name__)

_ROLL_CHECK_MS: Final = 10_000
_REMOVAL_CHECK_MS: Final = 10_000

Work = Callable[[Instant], None]


class Background:
    """The periodic work of a node."""

    def __init__(
        self, replicas: Replicas, settings: Settings, timers: Timers, outbox: Outbox
    ) -> None:
        self._replicas = replicas
        self._settings = settings
        self._timers = timers
        self._syncing = LogSyncer(replicas, outbox)
        self._rolling = RollingTask(replicas, timers, self._syncing)
        self.cleaning = LogCleaner(replicas, settings, timers, outbox)
        self.moves = LogMoves(replicas, settings, timers, self._syncing, self.cleaning)
        self.dry_runs = DryRuns(outbox)
        self.retention_task = RetentionTask(
            replicas, timers, outbox, is_busy=self.cleaning.is_under_way
        )

    def start(self, now: Instant) -> None:
        """Begin all periodic work."""
        broker = self._settings.broker
        self._replicas.logs.take_leftovers(broker.topic_defaults.file_delete_delay_ms, now)
        self.cleaning.start(now)
        initial_ms = broker.log_initial_task_delay_ms
        ledgers = self._replicas.host.ledgers
        lag_check_ms = max(1, broker.replica_lag_time_max_ms // 2)
        for interval_ms, first_ms, work in (
            (broker.replica_high_watermark_checkpoint_interval_ms, 0, self._write_high_watermarks),
            (broker.log_flush_offset_checkpoint_interval_ms, initial_ms, self._write_recovery),
            (broker.log_flush_start_offset_checkpoint_interval_ms, initial_ms, self._write_starts),
            (
                broker.log_retention_check_interval_ms,
                initial_ms,
                self.retention_task.apply_retention,
            ),
            (broker.producer_id_expiration_check_interval_ms, initial_ms, self._expire_producers),
            (lag_check_ms, lag_check_ms, self._check_lag),
            (broker.log_retention_check_interval_ms, initial_ms, ledgers.expire),
            (_ROLL_CHECK_MS, _ROLL_CHECK_MS, self._rolling.roll_and_sync),
            (_REMOVAL_CHECK_MS, _REMOVAL_CHECK_MS, self.retention_task.remove_files),
        ):
            self.repeat(interval_ms, max(first_ms, 1), work, now)

    def act(self, now: Instant) -> None:
        """Notice what concerns logs that are being compacted or moved. Once per turn."""
        self.cleaning.act()
        self.moves.act(now)

    def sync_if_wanted(self, now: Instant) -> None:
        """Have logs synced that want it since this turn."""
        self._syncing.end_turn(now)

    def log_synced(self, token: int, result: bool | StorageError, now: Instant) -> None:
        """The driver carried out a plan; false if a file was gone meanwhile."""
        self._syncing.synced(token, result, now)

    def repeat(self, interval_ms: int, first_ms: int, work: Work, now: Instant) -> None:
        """Do the work in `first_ms`, and from then on every `interval_ms`; as in Kafka never again
        if that is not positive."""

        def run(at: Instant) -> None:
            # First the next time: work that fails must not be the last of its kind.
            if interval_ms > 0:
                self._timers.schedule(at.monotonic_ms + interval_ms, run)
            try:
                work(at)
            except Exception:
                log.exception("Periodic work failed")

        self._timers.schedule(now.monotonic_ms + first_ms, run)

    def _directories(self) -> list[Directory]:
        return [d for d in self._replicas.logs.directories if d.offline_reason is None]

    def _guarded(self, directory: Directory, work: Callable[[], object]) -> None:
        """Do work on a directory; a disk error takes it offline and is told once.

        A full disk, or a want of handles, only delays it: the next round tries again.
        """
        try:
            work()
        except NoRoom as error:
            log.warning("%s is delayed: %s", directory.path, error)
        except StorageError as error:
            self._replicas.logs.take_offline(directory, error)

    def _write_high_watermarks(self, now: Instant) -> None:
        del now
        if not self._replicas.has_roles:
            return
        for directory in self._directories():
            self._guarded(directory, directory.write_high_watermarks)

    def _write_recovery(self, now: Instant) -> None:
        del now
        for directory in self._directories():
            self._guarded(directory, directory.write_recovery_points)

    def _write_starts(self, now: Instant) -> None:
        """What a full disk has delayed; and the entries of logs that began anew."""
        del now
        self._replicas.logs.save_log_starts(retry=True)
        for directory in self._directories():
            self._guarded(directory, directory.write_log_starts)

    def _check_lag(self, now: Instant) -> None:
        for replica in self._replicas:
            if replica.leading is not None:
                replica.leading.check_lag(now)

    def _expire_producers(self, now: Instant) -> None:
        for replica in self._replicas:
            replica.log.producers.remove_expired(now.wall_ms)
