"""The partitions that this node hosts, by name and by topic id.

Finding the replica for a request, opening its log when the metadata gives it to this node, and
giving it up when the topic is deleted all happen here. Which partitions those are is decided by
the metadata, not by this file.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from random import Random
from typing import NamedTuple, TypeAlias

from strandline.cluster.image import TopicImage
from strandline.config.topic import TopicConfig
from strandline.errors import ErrorCode, ProtocolError, StorageError
from strandline.node.purgatory import Purgatory
from strandline.node.replica import Replica
from strandline.storage.files import Files, join
from strandline.storage.log import Log
from strandline.storage.log_directory import LogDirectory
from strandline.types import NO_TOPIC_ID, Instant, LeaderEpoch, TopicId, TopicPartition

log = logging.getLogger(__name__)

Directory: TypeAlias = LogDirectory[Log]


class Removed(NamedTuple):
    """A deleted partition whose files may go at `due_ms` (monotonic)."""

    due_ms: int
    directory: Directory
    log: Log
    path: str


class Replicas:
    """Every partition that this node leads, and the directories in which their logs are."""

    def __init__(
        self,
        files: Files,
        directories: Sequence[Directory],
        purgatory: Purgatory,
        random: Random,
        *,
        internal_topics: frozenset[str],
        producer_expiration_ms: int,
    ) -> None:
        self.directories = directories
        self.internal_topics = internal_topics
        self._producer_expiration_ms = producer_expiration_ms
        self.files = files
        self._purgatory = purgatory
        self._random = random
        self._by_name: dict[tuple[str, int], Replica] = {}
        self._by_id: dict[tuple[TopicId, int], Replica] = {}
        self._topic_ids: set[TopicId] = set()
        self._unavailable: dict[tuple[str, int], str] = {}
        self._flushable: dict[Replica, None] = {}
        self.removed: list[Removed] = []
        """Deleted partitions whose files are still there."""

    def __iter__(self) -> Iterator[Replica]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def leader(self, topic: str, partition: int) -> Replica:
        """The replica to which a request by name goes. Raises `ProtocolError`."""
        replica = self._by_name.get((topic, partition))
        if replica is None:
            if (topic, partition) in self._unavailable:
                raise ProtocolError(
                    ErrorCode.KAFKA_STORAGE_ERROR, self._unavailable[topic, partition]
                )
            raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return replica

    def leader_by_id(self, topic_id: TopicId, partition: int) -> Replica:
        """The replica to which a request by topic id goes. Raises `ProtocolError`."""
        replica = self._by_id.get((topic_id, partition))
        if replica is None:
            known = topic_id in self._topic_ids
            raise ProtocolError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if known else ErrorCode.UNKNOWN_TOPIC_ID
            )
        return replica

    def find(self, topic: str, topic_id: TopicId, partition: int) -> Replica | None:
        """The replica by name, or by id where the name is empty; None if it is not led here."""
        if topic:
            return self._by_name.get((topic, partition))
        return self._by_id.get((topic_id, partition))

    def in_directory(self, directory: Directory) -> Iterator[Replica]:
        """The replicas whose logs are in one log directory, by name."""
        for partition in sorted(directory.logs):
            replica = self._by_name.get(partition)
            if replica is not None:
                yield replica

    def take_flushable(self) -> list[Replica]:
        """The replicas whose logs asked to be synced since the last call."""
        if not self._flushable:
            return []
        flushable = list(self._flushable)
        self._flushable.clear()
        return flushable

    def lead(
        self,
        partition: TopicPartition,
        topic_id: TopicId,
        leader_epoch: LeaderEpoch,
        config: TopicConfig,
        now: Instant,
    ) -> Replica | None:
        """Lead a partition from now on, opening or creating its log.

        None if nothing changed, or if the disk failed: then requests for the partition are refused
        with KAFKA_STORAGE_ERROR.
        """
        known = self._by_name.get(partition)
        if known is not None and known.leader_epoch == leader_epoch:
            return None
        if known is not None:
            known.lead(leader_epoch)
            return known
        try:
            opened = self._open(partition, topic_id, config, now)
        except StorageError as error:
            log.error("%s cannot be opened: %s", partition, error)
            self._unavailable[partition] = str(error)
            return None
        replica = Replica(partition, topic_id, opened, self._purgatory, self._flushable)
        replica.lead(leader_epoch)
        self._by_name[partition] = replica
        if topic_id != NO_TOPIC_ID:
            self._by_id[topic_id, partition.partition] = replica
            self._topic_ids.add(topic_id)
        return replica

    def remove(self, topic: TopicImage, now: Instant) -> None:
        """Give a deleted topic up; its files go after `file.delete.delay.ms`."""
        for number in topic.partitions:
            partition = TopicPartition(topic.name, number)
            self._unavailable.pop(partition, None)
            self._by_id.pop((topic.topic_id, number), None)
            replica = self._by_name.pop(partition, None)
            if replica is not None:
                replica.retire()
        self._topic_ids.discard(topic.topic_id)
        for directory in self.directories:
            logs = [
                directory.logs[partition]
                for number in topic.partitions
                if (partition := TopicPartition(topic.name, number)) in directory.logs
            ]
            try:
                self._delete(directory, logs, now)
            except StorageError as error:
                directory.go_offline(str(error))
                log.error("The topic %s could not be deleted: %s", topic.name, error)

    def _delete(self, directory: Directory, logs: Sequence[Log], now: Instant) -> None:
        """Rename the logs away; the tables of the directory are written once for all of them."""
        if not logs:
            return
        for deleted in logs:
            due_ms = now.monotonic_ms + deleted.config.file_delete_delay_ms
            path = deleted.delete(f"{self._random.getrandbits(128):032x}")
            self.removed.append(Removed(due_ms, directory, deleted, path))
        directory.forget([deleted.topic_partition for deleted in logs])

    def reconfigure(self, partition: TopicPartition, config: TopicConfig) -> None:
        """Let a hosted partition follow changed settings."""
        replica = self._by_name.get(partition)
        if replica is not None:
            replica.log.update_config(config)

    def _open(
        self, partition: TopicPartition, topic_id: TopicId, config: TopicConfig, now: Instant
    ) -> Log:
        for directory in self.directories:
            found = directory.logs.get(partition)
            if found is not None:
                found.update_config(config)
                return found
        directory = self._roomiest()
        created = Log.create(
            self.files,
            join(directory.path, str(partition)),
            partition,
            config,
            now_ms=now.wall_ms,
            random=self._random,
            producer_expiration_ms=self._producer_expiration_ms,
        )
        if topic_id != NO_TOPIC_ID:
            created.assign_topic_id(topic_id)
        directory.add(created)
        return created

    def _roomiest(self) -> Directory:
        """The usable directory with the fewest logs, the first of several (Kafka's choice)."""
        usable = [directory for directory in self.directories if directory.offline_reason is None]
        if not usable:
            raise StorageError("Every log directory is offline.")
        return min(usable, key=lambda directory: len(directory.logs))
