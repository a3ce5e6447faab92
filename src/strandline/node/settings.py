"""The configuration in force: the broker's settings, and each topic's on top of them.

Settings change while the node runs (AlterConfigs); a part that needs one asks here at the moment of
use, or is told through the node when a topic's change.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from strandline.cluster.image import ClusterImage, Versioned
from strandline.cluster.znodes import (
    CLUSTER_DEFAULT,
    ConfigNode,
    ConfigResource,
    ResourceKind,
)
from strandline.config.broker import BrokerConfig
from strandline.config.describe import DescribedSetting, describe_topic
from strandline.config.group import GroupConfig, group_config, usable_group_overrides
from strandline.config.load import apply_dynamic, stored_topic_config
from strandline.config.resolve import KEEPING
from strandline.config.topic import TopicConfig
from strandline.types import BrokerId

if TYPE_CHECKING:
    from strandline.node.metadata import Metadata

log = logging.getLogger(__name__)

_IN_FLIGHT_PER_CONNECTION_MAX: Final = 128
_GROUPS_REMEMBERED: Final = 10_000
_KEEPING: Final = {
    **KEEPING,
    "min.insync.replicas": str(2**31 - 1),
    "unclean.leader.election.enable": "false",
}
"""Settings under which no record of a topic is lost, and acks=all means no less than the topic asks
for: all its replicas, since no partition needs more than it has."""


class Settings:
    """What the node follows now."""

    def __init__(self, broker: BrokerConfig) -> None:
        self.broker = broker
        self.ignores_case = False
        """Whether topics whose names differ only in case would share a directory here."""
        self._topics: dict[str, tuple[Versioned[ConfigNode], TopicConfig]] = {}
        """Settings of topics that have overrides, with the overrides that they were made from."""
        self._groups: dict[str, tuple[Versioned[ConfigNode] | None, BrokerConfig, GroupConfig]] = {}
        """Settings of groups, with what they were made from."""
        self._followed = (broker.layers.cluster_wide, broker.layers.per_broker)
        """The stored settings of all brokers and of this one that `broker` was made with."""

    def follow(self, image: ClusterImage, broker_id: BrokerId) -> None:
        """Take over the dynamic settings of all brokers and of this one."""
        per_broker = image.overrides(ConfigResource(ResourceKind.BROKER, str(broker_id)))
        cluster_wide = image.overrides(ConfigResource(ResourceKind.BROKER, CLUSTER_DEFAULT))
        if (cluster_wide, per_broker) == self._followed:
            return
        self._followed = (cluster_wide, per_broker)
        loaded = apply_dynamic(self.broker, cluster_wide=cluster_wide, per_broker=per_broker)
        for warning in loaded.warnings:
            log.warning("Stored settings of brokers: %s", warning)
        self.broker = loaded.config
        self._topics.clear()

    def of_topic(self, name: str, image: ClusterImage) -> TopicConfig:
        """The settings of one topic, its overrides applied.

        Overrides were checked when they were made, perhaps by another version: a warning names
        each that is not allowed any more, and the others are followed. If they cannot be read at
        all, all records of the topic are kept until they can, and acks=all needs all replicas.
        """
        stored = image.configs.get(ConfigResource(ResourceKind.TOPIC, name))
        if stored is None:
            if _is_unreadable(name, image):
                return stored_topic_config(_KEEPING, self.broker).config
            return self.broker.topic_defaults
        known = self._topics.get(name)
        if known is not None and known[0] is stored:
            return known[1]
        if len(self._topics) > 2 * len(image.configs):
            self._topics.clear()  # most of these topics are gone
        config, warnings = stored_topic_config(stored.value.overrides, self.broker)
        for warning in warnings:
            log.warning("Topic %s: %s", name, warning)
        self._topics[name] = (stored, config)
        return config

    def of_group(self, name: str, image: ClusterImage) -> GroupConfig:
        """The settings of one group of the consumer protocol, its overrides applied.

        Each that is not allowed any more is ignored with a warning, as for topics.
        """
        stored = image.configs.get(ConfigResource(ResourceKind.GROUP, name))
        known = self._groups.get(name)
        if known is not None and known[0] is stored and known[1] is self.broker:
            return known[2]
        overrides, warnings = usable_group_overrides(
            {} if stored is None else stored.value.overrides
        )
        for warning in warnings:
            log.warning("Group %s: %s", name, warning)
        config = group_config(overrides, self.broker)
        if len(self._groups) >= _GROUPS_REMEMBERED:
            self._groups.clear()
        self._groups[name] = (stored, self.broker, config)
        return config

    def describe_topic(self, overrides: Mapping[str, str]) -> list[DescribedSetting]:
        """All settings of a topic with these overrides, as DescribeConfigs shows them."""
        return describe_topic(overrides, self.broker)

    @property
    def in_flight_max(self) -> int:
        """How many requests of one connection may be in work or wait for their answer."""
        return min(self.broker.queued_max_requests, _IN_FLIGHT_PER_CONNECTION_MAX)


def overrides_of_topic(name: str, image: ClusterImage) -> Mapping[str, str]:
    """The overrides that `Settings.of_topic` goes by."""
    resource = ConfigResource(ResourceKind.TOPIC, name)
    if resource not in image.configs and _is_unreadable(name, image):
        return _KEEPING
    return image.overrides(resource)


def _is_unreadable(name: str, image: ClusterImage) -> bool:
    return bool(image.unreadable) and (
        ConfigResource(ResourceKind.TOPIC, name).path in image.unreadable
    )


class SettingsPolicy:
    """What the controller's decisions ask about settings, answered from those in force."""

    def __init__(self, settings: Settings, metadata: Metadata) -> None:
        self._settings = settings
        self._metadata = metadata

    def min_in_sync(self, topic: str) -> int:
        """`min.insync.replicas` of the topic."""
        return self._settings.of_topic(topic, self._metadata.image).min_insync_replicas

    def unclean_allowed(self, topic: str) -> bool:
        """`unclean.leader.election.enable` of the topic."""
        config = self._settings.of_topic(topic, self._metadata.image)
        return config.unclean_leader_election_enable

    @property
    def is_deletion_enabled(self) -> bool:
        """`delete.topic.enable`."""
        return self._settings.broker.delete_topic_enable
