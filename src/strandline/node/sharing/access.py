"""What a node does for share groups, imported and made when first needed (see `group_access`)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property, partial
from typing import TYPE_CHECKING

from strandline.cluster.topic_names import SHARE_GROUP_STATE
from strandline.node.metadata import Metadata
from strandline.node.peers import Peers
from strandline.node.purgatory import Purgatory
from strandline.node.replicas import Replicas
from strandline.node.settings import Settings
from strandline.node.timers import Timers
from strandline.node.topic_creation import TopicCreation
from strandline.types import BrokerId, Instant, TopicId, TopicPartition

if TYPE_CHECKING:
    from strandline.node.sharing.coordinator_host import ShareCoordinatorHost
    from strandline.node.sharing.leading import LedSharePartitions
    from strandline.node.sharing.log_ends import LogEnds
    from strandline.node.sharing.persister import SharePersister
    from strandline.node.sharing.sessions import ShareSession, ShareSessions


class ShareAccess:
    """See the module."""

    def __init__(
        self,
        metadata: Metadata,
        settings: Settings,
        replicas: Replicas,
        peers: Peers,
        timers: Timers,
        *,
        creation: TopicCreation,
        purgatory: Purgatory,
    ) -> None:
        self._metadata = metadata
        self._settings = settings
        self._replicas = replicas
        self._peers = peers
        self._timers = timers
        self._creation = creation
        self._purgatory = purgatory

    @property
    def is_used(self) -> bool:
        """Whether the share coordinator has been needed yet."""
        return "host" in self.__dict__

    def check(self) -> None:
        """Verify what must always be true, of what has been needed yet."""
        if "leading" in self.__dict__:
            self.leading.check()

    @cached_property
    def host(self) -> ShareCoordinatorHost:
        """The share coordinator."""
        from strandline.cluster.identifiers import uuid_text
        from strandline.node.sharing.coordinator_host import (
            ShareCoordinatorHost,
            share_coordinator_settings,
        )
        from strandline.sharing.coordinator import ShareCoordinator

        broker = self._settings.broker
        coordinator = ShareCoordinator(
            share_coordinator_settings(broker),
            partition_count=partial(
                self._metadata.partition_count,
                SHARE_GROUP_STATE,
                broker.share_coordinator_state_topic_num_partitions,
            ),
            uuid_text=uuid_text,
            has_partition=self._has_partition,
        )
        return ShareCoordinatorHost(
            coordinator, self._replicas, self._timers, broker.share_coordinator_load_buffer_size
        )

    def _has_partition(self, topic_id: TopicId, partition: int) -> bool:
        topic = self._metadata.image.topic_by_id(topic_id)
        return topic is not None and partition in topic.partitions

    @cached_property
    def persister(self) -> SharePersister:
        """Asks the share coordinators of all brokers."""
        from strandline.node.sharing.persister import SharePersister

        return SharePersister(
            self._metadata,
            self._peers,
            self._timers,
            self._creation,
            BrokerId(self._settings.broker.node_id),
            lambda: self.host,
        )

    @cached_property
    def log_ends(self) -> LogEnds:
        """Where logs end, also those that other brokers lead."""
        from strandline.node.sharing.log_ends import LogEnds

        return LogEnds(self._metadata, self._replicas, self._peers)

    @cached_property
    def leading(self) -> LedSharePartitions:
        """The share partitions of the partitions that are led here."""
        from strandline.node.sharing.leading import LedSharePartitions

        return LedSharePartitions(
            self._metadata, self._settings, self._purgatory, self._timers, self.persister
        )

    @cached_property
    def sessions(self) -> ShareSessions:
        """What members fetch from."""
        from strandline.node.sharing.sessions import ShareSessions

        return ShareSessions(
            self._settings.broker.group_share_max_share_sessions, self._disconnected
        )

    def _disconnected(self, session: ShareSession) -> None:
        def end(now: Instant) -> None:
            self.session_ended(session, now)

        # A connection closes at no time; the next turn has one.
        self._timers.schedule(0, end)

    def session_ended(self, session: ShareSession, now: Instant) -> None:
        """A session is over, and maybe it was its group's last one here: the member, or another one
        of the group, may have opened one since."""
        group_id, member_id = session.group_id, session.member_id
        if not self.sessions.has(group_id, member_id):
            self.leading.release(group_id, member_id, now)
        if not self.sessions.has_group(group_id):
            self.leading.group_is_idle(group_id, now)

    # -- Metadata ----------------------------------------------------------------------------

    def role_changed(self, at: TopicPartition, now: Instant) -> None:
        """A replica here leads, follows, or is gone, under a new leadership."""
        if "leading" in self.__dict__:
            self.leading.forget(at, now)

    def topics_deleted(self, topic_ids: Iterable[TopicId], now: Instant) -> None:
        """Topics are gone."""
        if self.is_used:
            self.host.topics_deleted(topic_ids, now)
