"""One log directory (an entry of `log.dirs`): whose it is, what is in it, and its checkpoints.

This file knows the directory's own files and the order in which it is opened and closed. It must
not know the inside of a log, nor replicas and topics: logs are loaded by a function that the
caller brings, and when to checkpoint is the caller's affair too.

Theory: a directory is one unit of failure. The first disk error takes it offline, with the reason,
and nothing more is written to it; the broker goes on with its other directories. Opening takes the
lock, proves the owner, takes the marker of a clean shutdown (gone at once, so that a crash from
here on counts as one), and reads the tables. Closing does the reverse, the marker last, and only
if every log was loaded and closed without error (KAFKA-15375).

    <log dir>/.lock                             one process at a time
              meta.properties                   owner
              .kafka_cleanshutdown              only while shut down cleanly
              recovery-point-offset-checkpoint  everything below is synced
              log-start-offset-checkpoint       where logs start, unless at 0
              replication-offset-checkpoint     high watermarks
              cleaner-offset-checkpoint         compaction's progress
              <topic>-<partition>/              a log
              <topic>-<partition>.<hex>-future/ one that is being copied here from another directory

The tables have the future logs among the others: a partition has one log here, of either kind.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, Generic, TypeVar

from strandline.errors import StorageError
from strandline.storage.checkpoint_file import DamagedCheckpoint, OffsetCheckpoint
from strandline.storage.clean_shutdown import CleanShutdown, HeldLogs, take_marker, write_marker
from strandline.storage.closing_logs import closing_logs
from strandline.storage.directory_contents import DirectoryContents, scan_directory
from strandline.storage.directory_names import parse_directory_name
from strandline.storage.files import (
    Files,
    Lock,
    LockHeld,
    NoRoom,
    OutOfHandles,
    join,
    name_of,
    parent_of,
)
from strandline.storage.flush_plan import Closing, finish
from strandline.storage.log_to_load import LogToLoad
from strandline.storage.meta_properties import ForeignDirectory, MetaProperties, claim_directory
from strandline.storage.partition_log import PartitionLog
from strandline.types import NO_OFFSET, BrokerId, Offset, TopicPartition

LOCK_FILE: Final = ".lock"
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"


LogType = TypeVar("LogType", bound=PartitionLog)


class LogDirectory(Generic[LogType]):
    """One open log directory.

    `offline_reason` is None while the disk works and never becomes None again. `logs` are the
    loaded partitions, `futures` those that are being copied here; the owner adds created ones and
    forgets deleted ones. `warnings` are sentences for the operator's log.
    """

    def __init__(self, files: Files, path: str) -> None:
        """Touches nothing; `open` does."""
        self.path = path
        self.offline_reason: str | None = None
        self.meta: MetaProperties | None = None
        self.clean_shutdown: CleanShutdown | None = None
        """How the last process ended; None if it crashed."""
        self.contents = DirectoryContents()
        self.logs: dict[TopicPartition, LogType] = {}
        self.futures: dict[TopicPartition, LogType] = {}
        self.fully_loaded = False
        self.ignores_case = False
        """Whether its file system takes names that differ only in case for the same, as those of
        macOS and Windows do unless told otherwise."""
        self.warnings: list[str] = []
        self._files = files
        self._lock: Lock | None = None
        self._recovery_points = OffsetCheckpoint(files, join(path, RECOVERY_POINTS))
        self._log_starts = OffsetCheckpoint(files, join(path, LOG_STARTS))
        self._high_watermarks = OffsetCheckpoint(files, join(path, HIGH_WATERMARKS))
        self._cleaner_table = OffsetCheckpoint(files, join(path, CLEANER_OFFSETS))
        self._cleaner_offsets: dict[TopicPartition, Offset] = {}
        self._to_load: list[LogToLoad] = []
        self._owes_recovery = False
        """Whether a log was not recovered because it is refused: it may still have a torn end."""
        self._is_stale = False
        """Whether the tables, or the names in the directory, may still have deleted partitions."""

    # ── opening ────────────────────────────────────────────────────────────────────────────────

    def open(self, broker_id: BrokerId, cluster_id: str) -> bool:
        """Take possession and read everything but the logs; whether the directory is usable.

        Raises `LockHeld` if another process uses it and `ForeignDirectory` if it belongs to
        another broker or cluster, and `OutOfHandles`. Any other disk error takes it offline.
        """
        try:
            with self._or_offline("open"):
                self._take_possession(broker_id, cluster_id)
                self.clean_shutdown = take_marker(self._files, self.path)
                self._scan()
        except (LockHeld, ForeignDirectory, OutOfHandles):
            self.close()
            raise
        except StorageError as failure:
            self.go_offline(str(failure))  # a full disk, too
            return False
        return True

    def load_logs(self, load_log: Callable[[LogToLoad], LogType]) -> bool:
        """Load every partition found; whether all of them were. A disk error ends it, offline.

        Raises `OutOfHandles`: nothing is wrong with the disk then; the start may be tried again.
        """
        fell = is_less_committed = False
        try:
            with self._or_offline("load the logs of"):
                while self._to_load:
                    found = self._to_load[-1]
                    loaded = load_log(found)
                    (self.futures if found.is_future else self.logs)[found.topic_partition] = loaded
                    # The last process may have ended between a truncation and this.
                    self.settle_cleaner_offset(loaded)
                    self._owes_recovery |= loaded.is_refused and found.needs_recovery
                    fell |= loaded.recovery_point < found.recovery_point
                    is_less_committed |= loaded.high_watermark < found.high_watermark
                    self._to_load.pop()
                self.fully_loaded = True
                if fell:
                    # The table promises more than the logs have, as after a truncation that did
                    # not come to writing it. New records must not be taken for synced.
                    self.write_recovery_points()
                if is_less_committed:
                    self.write_high_watermarks()  # nor for committed
        except OutOfHandles:
            raise
        except StorageError as failure:
            self.go_offline(str(failure))  # a full disk, too
            return False
        return True

    @property
    def remaining_to_load(self) -> int:
        """How many partitions `load_logs` still has before it."""
        return len(self._to_load)

    # ── running ────────────────────────────────────────────────────────────────────────────────

    def add(self, log: LogType) -> None:
        """A partition's log was created here."""
        self.logs[log.topic_partition] = log

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """These partitions were deleted or moved away: take them out of every table, durably.

        A stale log start would otherwise cut a topic that is made again under the same name.
        """
        for topic_partition in partitions:
            self.logs.pop(topic_partition, None)
            self.futures.pop(topic_partition, None)
            self._cleaner_offsets.pop(topic_partition, None)
        self._is_stale = True
        self.finish_forgetting()

    def finish_forgetting(self) -> None:
        """Take out of the tables what a full disk, for one, kept there. Before a log is made."""
        if not self._is_stale:
            return
        self.write_recovery_points()
        self.write_log_starts()
        self.write_high_watermarks()
        with self._or_offline("checkpoint"):
            self._cleaner_table.write(self._cleaner_offsets)
            self._files.sync_directory(self.path)
        self._is_stale = False

    def write_recovery_points(self) -> bool:
        """Checkpoint how far each log is synced. Returns False before every log is loaded."""
        return self._write_table(
            self._recovery_points, {at: log.recovery_point for at, log in self._all()}
        )

    def write_log_starts(self) -> bool:
        """Checkpoint where logs start, unless at 0.

        Kafka leaves a log out whose first segment starts there too. But while the names of files
        that retention dropped or made are not durable, the first segment may be an older one after
        a power failure, or none.
        """
        return self._write_table(
            self._log_starts,
            {at: log.log_start_offset for at, log in self._all() if log.log_start_offset > 0},
        )

    def write_high_watermarks(self) -> bool:
        """Checkpoint the high watermarks. Not to be called before the partitions know their roles.

        Until then logs have the checkpointed ones only if the loader gave them those (KAFKA-1647).
        """
        return self._write_table(
            self._high_watermarks, {at: log.high_watermark for at, log in self._all()}
        )

    @property
    def cleaner_offsets(self) -> Mapping[TopicPartition, Offset]:
        """From where each compacted log is still to be compacted; not to be changed."""
        return self._cleaner_offsets

    def set_cleaner_offset(self, topic_partition: TopicPartition, offset: Offset) -> None:
        """Checkpoint that the log is compacted up to `offset`; lower after a truncation."""
        offsets = {**self._cleaner_offsets, topic_partition: offset}
        with self._or_offline("checkpoint"):
            self._cleaner_table.write(offsets)
        # Only now: what could not be written is still to be settled.
        self._cleaner_offsets = offsets

    def settle_cleaner_offset(self, truncated: LogType) -> None:
        """A log may have been truncated: what takes the place of what was cut is dirty."""
        at, end = truncated.topic_partition, truncated.log_end_offset
        if self._cleaner_offsets.get(at, NO_OFFSET) > end:
            self.set_cleaner_offset(at, end)

    def go_offline(self, reason: str) -> None:
        """A disk operation failed: nothing here is used any more. The first reason stays."""
        if self.offline_reason is None:
            self.offline_reason = reason

    # ── closing ────────────────────────────────────────────────────────────────────────────────

    def close_clean(self, broker_epoch: int) -> bool:
        """Sync and close every log, write the tables, mark the shutdown clean, release the lock.

        Returns whether the next start may skip recovery. One log that fails to close does not
        keep the others from closing, but takes the directory offline.
        """
        return finish(self.closing(CleanShutdown(broker_epoch, logs=self.held)))

    @property
    def held(self) -> HeldLogs | None:
        """Which logs are here, by what the last process told if they could not all be loaded; None
        if that is not known."""
        if self.fully_loaded:
            return frozenset((log.topic_id, at.partition) for at, log in self.logs.items())
        return None if self.clean_shutdown is None else self.clean_shutdown.logs

    def closing(self, shutdown: CleanShutdown, *, at_once: int = 1) -> Closing:
        """`close_clean` in steps of so many logs, as their syncs take their time.

        The marker is written as it is given: it tells of the broker's other directories, too.
        """
        try:
            self.write_high_watermarks()
            logs = [log for _, log in self._all() if not log.is_refused]
            failures = yield from closing_logs(logs, at_once)
            if failures:
                self.go_offline(str(failures[0]))
            self.write_recovery_points()
            self.write_log_starts()
            is_whole = self.fully_loaded or self.clean_shutdown is not None
            may_mark = is_whole and self.offline_reason is None and not self._owes_recovery
            if may_mark:
                with self._or_offline("mark the clean shutdown of"):
                    write_marker(self._files, self.path, shutdown)
            return may_mark
        except StorageError:
            return False
        finally:
            self.close()

    def close(self) -> None:
        """Release the lock and nothing else: for a broker that ends without a clean shutdown."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    # ── helpers ────────────────────────────────────────────────────────────────────────────────

    def _take_possession(self, broker_id: BrokerId, cluster_id: str) -> None:
        ancestors: list[str] = []
        created = self.path
        while not self._files.is_directory(created):
            created = parent_of(created)
            ancestors.append(created)
        self._files.make_directory(self.path)
        for ancestor in reversed(ancestors):
            self._files.sync_directory(ancestor)
        self._lock = self._files.lock(join(self.path, LOCK_FILE))
        other_case = LOCK_FILE.upper()
        self.ignores_case = self._files.exists(
            join(self.path, other_case)
        ) and other_case not in self._files.list_directory(self.path)
        self.meta = claim_directory(self._files, self.path, broker_id, cluster_id)

    def _scan(self) -> None:
        self.contents = scan_directory(self._files, self.path)
        recovery_points = self._table_or_nothing(self._recovery_points, "every log is checked from")
        log_starts = self._table_or_nothing(self._log_starts, "every log starts at")
        high_watermarks = self._high_watermarks.read()
        cleaner_offsets = self._cleaner_table.read()
        present = set(self.contents.partitions)
        futures = self._futures(present)
        present |= futures.keys()
        self._cleaner_offsets = {at: cleaner_offsets[at] for at in cleaner_offsets if at in present}
        tables = (recovery_points, log_starts, high_watermarks, cleaner_offsets)
        # What a lost directory was promised must not hold for a log that is made in its place.
        self._is_stale = any(table.keys() - present for table in tables)
        paths = {**futures, **{at: join(self.path, str(at)) for at in self.contents.partitions}}
        self._to_load = [
            LogToLoad(
                topic_partition=at,
                directory=paths[at],
                recovery_point=recovery_points.get(at, Offset(0)),
                log_start_offset=log_starts.get(at, Offset(0)),
                high_watermark=high_watermarks.get(at, Offset(0)),
                needs_recovery=self.clean_shutdown is None,
                cleaned_to=self._cleaner_offsets.get(at, NO_OFFSET),
                is_future=at in futures,
            )
            for at in (*sorted(futures, reverse=True), *reversed(self.contents.partitions))
        ]
        aside = set(self.contents.futures) - set(futures.values())
        for path in (*self.contents.strays, *sorted(aside), *self.contents.unknown):
            self.warnings.append(f"The directory {path} is left alone: it is no partition of ours.")

    def _futures(self, present: Collection[TopicPartition]) -> dict[TopicPartition, str]:
        """Where the logs lie that are being copied here; the tables have room for one of each."""
        found: dict[TopicPartition, str] = {}
        for path in self.contents.futures:
            at = parse_directory_name(name_of(path)).topic_partition
            if at is not None and at not in present:
                found.setdefault(at, path)
        return found

    def _all(self) -> Iterator[tuple[TopicPartition, LogType]]:
        yield from self.logs.items()
        yield from self.futures.items()

    def _table_or_nothing(
        self, table: OffsetCheckpoint, consequence: str
    ) -> dict[TopicPartition, Offset]:
        """A table that can be done without: damage costs time or brings deleted records back."""
        try:
            return table.read()
        except DamagedCheckpoint as damage:
            self.warnings.append(f"{damage} It is ignored: {consequence} its first segment.")
            return {}

    def _write_table(
        self, table: OffsetCheckpoint, offsets: Mapping[TopicPartition, Offset]
    ) -> bool:
        """Before all logs are loaded a table would lose those that are not, so it stays."""
        if not self.fully_loaded:
            return False
        with self._or_offline("checkpoint"):
            table.write(offsets)
        return True

    @contextmanager
    def _or_offline(self, operation: str) -> Iterator[None]:
        """Run a disk operation; its failure takes the directory offline and is raised again.

        A full disk does not, nor a want of handles: what could not be written is written when there
        is room.
        """
        if self.offline_reason is not None:
            raise StorageError(
                f"Cannot {operation} {self.path}: it is offline. {self.offline_reason}"
            )
        try:
            yield
        except (LockHeld, ForeignDirectory, NoRoom):
            raise
        except StorageError as failure:
            self.go_offline(str(failure))
            raise
