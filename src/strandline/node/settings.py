"""The configuration in force: the broker's settings, and each topic's on top of them.

Settings change while the node runs (AlterConfigs); whoever needs one asks here at the moment of
use, or is told through the node when a topic's change.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from strandline.cluster.image import ClusterImage
from strandline.cluster.znodes import CLUSTER_DEFAULT, ConfigResource, ResourceKind
from strandline.config.broker import BrokerConfig
from strandline.config.describe import DescribedSetting, describe_topic
from strandline.config.load import apply_dynamic, topic_config
from strandline.config.topic import TopicConfig
from strandline.errors import InvalidSetting
from strandline.types import BrokerId

log = logging.getLogger(__name__)

_IN_FLIGHT_PER_CONNECTION_MAX: Final = 128


class Settings:
    """What the node follows now."""

    def __init__(self, broker: BrokerConfig) -> None:
        self.broker = broker

    def follow(self, image: ClusterImage, broker_id: BrokerId) -> None:
        """Take over the dynamic settings of all brokers and of this one."""
        loaded = apply_dynamic(
            self.broker,
            cluster_wide=image.overrides(ConfigResource(ResourceKind.BROKER, CLUSTER_DEFAULT)),
            per_broker=image.overrides(ConfigResource(ResourceKind.BROKER, str(broker_id))),
        )
        self.broker = loaded.config

    def of_topic(self, name: str, image: ClusterImage) -> TopicConfig:
        """The settings of one topic, its overrides applied.

        Overrides were checked when they were made, perhaps by another version: if they are not
        allowed any more the topic keeps working with the broker's settings, and a warning says so.
        """
        overrides = image.overrides(ConfigResource(ResourceKind.TOPIC, name))
        try:
            return topic_config(overrides, self.broker)
        except InvalidSetting as error:
            log.warning("The settings of topic %s are ignored: %s", name, error)
            return self.broker.topic_defaults

    def describe_topic(self, overrides: Mapping[str, str]) -> list[DescribedSetting]:
        """All settings of a topic with these overrides, as DescribeConfigs shows them."""
        return describe_topic(overrides, self.broker)

    @property
    def in_flight_max(self) -> int:
        """How many requests of one connection may be in work or wait for their answer."""
        return min(self.broker.queued_max_requests, _IN_FLIGHT_PER_CONNECTION_MAX)
