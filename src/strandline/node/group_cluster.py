"""The cluster as consumer groups see it: the node's image of the metadata, and its settings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from strandline.cluster.image import TopicImage
from strandline.groups.consumer.cluster_view import GroupTimes, TopicFacts
from strandline.node.metadata import Metadata
from strandline.node.settings import Settings
from strandline.types import BrokerId, TopicId


class GroupCluster:
    """See `groups.consumer.cluster_view.ClusterView`."""

    def __init__(self, metadata: Metadata, settings: Settings) -> None:
        self._metadata = metadata
        self._settings = settings

    @property
    def version(self) -> int:
        """The transaction of the metadata store that is known here."""
        return self._metadata.image.zxid

    def named(self, name: str) -> TopicFacts | None:
        """The topic of that name."""
        return _facts(self._metadata.image.topics.get(name))

    def identified(self, topic_id: TopicId) -> TopicFacts | None:
        """The topic with that id."""
        return _facts(self._metadata.image.topic_by_id(topic_id))

    def names(self) -> Iterable[str]:
        """The names of all topics."""
        return self._metadata.image.topics.keys()

    def racks(self, name: str) -> Sequence[Sequence[str]]:
        """For each partition of a topic the racks of its replicas, where they have one."""
        partitions = self._metadata.image.topics[name].partitions
        racks: dict[BrokerId, str | None] = {}
        for state in partitions.values():
            for broker in state.replicas:
                if broker not in racks:
                    racks[broker] = self._rack(broker)
        return [
            [rack for broker in partitions[number].replicas if (rack := racks[broker])]
            for number in sorted(partitions)
        ]

    def _rack(self, broker: BrokerId) -> str | None:
        """Of a broker that is down, too: a restart must not look like a move."""
        image = self._metadata.image
        if broker in image.brokers:
            return image.brokers[broker].rack
        registration = image.registrations.get(broker)
        return None if registration is None else registration.rack

    def times(self, group_id: str) -> GroupTimes:
        """What is set for a group."""
        config = self._settings.of_group(group_id, self._metadata.image)
        return GroupTimes(
            config.consumer_session_timeout_ms,
            config.consumer_heartbeat_interval_ms,
            config.consumer_assignment_interval_ms,
            config.share_session_timeout_ms,
            config.share_heartbeat_interval_ms,
            config.share_assignment_interval_ms,
        )


def _facts(topic: TopicImage | None) -> TopicFacts | None:
    if topic is None:
        return None
    return TopicFacts(topic.name, topic.topic_id, len(topic.partitions))
