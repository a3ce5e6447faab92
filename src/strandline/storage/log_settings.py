"""The settings of the topic, as one of its logs uses them."""

from __future__ import annotations

from functools import lru_cache

from strandline.config.topic import TopicConfig
from strandline.records.rules import AppendRules


class LogSettings:
    """`config`, and what appends need of it at each batch; all of it is from the same `config`."""

    __slots__ = (
        "batch_bytes_max",
        "client_rules",
        "config",
        "coordinator_rules",
        "keeps_batches",
        "segment_bytes",
    )

    def __init__(self, config: TopicConfig) -> None:
        self.follow(config)

    def follow(self, config: TopicConfig) -> None:
        """Use other settings from the next append on."""
        self.config = config
        self.client_rules, self.coordinator_rules = _rules_of(config)
        self.keeps_batches = self.client_rules.keeps_batches
        self.segment_bytes = config.segment_bytes
        self.batch_bytes_max = min(self.client_rules.max_message_bytes, config.segment_bytes)


@lru_cache(maxsize=256)
def _rules_of(config: TopicConfig) -> tuple[AppendRules, AppendRules]:
    """Of clients and of coordinators. Most topics have the same settings."""
    return AppendRules.for_topic(config), AppendRules.for_topic(config, allow_control=True)
