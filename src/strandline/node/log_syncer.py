"""Syncing logs: what they want durable is planned here and carried out by the driver, in a thread.

There are two kinds of work, and at most one for a log at a time. A *flush* makes records durable
(`FlushPlan`). Writing *leader epochs* comes first: no flush may cover records whose epoch is not on
the disk. A broker that takes thousands of partitions over has as many tables to write, so they are
written by the driver, many with one effect, and put in force by a rename here, if the table is
still that one. No request waits for it: until then a crash finds the epochs in the records.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from itertools import count
from typing import Final, Protocol

from strandline.errors import StorageError
from strandline.node.effects import SyncLog
from strandline.node.outbox import Outbox
from strandline.node.replicas import Replicas
from strandline.storage.files import File, NoRoom, parent_of
from strandline.storage.flush_plan import EpochsPlan, FlushPlan, NamesPlan, SyncPlan
from strandline.storage.leader_epochs import EpochsToWrite
from strandline.storage.log import Log
from strandline.storage.log_flusher import LogFlusher
from strandline.types import Instant, TopicPartition

log = logging.getLogger(__name__)

TABLES_MAX: Final = 32
"""As many are put in force in one turn."""


class Synced(Protocol):
    """What has a log: a replica, or its copy in another log directory."""

    @property
    def topic_partition(self) -> TopicPartition: ...

    @property
    def log(self) -> Log: ...

    @property
    def is_retired(self) -> bool: ...

    def fail(self, error: StorageError) -> None:
        """The disk under the log failed."""


Result = bool | StorageError
_Done = Callable[[Result, Instant], None]
_Tables = Sequence[tuple[Synced, EpochsToWrite]]


class LogSyncer:
    """See the module."""

    def __init__(self, replicas: Replicas, outbox: Outbox) -> None:
        self._replicas = replicas
        self._outbox = outbox
        self._tokens = count(1)
        self._under_way: dict[int, _Done] = {}
        self._busy: set[Synced] = set()
        self._with_epochs: dict[Synced, None] = {}
        """Whose leader epochs are to be written at the end of the turn."""

    def end_turn(self, now: Instant) -> None:
        """Have logs synced that closed a segment, reached `flush.messages` or began an epoch."""
        for replica in self._replicas.take_flushable():
            self.sync_if_due(replica, now)
        if self._with_epochs:
            self._write_epochs()

    def sync_if_due(self, replica: Synced, now: Instant, *, is_due: bool = False) -> bool:
        """Have a log synced if that is due; whether its data is on the way to the driver now.

        `is_due` says that all of it is.

        One sync of a log at a time: what is wanted meanwhile is asked for again behind it. Making
        the plan writes what indexes have waiting. For which there is no room now, that is tried
        again later.
        """
        if replica in self._busy or replica.is_retired or replica.log.failure is not None:
            return False
        if replica.log.flusher.epochs_due:
            self._with_epochs[replica] = None
            return False
        try:
            flusher = replica.log.flusher
            plan = flusher.flush_plan() if is_due else flusher.flush_plan_if_due(now.wall_ms)
        except NoRoom as error:
            log.warning("Syncing %s is delayed: %s", replica.topic_partition, error)
            return False
        except StorageError as error:
            replica.fail(error)
            return False
        if plan is None:
            return False
        self._busy.add(replica)
        flushed = self._flushed
        self._give(plan, lambda result, at: flushed(replica, flusher, plan, result, at))
        return True

    def is_busy(self, of: Synced) -> bool:
        """Whether its log is being synced."""
        return of in self._busy

    def synced(self, token: int, result: Result, now: Instant) -> None:
        """The driver carried out a plan; false if a file was gone meanwhile."""
        self._under_way.pop(token)(result, now)

    def _give(self, plan: SyncPlan, done: _Done) -> None:
        token = next(self._tokens)
        self._under_way[token] = done
        self._outbox.add(SyncLog(token, plan))

    def _flushed(
        self, replica: Synced, flusher: LogFlusher, plan: FlushPlan, result: Result, now: Instant
    ) -> None:
        self._busy.discard(replica)
        if replica.log.flusher is not flusher:
            # The log has moved to another directory; what was synced is on its way out.
            self.sync_if_due(replica, now)
            return
        if isinstance(result, NoRoom):
            log.warning("Syncing %s is delayed: %s", replica.topic_partition, result)
            replica.log.flusher.request_flush()
            return
        if isinstance(result, StorageError):
            # What the page cache dropped after a failed fsync is lost: nothing here can be trusted.
            replica.fail(result)
            return
        if result:
            replica.log.flusher.mark_flushed(plan, now.wall_ms)
            self.sync_if_due(replica, now)  # for what was appended meanwhile
        else:
            replica.log.flusher.request_flush()  # without what is gone, with the next round

    # -- Leader epochs -----------------------------------------------------------------------

    def _write_epochs(self) -> None:
        """One plan for many logs, but not of several directories: one disk may fail."""
        by_directory: dict[str, list[Synced]] = {}
        for replica in self._with_epochs:
            if not (replica in self._busy or replica.is_retired or replica.log.closed):
                by_directory.setdefault(parent_of(replica.log.directory), []).append(replica)
        self._with_epochs.clear()
        for together in by_directory.values():
            for start in range(0, len(together), TABLES_MAX):
                self._write_tables(together[start : start + TABLES_MAX])

    def _write_tables(self, replicas: Sequence[Synced]) -> None:
        tables: list[tuple[Synced, EpochsToWrite]] = []
        files: list[File] = []
        directories: dict[str, None] = {}
        for replica in replicas:
            table = replica.log.leader_epochs.prepare()
            try:
                unsynced = replica.log.location.unsynced()
            except StorageError as error:
                self._failed([(replica, table)], error)
                continue
            tables.append((replica, table))
            files += unsynced[0]
            directories.update(dict.fromkeys(unsynced[1]))
        if not tables:
            return
        self._busy.update(replica for replica, _ in tables)
        plan = EpochsPlan(tuple(table for _, table in tables), tuple(files), tuple(directories))
        self._give(plan, lambda result, at: self._epochs_written(tables, result, at))

    def _epochs_written(self, tables: _Tables, result: Result, now: Instant) -> None:
        """They lie beside the files: put those in force that are still right."""
        if isinstance(result, StorageError):
            self._failed(tables, result)
            return
        if result:
            for replica, _ in tables:
                replica.log.location.note_durable()
        adopted: list[tuple[Synced, EpochsToWrite]] = []
        for replica, table in tables:
            try:
                if _adopt(replica, table):
                    adopted.append((replica, table))
                else:
                    self._release([replica], now)
            except StorageError as error:
                self._failed([(replica, table)], error)
        if adopted:
            names = NamesPlan(tuple(each.log.directory for each, _ in adopted))
            self._give(names, lambda result, at: self._epochs_durable(adopted, result, at))

    def _epochs_durable(self, tables: _Tables, result: Result, now: Instant) -> None:
        if isinstance(result, StorageError):
            self._failed(tables, result)
            return
        if result:
            for replica, table in tables:
                replica.log.flusher.epochs_written(table)
        self._release([replica for replica, _ in tables], now)

    def _failed(self, tables: _Tables, error: StorageError) -> None:
        replicas = [replica for replica, _ in tables]
        self._busy.difference_update(replicas)
        if isinstance(error, NoRoom):
            # Recovery points stand still meanwhile; the next round of flushes tries again.
            log.warning("Leader epochs of %d partitions are written later: %s", len(tables), error)
            return
        for replica, table in tables:
            if parent_of(table.path) == replica.log.directory:  # it has not moved meanwhile
                replica.fail(error)

    def _release(self, replicas: Sequence[Synced], now: Instant) -> None:
        """They may be synced again, and go on with what was wanted meanwhile."""
        self._busy.difference_update(replicas)
        for replica in replicas:
            self.sync_if_due(replica, now)


def _adopt(replica: Synced, table: EpochsToWrite) -> bool:
    """Put a table in force; whether it is the right one still. Raises `StorageError`."""
    if replica.is_retired or replica.log.closed or replica.log.failure is not None:
        return False
    return replica.log.leader_epochs.adopt(table)
