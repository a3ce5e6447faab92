"""Moving logs between the log directories of this broker (KIP-113).

A log that moves is copied into another directory while it goes on; when the copy has all of it, the
two change places within one turn. How a copy follows its source stands in `storage.log_copy`; here
is which logs move, in which slices, how fast, and the order of the last steps:

    the copy is as durable as its source ── it takes over what no batch tells ── the tables of its
    directory say so ── its directory gets the partition's name, durably ── they change places
    ── the old log is deleted like any other

A crash before the new name is durable leaves the old log and a copy that goes on growing. After
that there are two logs of that name until the old one has lost it: the next start takes the one
that is further on (`LogDirectories`).

Each slice is as large as what a follower fetches, and the copy is never further ahead of its disk
than `UNSYNCED_MAX`: otherwise a write would have to wait for the disk one day, and all clients with
it. What goes wrong with the copy is no harm to its source: the move starts again later.
"""

from __future__ import annotations

import logging
from typing import Final

from strandline.errors import CorruptRecords, InvariantViolated, StorageError
from strandline.node.log_cleaner import LogCleaner
from strandline.node.log_syncer import LogSyncer
from strandline.node.logs import Directory
from strandline.node.replica import Replica
from strandline.node.replicas import Replicas
from strandline.node.settings import Settings
from strandline.node.timers import Timer, Timers
from strandline.replication.throttle import Throttle
from strandline.storage.files import NoRoom, join
from strandline.storage.log import Log
from strandline.storage.log_copy import LogCopy, SourceUnreadable
from strandline.types import NO_TOPIC_ID, Instant, TopicPartition

log = logging.getLogger(__name__)

SLICE_BYTES: Final = 512 * 1024
UNSYNCED_MAX: Final = 32 * 1024 * 1024
DROPS_PER_SLICE: Final = 8
_PAUSE_MS: Final = 1
_SYNC_LOOK_MS: Final = 5
"""How soon it is looked again whether a sync is over, or a round of compaction."""
_RETRY_MS: Final = 10_000
_SYNCS_WAITED: Final = 8
"""So often the copy may find that its source was synced further meanwhile. Then the little that is
missing is synced within the turn."""


class Move:
    """A log on its way to another directory. `problem` says why it does not get on, if so."""

    def __init__(self, moves: LogMoves, replica: Replica, directory: Directory, now: Instant):
        self.replica = replica
        self.directory = directory
        self.began_ms = now.wall_ms
        self.problem: str | None = None
        self.is_retired = False
        self.not_before_ms = 0
        self.unsynced_bytes = 0
        self.syncs = 0
        self._moves = moves
        self.copy: LogCopy

    @property
    def topic_partition(self) -> TopicPartition:
        return self.replica.topic_partition

    @property
    def log(self) -> Log:
        """The copy."""
        return self.copy.log

    def fail(self, error: StorageError) -> None:
        """The disk of the copy failed."""
        self._moves.failed(self, error)


