"""Which settings adopted topics get, and what is taken over for brokers and consumer groups.

A log directory that Kafka wrote has its settings in a metadata log, which may not be readable. A
topic whose settings are not known keeps its records for ever until an operator says otherwise: any
other guess could delete, at the first look at retention, what was meant to stay. What is known but
not allowed here is left out and told, a setting at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from strandline.cluster.controller.internal_topics import internal_topic_spec
from strandline.cluster.controller.topic_writes import config_write
from strandline.cluster.image import ClusterImage
from strandline.cluster.kraft_settings import KraftSettings
from strandline.cluster.store import Operation
from strandline.cluster.znodes import CLUSTER_DEFAULT, ConfigResource, ResourceKind
from strandline.config.alter import replace_broker, replace_group, replace_topic
from strandline.config.broker import BrokerConfig
from strandline.config.resolve import KEEPING
from strandline.errors import ProtocolError
from strandline.types import BrokerId, TopicId

KEPT_FOR_EVER: Final = {"retention.bytes": "-1", "retention.ms": "-1"}
_CLEANUP: Final = "cleanup.policy"


@dataclass(frozen=True, slots=True)
class AdoptedSettings:
    """Overrides of one topic. `are_known` is False if they had to be made up."""

    overrides: Mapping[str, str]
    are_known: bool
    left_out: tuple[str, ...] = ()
    """Sentences."""


def settings_of_topic(
    name: str, topic_id: TopicId, kept: KraftSettings | None, broker: BrokerConfig
) -> AdoptedSettings:
    """The overrides that a topic gets when it is adopted."""
    spec = internal_topic_spec(name, broker, broker_count=1)
    needed = {} if spec is None else {k: v for k, v in spec.configs.items() if v is not None}
    known = kept.of_topic(name, topic_id) if kept is not None else None
    if known is None:
        return AdoptedSettings(needed or KEPT_FOR_EVER, are_known=spec is not None)
    overrides, left_out = _allowed(known, lambda some: replace_topic(some.items(), broker))
    lost = known.keys() - overrides.keys()
    overrides |= {key: text for key, text in KEEPING.items() if key in lost}
    overrides = {**needed, **overrides}
    if _CLEANUP in needed:
        overrides[_CLEANUP] = needed[_CLEANUP]  # whose records are state must keep the last of each
    return AdoptedSettings(
        overrides, True, tuple(f"Topic {name}: {sentence}" for sentence in left_out)
    )


def settings_of_brokers(
    image: ClusterImage, kept: KraftSettings, broker_id: BrokerId, broker: BrokerConfig
) -> tuple[list[Operation], list[str]]:
    """Operations that take over the settings of this broker and of all, and what is left out.

    Settings of other brokers are for those to take over, and what is set here already stays.
    """
    operations: list[Operation] = []
    left_out: list[str] = []
    for name in (CLUSTER_DEFAULT, str(broker_id)):
        resource = ConfigResource(ResourceKind.BROKER, name)
        known = kept.overrides.get(resource, {})
        if not known or resource in image.configs:
            continue
        one_broker = name != CLUSTER_DEFAULT
        check = partial(_broker_settings, broker=broker, one_broker=one_broker)
        overrides, sentences = _allowed(known, check)
        operations += config_write(image, resource, overrides)
        whose = f"Broker {name}" if one_broker else "All brokers"
        left_out += (f"{whose}: {sentence}" for sentence in sentences)
    return operations, left_out


def settings_of_groups(
    image: ClusterImage, kept: KraftSettings, broker: BrokerConfig
) -> tuple[list[Operation], list[str]]:
    """The same for consumer groups: their settings are those of the cluster."""
    operations: list[Operation] = []
    left_out: list[str] = []
    for resource, known in sorted(kept.overrides.items()):
        if resource.kind is not ResourceKind.GROUP or not known or resource in image.configs:
            continue
        overrides, sentences = _allowed(known, lambda some: replace_group(some.items(), broker))
        operations += config_write(image, resource, overrides)
        left_out += (f"Group {resource.name}: {sentence}" for sentence in sentences)
    return operations, left_out


def _broker_settings(
    settings: Mapping[str, str], *, broker: BrokerConfig, one_broker: bool
) -> dict[str, str]:
    return replace_broker(settings.items(), broker, one_broker=one_broker, is_running=False)


def _allowed(
    known: Mapping[str, str], check: Callable[[Mapping[str, str]], dict[str, str]]
) -> tuple[dict[str, str], list[str]]:
    """As many of the settings as are allowed together, and a sentence about each other one."""
    allowed: dict[str, str] = {}
    left_out: list[str] = []
    for name, text in sorted(known.items()):
        try:
            allowed = check({**allowed, name: text})
        except ProtocolError as refusal:
            left_out.append(f"the setting {name} is not taken over. {refusal.message}")
    return allowed, left_out
