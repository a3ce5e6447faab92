"""The partitions that this node hosts, by name and by topic id.

Finding the replica for a request, and giving every hosted partition the role that the metadata
asks for, happen here: opened or made when it is assigned, leading or following by its state, given
up when the topic is deleted or the partition is moved away. The metadata decides which; this
file does not.

A role is only taken from news: states come in the order in which they were written, and one of an
older leader epoch is dropped (KIP-570). Leadership is taken only if it was given to *this* life of
the broker: after a quick restart the metadata still names the former one as leader, whose log may
have had more records than this one's, until the controller notices (KIP-380, KIP-966).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import NamedTuple

from strandline.cluster.image import PartitionImage, TopicImage
from strandline.config.topic import TopicConfig
from strandline.errors import ErrorCode, ProtocolError, StorageError
from strandline.node.logs import Directory
from strandline.node.replica import Replica
from strandline.node.replica_host import ReplicaHost
from strandline.storage.files import NoRoom
from strandline.types import (
    NO_EPOCH,
    NO_LEADER,
    NO_TOPIC_ID,
    BrokerId,
    Instant,
    TopicId,
    TopicPartition,
)

log = logging.getLogger(__name__)


class BrokenOff(StorageError):
    """An operation on a log broke off for want of something: it must be loaded again."""


class RoleChange(NamedTuple):
    """A hosted partition has another role, or the same one under a new leadership."""

    replica: Replica
    is_leading: bool
    was_leading: bool
    is_gone: bool = False
    """No longer to be on this node, or its disk has failed."""


class Replicas:
    """Every partition that this node leads or follows; `logs` has their logs and directories."""

    def __init__(self, host: ReplicaHost, *, internal_topics: frozenset[str]) -> None:
        self.internal_topics = internal_topics
        self.has_roles = False
        """Whether any partition was given a role yet; until then nothing is to be said of high
        watermarks that the checkpoint does not say better (KAFKA-1647)."""
        self.host = host
        self.logs = host.logs
        self._metadata = host.metadata
        self._by_name: dict[tuple[str, int], Replica] = {}
        self._by_id: dict[tuple[TopicId, int], Replica] = {}
        self._unavailable: dict[TopicPartition, StorageError] = {}
        """Partitions that are to be on this node, and why their logs cannot be used."""
        self._has_news = False
        self.arrived: list[Replica] = []
        """Hosted since the last `take_arrived`: a log of theirs may have been on the move."""

    def __iter__(self) -> Iterator[Replica]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    # -- Finding -----------------------------------------------------------------------------

    def find(self, partition: TopicPartition) -> Replica | None:
        """The replica, in whatever role, or None if it is not hosted here."""
        return self._by_name.get(partition)

    def why_unavailable(self, partition: TopicPartition) -> str | None:
        """What is wrong with the disk of a partition that should be here, if anything is."""
        reason = self._unavailable.get(partition)
        return None if reason is None else str(reason)

    def hosted(self, topic: str, partition: int) -> Replica:
        """The replica to which a request by name goes, in whatever role. Raises `ProtocolError`."""
        replica = self._by_name.get((topic, partition))
        if replica is None:
            raise self._missing(topic, partition)
        return replica

    def hosted_by_id(self, topic_id: TopicId, partition: int) -> Replica:
        """The replica to which a request by topic id goes, in whatever role."""
        replica = self._by_id.get((topic_id, partition))
        if replica is None:
            topic = self._metadata.image.topic_by_id(topic_id)
            if topic is None:
                raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_ID)
            raise self._missing(topic.name, partition)
        return replica

    def leader(self, topic: str, partition: int) -> Replica:
        """The replica for what only a leader may do. Raises `ProtocolError`."""
        replica = self._by_name.get((topic, partition))
        if replica is None:
            raise self._missing(topic, partition)
        replica.check_leading()
        return replica

    def leader_by_id(self, topic_id: TopicId, partition: int) -> Replica:
        """As `leader`, by topic id."""
        replica = self.hosted_by_id(topic_id, partition)
        replica.check_leading()
        return replica

    def for_fast_path(self, topic: str, topic_id: TopicId, partition: int) -> Replica | None:
        """The replica of a client's produce by name, or by id where the name is empty; None if it
        is not led here, or not for clients to write to."""
        by_id = self._by_id.get((topic_id, partition))
        replica = self._by_name.get((topic, partition)) if topic else by_id
        if replica is None or replica.leading is None:
            return None
        return None if replica.topic_partition.topic in self.internal_topics else replica

    def in_directory(self, directory: Directory) -> Iterator[Replica]:
        """The replicas whose logs are in one log directory, by name."""
        for partition in sorted(directory.logs):
            replica = self._by_name.get(partition)
            if replica is not None:
                yield replica

    def take_flushable(self) -> list[Replica]:
        """The replicas whose logs asked to be synced since the last call."""
        if not self.host.flushable:
            return []
        flushable = [
            replica
            for each in self.host.flushable
            if (replica := self._by_name.get(each.topic_partition)) and replica.log is each
        ]
        self.host.flushable.clear()
        return flushable

    def take_arrived(self) -> list[Replica]:
        """See `arrived`."""
        arrived, self.arrived = self.arrived, []
        return arrived

    def save_log_starts(self) -> list[Replica]:
        """Write down the log starts that were raised, then wake the requests that wait for that.

        Returns whose were written since the last call, also earlier in this turn (by a fetcher, or
        by periodic work).
        """
        self.logs.save_log_starts()
        found: list[Replica] = []
        for saved in self.logs.take_saved_starts():
            replica = self._by_name.get(saved.topic_partition)
            if replica is not None and replica.log.offsets is saved:
                replica.wake_low_watermark_waiters()
                found.append(replica)
        return found

    def _missing(self, topic: str, partition: int) -> ProtocolError:
        """Why there is no such replica: it is broken, on another broker, or not anywhere."""
        reason = self._unavailable.get(TopicPartition(topic, partition))
        if reason is not None:
            return ProtocolError(ErrorCode.KAFKA_STORAGE_ERROR, str(reason))
        if self._metadata.image.partition(TopicPartition(topic, partition)) is not None:
            return ProtocolError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    # -- Roles -------------------------------------------------------------------------------

    def apply(
        self,
        partition: TopicPartition,
        topic: TopicImage,
        state: PartitionImage,
        config: TopicConfig,
        now: Instant,
        *,
        is_new: bool,
    ) -> RoleChange | None:
        """Follow the metadata of one partition, of this node or not.

        `is_new` says that a partition which is not hosted yet was given to this broker after it
        had started, so that it cannot have a log of it from a former life.
        None if no role has changed; changes of the in-sync set and of the assignment are taken
        over silently. A partition whose disk fails has no role: requests for it are refused with
        KAFKA_STORAGE_ERROR.
        """
        known = self._by_name.get(partition)
        if self.host.broker_id not in state.replicas:
            return self._give_up(partition, known, now)
        if state.leader_epoch == NO_EPOCH:
            return None  # no leader was elected yet
        try:
            if known is None:
                is_new = is_new and partition not in self._unavailable
                opened = self.logs.open(partition, topic.topic_id, config, now, is_new=is_new)
                known = self._enter(Replica(partition, topic.topic_id, opened, self.host))
            return self._give_role(known, state, now)
        except StorageError as error:
            if known is None:
                if partition not in self._unavailable:
                    log.error("%s cannot be used: %s", partition, error)
                if not isinstance(error, NoRoom) or partition not in self.offline:
                    self._set_aside(partition, error)
                return None
            self._set_aside(partition, error)
            was_leading = known.is_leading
            if not isinstance(error, NoRoom):
                known.fail(error)
            return self._give_away(known, error, was_leading=was_leading)

    @property
    def offline(self) -> frozenset[TopicPartition]:
        """Partitions whose replica here cannot be used until the disk is repaired."""
        return frozenset(
            partition
            for partition, error in self._unavailable.items()
            if not isinstance(error, NoRoom)
        )

    @property
    def delayed(self) -> list[TopicPartition]:
        """Partitions whose replica here can be used as soon as there is room again."""
        return [
            at for at, error in self._unavailable.items() if isinstance(error, NoRoom | BrokenOff)
        ]

    @property
    def is_without_directory(self) -> bool:
        """Whether every log directory has failed."""
        return not self.logs.usable

    @property
    def has_news_of_disks(self) -> bool:
        """Whether `take_failed` is due, or `offline` has changed since it was."""
        return (
            self._has_news
            or self.logs.has_failed_logs
            or any(d.offline_reason is not None for d in self.logs.usable)
        )

    def note_failed_logs(self) -> None:
        """Have those given up whose log alone has failed, in a directory that works."""
        self._has_news = self._has_news or any(each.log.failure is not None for each in self)

    def take_failed(self) -> list[RoleChange]:
        """Give up the replicas whose directory or whose log has failed.

        They are refused with KAFKA_STORAGE_ERROR from now on; `offline` names them.
        """
        self._has_news = self.logs.has_failed_logs = False
        failed = [each for each in self if each.log.failure is not None]
        for directory in self.logs.take_failed():
            failed += self.in_directory(directory)
        changes: list[RoleChange] = []
        for replica in failed:
            at = replica.topic_partition
            if at in self._unavailable:
                continue
            directory_of_log = self.logs.directory_of(at)
            reason = replica.log.failure or (directory_of_log and directory_of_log.offline_reason)
            error: StorageError
            if replica.log.health.may_reload:
                error = BrokenOff(f"It is loaded again when there is room: {reason}")
            else:
                error = StorageError(f"The disk under it failed: {reason}")
            self._set_aside(at, error)
            replica.log.health.fail(str(error))
            changes.append(self._give_away(replica, error, was_leading=replica.is_leading))
        return changes

    def _set_aside(self, partition: TopicPartition, error: StorageError) -> None:
        self._unavailable[partition] = error
        self._has_news = True

    def _bring_back(self, partition: TopicPartition) -> None:
        if self._unavailable.pop(partition, None) is not None:
            self._has_news = True

    def _give_away(self, replica: Replica, error: StorageError, *, was_leading: bool) -> RoleChange:
        """The replica has no role any more; its log stays as it is."""
        log.error("%s cannot be used: %s", replica.topic_partition, error)
        self._forget(replica)
        replica.retire(ErrorCode.KAFKA_STORAGE_ERROR)
        return RoleChange(replica, is_leading=False, was_leading=was_leading, is_gone=True)

    def remove(self, topic: TopicImage, now: Instant) -> list[Replica]:
        """Give a deleted topic up; its files go after `file.delete.delay.ms`."""
        removed: list[Replica] = []
        partitions = [TopicPartition(topic.name, number) for number in topic.partitions]
        for partition in partitions:
            self._bring_back(partition)
            replica = self._by_name.get(partition)
            if replica is not None:
                self._forget(replica)
                replica.retire(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                removed.append(replica)
        self.logs.delete(partitions, now)
        return removed

    def brokers_changed(self, changed: Collection[BrokerId], now: Instant) -> list[RoleChange]:
        """Brokers came, went, or changed: who counts for a high watermark may be another one.

        If this broker itself has registered, leadership that waited for that begins.
        """
        changes: list[RoleChange] = []
        me = self.host.broker_id
        for replica in list(self):
            if replica.leading is not None:
                if not replica.leading.state.progress.keys().isdisjoint(changed):
                    replica.leading.brokers_changed(now)
            elif me in changed:
                at = replica.topic_partition
                topic = self._metadata.image.topics.get(at.topic)
                state = self._metadata.image.partition(at)
                if topic is not None and state is not None and state.leader == me:
                    change = self.apply(at, topic, state, replica.log.config, now, is_new=False)
                    changes += (change,) if change else ()
        return changes

    def reconfigure(self, partition: TopicPartition, config: TopicConfig, now: Instant) -> None:
        """Let a hosted partition follow changed settings."""
        replica = self._by_name.get(partition)
        if replica is not None:
            replica.log.update_config(config)
            if replica.leading is not None:
                replica.leading.reconfigured(now)

    def _give_role(
        self, replica: Replica, state: PartitionImage, now: Instant
    ) -> RoleChange | None:
        self.has_roles = True
        if state.leader_epoch < replica.leader_epoch:
            return None
        was_leading = replica.is_leading
        is_new = state.leader_epoch > replica.leader_epoch
        may_lead = state.leader == self.host.broker_id and (
            # Who leads in this epoch already has lost nothing, even if its session has expired.
            (was_leading and not is_new) or self._is_of_this_life(state)
        )
        leading = replica.leading
        if may_lead and leading is not None and not is_new:
            leading.reassigned(state.replicas, now)
            leading.in_sync_committed(
                state.in_sync_replicas, state.partition_epoch, now, has_eligible=state.has_eligible
            )
            return None
        if may_lead:
            replica.become_leader(state, now)
            return RoleChange(replica, is_leading=True, was_leading=was_leading)
        if state.leader == self.host.broker_id:
            state = replace(state, leader=NO_LEADER)
        if not is_new and not was_leading and state.leader == replica.leader_id:
            return None
        replica.become_follower(state)
        return RoleChange(replica, is_leading=False, was_leading=was_leading)

    def _is_of_this_life(self, state: PartitionImage) -> bool:
        """Whether a state that makes this broker the leader was written for its registration."""
        me = self._metadata.image.brokers.get(self.host.broker_id)
        return me is not None and state.leads_under(me.epoch)

    def _give_up(
        self, partition: TopicPartition, known: Replica | None, now: Instant
    ) -> RoleChange | None:
        """The partition is not, or no longer, to be on this node (KIP-455)."""
        self._bring_back(partition)
        change: RoleChange | None = None
        if known is not None:
            was_leading = known.is_leading
            self._forget(known)
            known.retire(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            change = RoleChange(known, is_leading=False, was_leading=was_leading, is_gone=True)
        # Also what was set aside: no failed log may be in the way when the partition comes back.
        self.logs.delete([partition], now)
        return change

    def _enter(self, replica: Replica) -> Replica:
        self._bring_back(replica.topic_partition)
        self.host.purgatory.changed(self.host.arrivals)
        self._by_name[replica.topic_partition] = replica
        self.arrived.append(replica)
        if replica.topic_id != NO_TOPIC_ID:
            self._by_id[replica.topic_id, replica.topic_partition.partition] = replica
        return replica

    def _forget(self, replica: Replica) -> None:
        self._by_name.pop(replica.topic_partition, None)
        self._by_id.pop((replica.topic_id, replica.topic_partition.partition), None)
