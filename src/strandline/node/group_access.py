"""The group coordinator of a node, imported and made when it is first needed.

Most brokers of a test, and some of a cluster, never need it: a broker pays, in start-up time and in
memory, for what its clients use.
"""

from __future__ import annotations

from functools import cached_property, partial
from random import Random
from typing import TYPE_CHECKING

from strandline.node.metadata import Metadata
from strandline.node.replicas import Replicas
from strandline.node.settings import Settings
from strandline.node.timers import Timers

if TYPE_CHECKING:
    from strandline.node.group_host import GroupHost
    from strandline.node.sharing.access import ShareAccess


class GroupAccess:
    """See the module."""

    def __init__(
        self,
        metadata: Metadata,
        settings: Settings,
        replicas: Replicas,
        timers: Timers,
        random: Random,
        sharing: ShareAccess,
    ) -> None:
        """`sharing` is where the states of share groups are kept."""
        self._metadata = metadata
        self._settings = settings
        self._replicas = replicas
        self._timers = timers
        self._random = random
        self._sharing = sharing

    @property
    def is_used(self) -> bool:
        """Whether the group coordinator has been needed yet."""
        return "host" in self.__dict__

    def check(self) -> None:
        """See `GroupHost.check`."""
        if self.is_used:
            self.host.check()

    @cached_property
    def host(self) -> GroupHost:
        """The group coordinator, made when first needed."""
        from strandline.cluster.topic_names import CONSUMER_OFFSETS
        from strandline.groups.coordinator import GroupCoordinator
        from strandline.node.group_cluster import GroupCluster
        from strandline.node.group_host import GroupHost, group_settings
        from strandline.records.codec import Codec

        broker = self._settings.broker
        coordinator = GroupCoordinator(
            group_settings(broker),
            self._random,
            partition_count=partial(
                self._metadata.partition_count,
                CONSUMER_OFFSETS,
                broker.offsets_topic_num_partitions,
            ),
            cluster=GroupCluster(self._metadata, self._settings),
        )
        codec = Codec(broker.offsets_topic_compression_codec)
        read_bytes = broker.offsets_load_buffer_size
        return GroupHost(
            coordinator,
            self._replicas,
            self._timers,
            codec,
            read_bytes,
            persister=lambda: self._sharing.persister,
        )
