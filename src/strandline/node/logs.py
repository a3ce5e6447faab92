"""The logs of this node on its disks: opening, creating, deleting.

Which partitions have a log here is decided by the metadata (`Replicas`); in which directory one
lies, and what happens to its files and to the directory's tables, stands here. It must not know
leaders, followers or requests.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from random import Random
from typing import NamedTuple, TypeAlias

from strandline.cluster.topic_names import case_key
from strandline.config.topic import TopicConfig
from strandline.errors import StorageError
from strandline.node.log_reloading import reload_log
from strandline.storage.directory_names import future_directory_name
from strandline.storage.files import Files, LostWrites, NoRoom, join, name_of
from strandline.storage.log import Log
from strandline.storage.log_directory import LogDirectory
from strandline.storage.log_offsets import LogOffsets
from strandline.types import NO_TOPIC_ID, Instant, TopicId, TopicPartition

log = logging.getLogger(__name__)

Directory: TypeAlias = LogDirectory[Log]


class Removed(NamedTuple):
    """A deleted partition whose files may go at `due_ms` (monotonic)."""

    due_ms: int
    directory: Directory
    log: Log | None
    """None if it was deleted by the process before this one."""
    path: str


class Logs:
    """Every log in the log directories of this node."""

    def __init__(
        self,
        files: Files,
        directories: Sequence[Directory],
        random: Random,
        *,
        producer_expiration_ms: int,
    ) -> None:
        self.files = files
        self.directories = directories
        self.usable = list(directories)
        """Those that are not known to be offline; see `take_failed`."""
        self.removed: list[Removed] = []
        """Deleted partitions whose files are still there."""
        self._raised: dict[LogOffsets, None] = {}
        """Of logs whose start was raised and is not in the checkpoint of their directory yet."""
        self._delayed: dict[LogOffsets, None] = {}
        """Those that could not be written because there was no room."""
        self._saved: list[LogOffsets] = []
        """Those that were written since `take_saved_starts` was last asked."""
        self.has_failed_logs = False
        """Whether a log has failed, and not its directory, since `Replicas` looked last."""
        self._half_made: dict[TopicPartition, Directory] = {}
        """Where a log could neither be made nor its directory be removed again."""
        self.preferred: dict[TopicPartition, Directory] = {}
        """Where an operator wants the logs of partitions to be made that are not here yet."""
        self._random = random
        self._producer_expiration_ms = producer_expiration_ms

    def open(
        self,
        partition: TopicPartition,
        topic_id: TopicId,
        config: TopicConfig,
        now: Instant,
        *,
        is_new: bool,
    ) -> Log:
        """The partition's log; made where there is most room if there is none yet.

        One that is not new to this broker is not made anew while its log may lie in a directory
        that could not be read: then there would be two, once the disk is back.
        """
        directory = self.directory_of(partition)
        if directory is None:
            if not is_new:
                self._check_all_read(partition)
            return self._create(partition, topic_id, config, now)
        found = directory.logs[partition]
        if found.health.may_reload and directory.offline_reason is None:
            found = self._reload(directory, found, config, now)
        if NO_TOPIC_ID not in (topic_id, found.topic_id) and topic_id != found.topic_id:
            raise StorageError(
                f"The log of {partition} in {found.directory} belongs to another topic of that "
                f"name: its id is {found.topic_id}, and not {topic_id}."
            )
        found.health.check_usable()
        if NO_TOPIC_ID == found.topic_id != topic_id:
            # The process died after it had made the log and before it wrote the id down.
            found.assign_topic_id(topic_id)
        found.update_config(config)
        found.offsets.note_raised_starts_in(self._raised)
        return found

    def take_leftovers(self, delay_ms: int, now: Instant) -> None:
        """Have removed what the process before this one had deleted and did not get to remove."""
        due_ms = now.monotonic_ms + delay_ms
        for directory in self.usable:
            for path in directory.contents.deleted:
                self.removed.append(Removed(due_ms, directory, None, path))

    def directory_of(self, partition: TopicPartition) -> Directory | None:
        """The directory that has the partition's log."""
        return next((d for d in self.directories if partition in d.logs), None)

    def delete(self, partitions: Iterable[TopicPartition], now: Instant) -> None:
        """Give the logs of these partitions up; their files go after `file.delete.delay.ms`.

        A directory whose disk fails goes offline. What could not be deleted stays there for the
        next start (note 0011); until then it is not in the way of a new log of the partition.
        """
        wanted = list(partitions)
        for directory in self.directories:
            logs = [directory.logs[at] for at in wanted if at in directory.logs]
            logs += [directory.futures[at] for at in wanted if at in directory.futures]
            self.delete_logs(directory, logs, now)

    def delete_logs(self, directory: Directory, logs: Sequence[Log], now: Instant) -> None:
        """As `delete`, for logs in one directory."""
        try:
            self._delete(directory, logs, now)
        except NoRoom as error:
            log.warning("The tables of %s are written later: %s", directory.path, error)
        except StorageError as error:
            self.take_offline(directory, error)
            with suppress(StorageError):  # its tables stay as they are
                directory.forget([each.topic_partition for each in logs])
            for each in logs:
                each.close()

    def make_future(self, source: Log, directory: Directory, now: Instant) -> Log:
        """An empty log in another directory, which is to take the place of `source`. Raises
        `StorageError`."""
        at = source.topic_partition
        directory.finish_forgetting()
        name = future_directory_name(at, f"{self._random.getrandbits(128):032x}")
        path = join(directory.path, name)
        try:
            created = self._created(path, at, source.topic_id, source.config, now)
        except StorageError:
            with suppress(StorageError):  # if it stays, the next start goes on with it
                self.files.remove_tree(path)
            raise
        directory.futures[at] = created
        return created

    def future_of(self, partition: TopicPartition) -> tuple[Directory, Log] | None:
        """The log that is to take the place of the partition's log, and the directory it is in."""
        for directory in self.usable:
            found = directory.futures.get(partition)
            is_usable = directory.offline_reason is None
            if found is not None and is_usable and not found.is_refused:
                return directory, found
        return None

    def note_raised_starts_of(self, future: Log) -> None:
        """Have the log start of a future log saved when it was raised."""
        future.offsets.note_raised_starts_in(self._raised)

    def save_lowered_offsets(self, truncated: Log) -> None:
        """Write lowered offsets down, before new records take the place of old ones."""
        directory = next((each for each in self.directories if _has(each, truncated)), None)
        if truncated.offsets.recovery_point_fell and directory is not None:
            directory.write_recovery_points()
        if truncated.offsets.log_start_fell and directory is not None:
            directory.write_log_starts()
        if directory is not None:
            directory.settle_cleaner_offset(truncated)
        if truncated.offsets.high_watermark_fell and directory is not None:
            directory.write_high_watermarks()
        truncated.offsets.checkpoints_written()

    def save_log_starts(self, *, retry: bool = False) -> list[LogOffsets]:
        """Write down where logs start, if some were raised; returns those that are safe now.

        No client may be told that records are deleted before that: a crash would bring them back
        (I-27). One write for all logs of a directory. What a full disk does not take is written
        with the next that is raised, or when asked to `retry`.
        """
        if not self._raised and not (retry and self._delayed):
            return []
        raised = {**self._delayed, **self._raised}
        self._delayed.clear()
        self._raised.clear()
        saved: list[LogOffsets] = []
        for directory in self.directories:
            here = [
                each
                for each in raised
                for logs in (directory.logs, directory.futures)
                if (found := logs.get(each.topic_partition)) and found.offsets is each
            ]
            if here and directory.offline_reason is None:
                saved += self._save_log_starts(directory, here)
        self._saved += saved
        return saved

    def take_saved_starts(self) -> list[LogOffsets]:
        """The log starts that were written since the last call: requests may wait for that."""
        saved, self._saved = self._saved, []
        return saved

    def _save_log_starts(
        self, directory: Directory, raised: Sequence[LogOffsets]
    ) -> Sequence[LogOffsets]:
        try:
            is_written = directory.write_log_starts()
        except NoRoom as error:
            log.warning("The log starts in %s are written later: %s", directory.path, error)
            self._delayed.update(dict.fromkeys(raised))
            return []
        except StorageError as error:
            self.take_offline(directory, error)
            return []
        if not is_written:
            self._delayed.update(dict.fromkeys(raised))
            return []
        for each in raised:
            each.start_saved()
        return raised

    def fail(self, failed: Log, error: StorageError) -> None:
        """The log cannot be trusted any more, nor can the disk on which it is.

        Unless something has run out, of which the disk knows nothing: then the log alone is given
        up, until it can be loaded again. That counts for later operations that find it failed, too:
        an append after a compaction that broke off.
        """
        failed.health.fail(str(error), error)
        if isinstance(error, NoRoom) or failed.health.may_reload:
            self.has_failed_logs = True
            return
        # By the log, not by its name: the partition may have been made again on another disk.
        directory = next((each for each in self.directories if _has(each, failed)), None)
        if directory is None and isinstance(error, LostWrites):
            # It was loaded again while its files were being synced, or was deleted.
            name = name_of(failed.directory)
            directory = next(
                (d for d in self.directories if join(d.path, name) == failed.directory), None
            )
        if directory is not None:
            self.take_offline(directory, error)

    def take_failed(self) -> list[Directory]:
        """The directories that have gone offline since the last call, or since the start."""
        failed = [each for each in self.usable if each.offline_reason is not None]
        if failed:
            self.usable = [each for each in self.usable if each.offline_reason is None]
        return failed

    def take_offline(self, directory: Directory, error: StorageError) -> None:
        """Use a directory no more, and tell the operator once."""
        if directory.offline_reason is None:
            log.error("The log directory %s is offline: %s", directory.path, error)
        directory.go_offline(str(error))

    def _reload(self, directory: Directory, failed: Log, config: TopicConfig, now: Instant) -> Log:
        try:
            loaded = reload_log(
                directory,
                failed,
                config,
                now_ms=now.wall_ms,
                random=self._random,
                producer_expiration_ms=self._producer_expiration_ms,
            )
        except NoRoom:
            raise
        except StorageError as error:
            self.take_offline(directory, error)
            raise
        self._raised.pop(failed.offsets, None)
        self._delayed.pop(failed.offsets, None)
        return loaded

    def _check_all_read(self, partition: TopicPartition) -> None:
        for directory in self.directories:
            if directory.offline_reason is not None and not directory.fully_loaded:
                raise StorageError(
                    f"The log of {partition} may be in {directory.path}, which is offline: "
                    f"{directory.offline_reason}"
                )

    def _create(
        self, partition: TopicPartition, topic_id: TopicId, config: TopicConfig, now: Instant
    ) -> Log:
        directory = self._half_made.pop(partition, None)
        if directory is None or directory.offline_reason is not None:
            directory = self.preferred.pop(partition, None)
        if directory is None or directory.offline_reason is not None:
            directory = self._roomiest()
        directory.finish_forgetting()
        stale = directory.futures.get(partition)
        if stale is not None:
            self.delete_logs(directory, [stale], now)
        if directory.ignores_case:
            _check_case(directory, partition)
        path = join(directory.path, str(partition))
        is_new = not self.files.is_directory(path)
        try:
            created = self._created(path, partition, topic_id, config, now)
        except StorageError:
            # The next attempt may find more room in another directory, and two logs would be there.
            if is_new:
                self._undo(directory, partition, path)
            raise
        created.offsets.note_raised_starts_in(self._raised)
        directory.add(created)
        return created

    def _created(
        self,
        path: str,
        partition: TopicPartition,
        topic_id: TopicId,
        config: TopicConfig,
        now: Instant,
    ) -> Log:
        created = Log.create(
            self.files,
            path,
            partition,
            config,
            now_ms=now.wall_ms,
            random=self._random,
            producer_expiration_ms=self._producer_expiration_ms,
        )
        if topic_id != NO_TOPIC_ID:
            created.assign_topic_id(topic_id)
        return created

    def _undo(self, directory: Directory, partition: TopicPartition, path: str) -> None:
        try:
            self.files.remove_tree(path)
        except StorageError as error:
            log.warning("What was begun in %s stays for the next attempt: %s", path, error)
            self._half_made[partition] = directory

    def _delete(self, directory: Directory, logs: Sequence[Log], now: Instant) -> None:
        """Rename the logs away; the tables of the directory are written once for all of them."""
        if not logs:
            return
        for deleted in logs:
            due_ms = now.monotonic_ms + deleted.config.file_delete_delay_ms
            try:
                deleted.delete(f"{self._random.getrandbits(128):032x}")
            except NoRoom as error:  # `forget` makes it durable, now or when there is room
                log.warning("The deletion of %s is synced later: %s", deleted.directory, error)
            self.removed.append(Removed(due_ms, directory, deleted, deleted.directory))
        directory.forget([deleted.topic_partition for deleted in logs])

    def _roomiest(self) -> Directory:
        """The usable directory with the fewest logs, the first of several (Kafka's choice)."""
        usable = [directory for directory in self.directories if directory.offline_reason is None]
        if not usable:
            raise StorageError("Every log directory is offline.")
        return min(usable, key=lambda directory: len(directory.logs))


def _has(directory: Directory, log: Log) -> bool:
    at = log.topic_partition
    return directory.logs.get(at) is log or directory.futures.get(at) is log


def _check_case(directory: Directory, partition: TopicPartition) -> None:
    """Another broker, whose file system tells them apart, may have let both topics be made."""
    key = case_key(partition.topic)
    for other in directory.logs:
        if other.partition == partition.partition and case_key(other.topic) == key:
            raise StorageError(
                f"The log of {partition} would lie in the directory of {other}: the file system "
                f"of {directory.path} makes no difference between upper and lower case."
            )
