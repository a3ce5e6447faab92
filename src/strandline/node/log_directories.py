"""The log directories of one broker while it starts: claimed, their logs loaded, strays set aside.

This file calls `storage` in the right order and collects what a person should know. Which logs are
strays is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from random import Random

from strandline.cluster.controller import FoundPartition
from strandline.cluster.identifiers import random_uuid
from strandline.cluster.kraft_settings import KraftSettings, UnreadableMetadata
from strandline.config.topic import TopicConfig
from strandline.errors import CorruptRecords, StorageError
from strandline.node.kraft_metadata import read_kraft_metadata
from strandline.node.logs import Directory
from strandline.storage.clean_shutdown import HeldLogs, together
from strandline.storage.directory_names import DirectoryKind, retired_directory_name
from strandline.storage.durable_directory import make_durably
from strandline.storage.files import Files, join
from strandline.storage.log import Log
from strandline.storage.log_directory import LogDirectory
from strandline.storage.log_to_load import LogToLoad
from strandline.storage.meta_properties import read_meta_properties
from strandline.types import NO_TOPIC_ID, BrokerId, Lives, Offset, TopicId, TopicPartition

UNKNOWN_EPOCH = -1


class LogDirectories:
    """See the module. `notices` are sentences for the start report."""

    def __init__(self, files: Files, paths: Sequence[str], random: Random) -> None:
        self.all: list[Directory] = []
        self.notices: list[str] = []
        self.promoted: set[TopicPartition] = set()
        """Logs that are copies of ones that are gone, and may lack what these had."""
        self.lost: dict[TopicPartition, Offset] = {}
        """Where logs end now that had more when they were closed cleanly."""
        self._files = files
        self._paths = paths
        self._random = random

    def make(self) -> None:
        """Make those that are missing."""
        for path in self._paths:
            make_durably(self._files, path)

    def known_cluster_id(self) -> str | None:
        """The cluster that the first directory says it belongs to."""
        present = read_meta_properties(self._files, self._paths[0])
        return None if present is None else present.cluster_id

    def open(self, broker_id: BrokerId, cluster_id: str) -> None:
        """Claim every directory. Raises `LockHeld` and `ForeignDirectory`."""
        for path in self._paths:
            directory: Directory = LogDirectory(self._files, path)
            self.all.append(directory)
            directory.open(broker_id, cluster_id)
            self.notices += directory.warnings

    @property
    def was_clean(self) -> bool:
        """Whether every directory was shut down cleanly, or is new."""
        return all(
            directory.clean_shutdown is not None or not directory.contents.partitions
            for directory in self.all
        )

    @property
    def previous_epoch(self) -> int:
        """The broker epoch that ended cleanly in all directories, or -1 (KIP-966).

        One that is offline, crashed, or was closed by another registration makes it unknown: then
        the broker may lack records that it once acknowledged.
        """
        if any(directory.offline_reason is not None for directory in self.all):
            return UNKNOWN_EPOCH
        epochs = {
            None if directory.clean_shutdown is None else directory.clean_shutdown.broker_epoch
            for directory in self.all
        }
        (epoch, *others) = epochs
        return UNKNOWN_EPOCH if others or epoch is None else epoch

    @property
    def lives(self) -> Lives | None:
        """The processes of which all directories hold everything; None if no marker tells any.

        Those of one shutdown have equal markers. If they differ, one of the directories is an older
        copy, and lacks what is not in its own.
        """
        found = [
            directory.clean_shutdown.lives
            for directory in self.all
            if directory.clean_shutdown is not None
        ]
        known = [lives for lives in found if lives is not None]
        if not known:
            return None
        if len(known) < len(found):
            return ()
        return tuple(life for life in known[0] if all(life in lives for lives in known))

    @property
    def unheard_ms(self) -> int | None:
        """When the process began that closed all directories and heard of no registration."""
        found = {
            None if each.clean_shutdown is None else each.clean_shutdown.unheard_ms
            for each in self.all
        }
        return found.pop() if len(found) == 1 else None

    @property
    def held(self) -> HeldLogs | None:
        """The logs that the broker had when its last process ended, also in a directory that is not
        in `log.dirs` any more; None if a marker does not say."""
        return together(
            None if each.clean_shutdown is None else each.clean_shutdown.logs for each in self.all
        )

    def load(
        self,
        config_of: Callable[[TopicPartition], TopicConfig],
        *,
        now_ms: int,
        producer_expiration_ms: int,
    ) -> None:
        """Load all logs. A directory that fails is offline afterwards, and a notice says why."""

        def load_log(found: LogToLoad) -> Log:
            loaded = Log.load(
                self._files,
                found,
                config_of(found.topic_partition),
                now_ms=now_ms,
                random=self._random,
                producer_expiration_ms=producer_expiration_ms,
            )
            self.notices.extend(loaded.recovery_report.lines())
            if loaded.failure is not None:
                self.notices.append(f"{found.topic_partition} cannot be used: {loaded.failure}")
            if not found.needs_recovery and not found.is_future and _has_lost(found, loaded):
                self.lost[found.topic_partition] = loaded.log_end_offset
            return loaded

        for directory in self.all:
            if directory.offline_reason is None:
                directory.load_logs(load_log)
            if directory.offline_reason is not None:
                self.notices.append(f"{directory.path} is offline: {directory.offline_reason}")
        self._choose_among_twins()

    def found(self) -> list[FoundPartition]:
        """Every loaded log."""
        return [
            FoundPartition(partition, loaded.topic_id, loaded.leader_epochs.latest)
            for directory in self.all
            for partition, loaded in directory.logs.items()
        ]

    def next_producer_id(self) -> int:
        """It is larger than the ids of all producers whose state a log has."""
        known = (
            max(loaded.producers.active, default=-1)
            for directory in self.all
            for loaded in directory.logs.values()
        )
        return max(known, default=-1) + 1

    def settings_of_kafka(self, *, is_first: bool) -> KraftSettings | None:
        """What Kafka kept in its metadata log, if there is one that can be read. That there is one
        that cannot be read is told at the first start only."""
        try:
            return read_kraft_metadata(self._files, self._paths)
        except (UnreadableMetadata, CorruptRecords, StorageError) as error:
            if is_first:
                self.notices.append(f"The settings in Kafka's metadata log cannot be read: {error}")
            return None

    def set_aside(self, strays: Iterable[FoundPartition]) -> None:
        """Rename logs that the metadata does not know, so that their names are free; keep them.

        Each is a partition that was deleted while this broker could not finish that, or one that
        an operator put here.
        """
        for stray in strays:
            for directory in self.all:
                for logs in (directory.logs, directory.futures):
                    loaded = logs.get(stray.partition)
                    if (
                        loaded is not None
                        and loaded.topic_id == stray.topic_id
                        and directory.offline_reason is None
                    ):
                        why = "is not one that the metadata gives to this broker"
                        self._set_aside(stray.partition, directory, loaded, why)

    def settle_futures(self) -> None:
        """Copies of logs that are not here any more, after strays were set aside.

        One whose source is gone is better than nothing: it takes its place, but what it lacks may
        have been acknowledged (`promoted`). While a directory is offline, its source may be there.
        One that a crash has left without a topic is nothing: a topic may have been made anew.
        """
        present = {at for directory in self.all for at in directory.logs}
        is_whole = all(directory.fully_loaded for directory in self.all)
        for directory in self.all:
            for at, future in list(directory.futures.items()):
                if at in present or not is_whole or directory.offline_reason is not None:
                    continue
                if future.topic_id == NO_TOPIC_ID:
                    self._set_aside(at, directory, future, "has lost the file that names its topic")
                else:
                    self._promote(directory, at, future)

    def _promote(self, directory: Directory, at: TopicPartition, future: Log) -> None:
        try:
            future.rename_directory(join(directory.path, str(at)))
        except StorageError as error:
            directory.go_offline(str(error))
            return
        directory.logs[at] = directory.futures.pop(at)
        self.promoted.add(at)
        self.notices.append(
            f"The log of {at} was moving to {directory.path} and is gone: its copy, which ends at "
            f"{future.log_end_offset}, takes its place."
        )

    def _choose_among_twins(self) -> None:
        """A process may have ended when a log that had moved was in both directories: the one that
        is further on is kept, and the other one set aside (see `LogMoves`)."""
        found: dict[tuple[TopicPartition, TopicId], list[Directory]] = {}
        for directory in self.all:
            if directory.offline_reason is None:
                for at, loaded in directory.logs.items():
                    found.setdefault((at, loaded.topic_id), []).append(directory)
        for (at, _), directories in found.items():
            if len(directories) > 1:
                best = max(directories, key=lambda each: progress_of(each.logs[at]))
                for directory in directories:
                    if directory is not best:
                        why = "lies in another directory as well, and is further on there"
                        self._set_aside(at, directory, directory.logs[at], why)

    def abandon(self) -> None:
        """Let files and locks go without writing anything: the next start finds a crash."""
        for directory in self.all:
            for loaded in (*directory.logs.values(), *directory.futures.values()):
                loaded.close()
            directory.close()

    def _set_aside(self, at: TopicPartition, directory: Directory, loaded: Log, why: str) -> None:
        unique_id = random_uuid(self._random).hex
        name = retired_directory_name(at, DirectoryKind.STRAY, unique_id)
        try:
            loaded.rename_directory(join(directory.path, name))
            directory.forget([at])
        except StorageError as error:
            directory.go_offline(str(error))
        loaded.close()
        self.notices.append(
            f"The log of {at} (topic id {loaded.topic_id}) {why}: it is kept as {loaded.directory}."
        )


def _has_lost(found: LogToLoad, loaded: Log) -> bool:
    """Whether a log that was closed cleanly lacks what it had then: all of it was synced."""
    is_short = loaded.log_end_offset < found.recovery_point
    return is_short or loaded.recovery_report.has_lost_records


def progress_of(found: Log) -> tuple[int, int, int]:
    """How far a log is: of two that were one, the greater one has all that the other has."""
    return found.leader_epochs.latest, found.log_end_offset, found.log_start_offset
