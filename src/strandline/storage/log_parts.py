"""What a log consists of: state that each of its operations takes what it needs from.

This file knows which parts there are, and where a partition lies. Each part writes its own fields;
the others call its methods.
"""

from __future__ import annotations

from typing import NamedTuple

from strandline.storage.checkpoint_file import DamagedCheckpoint
from strandline.storage.files import File, Files, join, parent_of
from strandline.storage.leader_epochs import LeaderEpochs
from strandline.storage.log_health import LogHealth
from strandline.storage.log_offsets import LogOffsets
from strandline.storage.log_settings import LogSettings
from strandline.storage.partition_metadata import FILE_NAME as METADATA_NAME
from strandline.storage.partition_metadata import read_topic_id, write_topic_id
from strandline.storage.producer_state import ProducerStates
from strandline.storage.segments import Segments
from strandline.types import NO_TOPIC_ID, TopicId, TopicPartition


class PartitionDirectory:
    """Where the log of a partition lies, and to which topic it belongs.

    - `path` is the name that the directory has on disk; it is made if it is not there.
    - `topic_id` is what `partition.metadata` says, `NO_TOPIC_ID` without one, and if the file is
      damaged: `damage` says so.
    - `is_durable`: this name and that file are on the disk for certain. A broker may make hundreds
      of partitions at once, so neither is synced at once: they are with the first flush, or before
      the first table of leader epochs (design note 0024). Until then nothing in here is durable.
    """

    __slots__ = ("damage", "files", "is_durable", "path", "topic_id", "topic_partition")

    def __init__(
        self, files: Files, path: str, topic_partition: TopicPartition, *, is_durable: bool
    ) -> None:
        self.files = files
        self.path = path
        self.topic_partition = topic_partition
        self.is_durable = is_durable and files.is_directory(path)
        if not self.is_durable:
            files.make_directory(path)
        self.topic_id = NO_TOPIC_ID
        self.damage: DamagedCheckpoint | None = None
        try:
            self.topic_id = read_topic_id(files, path) or NO_TOPIC_ID
        except DamagedCheckpoint as damage:
            self.damage = damage

    def sync(self) -> None:
        """Make the names in it durable."""
        self.files.sync_directory(self.path)

    def rename(self, path: str) -> None:
        """Move it, not durably."""
        self.files.rename(self.path, path)
        self.path = path

    def assign_topic_id(self, topic_id: TopicId, *, durably: bool) -> None:
        """Write down to which topic the log belongs. Another id on disk is `StorageError`.

        `durably` if it has records already; otherwise the id is durable before they are.
        """
        write_topic_id(self.files, self.path, topic_id, durably=durably)
        self.topic_id = topic_id
        self.is_durable &= durably

    def unsynced(self) -> tuple[tuple[File, ...], tuple[str, ...]]:
        """Files, and then directories, to sync for this name and the topic id to be durable."""
        if self.is_durable:
            return (), ()
        path = join(self.path, METADATA_NAME)
        files = (self.files.open(path),) if self.files.exists(path) else ()
        return files, (self.path, parent_of(self.path))

    def note_durable(self) -> None:
        """What `unsynced` named is synced."""
        self.is_durable = True

    def make_durable(self) -> None:
        """Sync all of that at once, if it is not durable."""
        if self.is_durable:
            return
        files, directories = self.unsynced()
        for file in files:
            file.sync()
        for directory in directories:
            self.files.sync_directory(directory)
        self.note_durable()

    def clear(self) -> list[str]:
        """Remove every file in it, not durably; their names."""
        names = self.files.list_directory(self.path)
        for name in names:
            self.files.remove(join(self.path, name))
        self.damage, self.is_durable = None, False
        return names


class LogParts(NamedTuple):
    """The state of one log."""

    location: PartitionDirectory
    settings: LogSettings
    health: LogHealth
    offsets: LogOffsets
    segments: Segments
    leader_epochs: LeaderEpochs
    producers: ProducerStates
