"""What a log consists of: state that each of its operations takes what it needs from.

This file knows which parts there are, and where a partition lies. Each part writes its own fields;
the others call its methods.
"""

from __future__ import annotations

from typing import NamedTuple

from strandline.storage.files import Files
from strandline.storage.leader_epochs import LeaderEpochs
from strandline.storage.log_health import LogHealth
from strandline.storage.log_offsets import LogOffsets
from strandline.storage.log_settings import LogSettings
from strandline.storage.partition_metadata import read_topic_id, write_topic_id
from strandline.storage.producer_state import ProducerStates
from strandline.storage.segments import Segments
from strandline.types import NO_TOPIC_ID, TopicId, TopicPartition


class PartitionDirectory:
    """Where the log of a partition lies, and to which topic it belongs.

    `path` is the name that the directory has on disk. `topic_id` is what `partition.metadata` says,
    `NO_TOPIC_ID` without one.
    """

    __slots__ = ("files", "path", "topic_id", "topic_partition")

    def __init__(self, files: Files, path: str, topic_partition: TopicPartition) -> None:
        self.files = files
        self.path = path
        self.topic_partition = topic_partition
        self.topic_id = read_topic_id(files, path) or NO_TOPIC_ID

    def sync(self) -> None:
        """Make the names in it durable."""
        self.files.sync_directory(self.path)

    def rename(self, path: str) -> None:
        """Move it, not durably."""
        self.files.rename(self.path, path)
        self.path = path

    def assign_topic_id(self, topic_id: TopicId) -> None:
        """Say durably to which topic the log belongs. Another id on disk is `StorageError`."""
        write_topic_id(self.files, self.path, topic_id)
        self.topic_id = topic_id


class LogParts(NamedTuple):
    """The state of one log."""

    location: PartitionDirectory
    settings: LogSettings
    health: LogHealth
    offsets: LogOffsets
    segments: Segments
    leader_epochs: LeaderEpochs
    producers: ProducerStates