class LogMoves:
    """See the module."""

    def __init__(
        self,
        replicas: Replicas,
        settings: Settings,
        timers: Timers,
        syncing: LogSyncer,
        cleaning: LogCleaner,
    ) -> None:
        self._replicas = replicas
        self._logs = replicas.logs
        self._settings = settings
        self._timers = timers
        self._syncing = syncing
        self._cleaning = cleaning
        self._moves: dict[TopicPartition, Move] = {}
        self._timer: Timer | None = None
        broker = settings.broker
        self._throttle = Throttle(
            None,
            samples=broker.alter_log_dirs_replication_quota_window_num,
            sample_ms=broker.alter_log_dirs_replication_quota_window_size_seconds * 1000,
        )

    # -- Which logs move ---------------------------------------------------------------------

    def find(self, partition: TopicPartition) -> Move | None:
        """The move of the partition's log, if it moves."""
        return self._moves.get(partition)

    def begin(self, replica: Replica, directory: Directory, now: Instant) -> None:
        """Have a log moved. Raises `StorageError`."""
        self._add(replica, directory, self._logs.make_future(replica.log, directory, now), now)

    def cancel(self, partition: TopicPartition, now: Instant) -> None:
        """Have the log stay where it is."""
        move = self._moves.get(partition)
        if move is not None:
            self._forget(move)
            self._logs.delete_logs(move.directory, [move.log], now)

    def act(self, now: Instant) -> None:
        """Go on with what was under way before, and give up what cannot go on. Once per turn."""
        if self._replicas.arrived:
            for replica in self._replicas.take_arrived():
                self._resume(replica, now)
        for move in list(self._moves.values()):
            if move.directory.futures.get(move.topic_partition) is not move.log:
                self._forget(move)  # deleted with its source
            elif move.directory.offline_reason is not None:
                self._lose(move)
            elif move.replica.is_retired or move.replica.log.failure is not None:
                self._forget(move)  # it goes on when there is a replica again

    def failed(self, move: Move, error: StorageError) -> None:
        """The copy, or its disk, cannot be used."""
        if not isinstance(error, NoRoom):
            self._logs.take_offline(move.directory, error)
            return
        self._put_off(move, str(error))

    def _resume(self, replica: Replica, now: Instant) -> None:
        found = self._logs.future_of(replica.topic_partition)
        if found is None or replica.is_retired:
            return
        directory, future = found
        if future.topic_id not in (NO_TOPIC_ID, replica.log.topic_id):
            self._logs.delete_logs(directory, [future], now)
            return
        self._add(replica, directory, future, now)

    def _add(self, replica: Replica, directory: Directory, future: Log, now: Instant) -> None:
        before = self._moves.get(replica.topic_partition)
        if before is not None:
            self._forget(before)
        move = Move(self, replica, directory, now)
        self._take(move, future)
        self._moves[move.topic_partition] = move
        self._cleaning.hold(replica.log)
        self._go_on_in(_PAUSE_MS, now)
        log.info("%s moves to %s", move.topic_partition, directory.path)

    def _take(self, move: Move, future: Log) -> None:
        self._logs.note_raised_starts_of(future)
        future.update_config(move.replica.log.config)
        move.copy = LogCopy(
            move.replica.log, future, lambda: self._logs.save_lowered_offsets(future)
        )

    def _forget(self, move: Move) -> None:
        move.is_retired = True
        self._moves.pop(move.topic_partition, None)
        self._cleaning.release(move.replica.log)

    def _lose(self, move: Move) -> None:
        """The disk of the copy is gone; the log stays where it is."""
        log.error("%s does not move to %s any more", move.topic_partition, move.directory.path)
        self._forget(move)
        move.directory.futures.pop(move.topic_partition, None)
        move.log.close()

    # -- Slices ------------------------------------------------------------------------------

    def _go_on_in(self, delay_ms: int, now: Instant) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._timers.schedule(now.monotonic_ms + delay_ms, self._work)

    def _work(self, now: Instant) -> None:
        """One slice of each log that may move now, those that were asked for first."""
        self._timer = None
        self.act(now)  # what was deleted in this very turn is no failure of a disk
        at_once = self._settings.broker.num_replica_alter_log_dirs_threads
        waits = [
            self._guarded(move, now)
            for move in list(self._moves.values())[: at_once or len(self._logs.directories)]
        ]
        if self._moves:
            self._go_on_in(max(_PAUSE_MS, min(waits, default=_PAUSE_MS)), now)

    def _guarded(self, move: Move, now: Instant) -> int:
        """How long the move has to wait after its slice."""
        if move.not_before_ms > now.monotonic_ms:
            return move.not_before_ms - now.monotonic_ms
        try:
            return self._slice(move, now)
        except SourceUnreadable as error:
            move.replica.failed_to_read(error.cause)
            self._put_off(move, str(error), now)
        except (CorruptRecords, InvariantViolated) as error:
            self._put_off(move, str(error), now)
            self._begin_anew(move, now)
        except StorageError as error:
            self.failed(move, error)
            self._put_off(move, str(error), now)
            if move.log.failure is not None and move.directory.offline_reason is None:
                self._begin_anew(move, now)
        return _RETRY_MS

    def _put_off(self, move: Move, problem: str, now: Instant | None = None) -> None:
        if move.problem != problem:
            log.warning("%s cannot move now: %s", move.topic_partition, problem)
        move.problem = problem
        if now is not None:
            move.not_before_ms = now.monotonic_ms + _RETRY_MS

    def _begin_anew(self, move: Move, now: Instant) -> None:
        """The copy cannot be gone on with."""
        self._logs.delete_logs(move.directory, [move.log], now)
        try:
            self._take(move, self._logs.make_future(move.replica.log, move.directory, now))
        except StorageError as error:
            self.failed(move, error)
            self._forget(move)

    def _slice(self, move: Move, now: Instant) -> int:
        replica, copy = move.replica, move.copy
        if self._cleaning.is_under_way(replica.log) or not self._may_go_on(move, now):
            return _SYNC_LOOK_MS
        self._throttle.rate_bytes_per_s = (
            self._settings.broker.replica_alter_log_dirs_io_max_bytes_per_second
        )
        delay_ms = self._throttle.delay_ms(now.monotonic_ms)
        if delay_ms and not copy.is_complete:
            return delay_ms
        if copy.log.config is not replica.log.config:
            copy.log.update_config(replica.log.config)
        if copy.log.topic_id == NO_TOPIC_ID != replica.log.topic_id:
            # The process had ended before the id was written down, or was on the disk.
            copy.log.assign_topic_id(replica.log.topic_id)
        copied = copy.advance(SLICE_BYTES, now.wall_ms)
        self._throttle.record(copied, now.monotonic_ms)
        move.unsynced_bytes += copied
        move.problem = None
        self._drop_deleted(copy.log, now)
        if not copy.is_complete:
            return _PAUSE_MS
        return self._finish(move, now)

    def _may_go_on(self, move: Move, now: Instant) -> bool:
        """Whether the disk has got what was copied so far, but for a bounded part of it."""
        if move.unsynced_bytes >= UNSYNCED_MAX:
            if self._syncing.is_busy(move):
                return False
            if self._syncing.sync_if_due(move, now, is_due=True):
                move.unsynced_bytes = 0
            elif move.log.flusher.epochs_due:
                return False  # these come first
        return True

    def _drop_deleted(self, future: Log, now: Instant) -> None:
        """Segments that retention has dropped from the source since they were copied."""
        offsets = future.offsets
        if offsets.log_start_saved >= offsets.log_start_offset:
            future.retention.drop_below_start(now.wall_ms, DROPS_PER_SLICE)

    # -- The end -----------------------------------------------------------------------------

    def _finish(self, move: Move, now: Instant) -> int:
        """Let the copy take the place of its source, as soon as it is as durable."""
        if self._syncing.is_busy(move):
            return _SYNC_LOOK_MS
        is_named = move.log.location.is_durable
        if not (move.copy.is_as_durable and is_named) or move.log.flusher.epochs_due:
            if move.syncs >= _SYNCS_WAITED:
                self._sync_now(move, now)
            else:
                move.syncs += 1
                self._syncing.sync_if_due(move, now, is_due=True)
                if self._syncing.is_busy(move) or move.log.flusher.epochs_due:
                    return _SYNC_LOOK_MS
            if not move.copy.is_as_durable:
                return _SYNC_LOOK_MS
        self._change_places(move, now)
        return _PAUSE_MS

    def _sync_now(self, move: Move, now: Instant) -> None:
        move.log.leader_epochs.flush_assigned()
        move.log.flusher.reschedule()
        plan = move.log.flusher.flush_plan()
        if plan is not None and plan.carry_out(self._logs.files):
            move.log.flusher.mark_flushed(plan, now.wall_ms)

    def _change_places(self, move: Move, now: Instant) -> None:
        """See the module. Raises `StorageError` while the source is still in its place."""
        at, directory, replica = move.topic_partition, move.directory, move.replica
        old = self._logs.directory_of(at)
        if old is None or old.offline_reason is not None:
            return
        move.log.location.make_durable()
        move.copy.complete()
        cleaned_to = old.cleaner_offsets.get(at)
        if cleaned_to is not None:
            directory.set_cleaner_offset(at, cleaned_to)
        directory.write_recovery_points()
        directory.write_log_starts()
        directory.write_high_watermarks()
        path = join(directory.path, str(at))
        if move.log.directory != path:
            move.log.rename_directory(path)
        else:  # there was no room to make the name durable
            self._logs.files.sync_directory(directory.path)
        move.copy.take_place()
        replaced = move.copy.log
        self._forget(move)
        del directory.futures[at], old.logs[at]
        directory.logs[at] = replica.log
        self._logs.delete_logs(old, [replaced], now)
        replica.note_flush()
        log.info("%s has moved from %s to %s", at, old.path, directory.path)
