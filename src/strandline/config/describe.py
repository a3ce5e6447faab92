"""What DescribeConfigs answers about a topic or a broker.

Theory: each setting is shown with its value, where the value is from, and on request everything
else that it could be from, strongest first. The wire numbers of `Source` and of `Kind` are
Kafka's. Secrets have no value here. This file builds values; the request handler encodes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from itertools import dropwhile
from typing import Final

from strandline.config.broker import BrokerConfig, SettingLayers
from strandline.config.definition import BROKER_SETTINGS, GROUP_SETTINGS, TOPIC_SETTINGS
from strandline.config.group import group_config, usable_group_overrides
from strandline.config.listener_changes import may_change
from strandline.config.resolve import (
    broker_values,
    listener_base,
    merge,
    spellings,
    topic_default_values,
    topic_override_values,
    usable_topic_overrides,
)
from strandline.config.setting import Setting
from strandline.config.values import Kind, format_value

RESTART_ONLY: Final = frozenset(
    {
        "sasl.enabled.mechanisms",
        "sasl.mechanism.inter.broker.protocol",
    }
)
"""Kafka changes these at run time, Strandline at a restart."""


class Source(IntEnum):
    """Where a value is from, as numbered in the DescribeConfigs response."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


@dataclass(frozen=True, slots=True)
class DescribedSynonym:
    """One of the places that a value could be from."""

    name: str
    value: str | None
    source: Source


@dataclass(frozen=True, slots=True)
class DescribedSetting:
    """One entry of the answer; its first synonym is the one in force."""

    name: str
    value: str | None
    source: Source
    synonyms: tuple[DescribedSynonym, ...]
    kind: Kind
    documentation: str
    is_sensitive: bool = False
    read_only: bool = False


def describe_topic(overrides: Mapping[str, str], broker: BrokerConfig) -> list[DescribedSetting]:
    """All settings of a topic with these stored overrides, by name.

    An override that is not allowed here has no effect and is not shown; one that would remove
    records is shown as what is followed instead.
    """
    overrides, _ = usable_topic_overrides(overrides)
    merged = merge(broker.layers)
    values = topic_default_values(merged, broker_values(merged))
    values.update(topic_override_values(overrides))
    described: list[DescribedSetting] = []
    for name, setting in sorted(TOPIC_SETTINGS.items()):
        if setting.internal and name not in overrides:
            continue
        synonyms: list[DescribedSynonym] = []
        text = format_value(values[name])
        if name in overrides:
            synonyms.append(DescribedSynonym(name, text, Source.DYNAMIC_TOPIC_CONFIG))
        if setting.synonyms:
            synonyms.extend(_synonyms_from(setting.synonyms[0].name, broker.layers))
        described.append(_entry(setting, text, synonyms, read_only=False))
    return described


def describe_group(overrides: Mapping[str, str], broker: BrokerConfig) -> list[DescribedSetting]:
    """All settings of a consumer or share group with these stored overrides, by name.

    The values are those that count: one that lies outside the broker's bounds by now is shown as
    the bound. An override that is not allowed here has no effect and is not shown.
    """
    overrides, _ = usable_group_overrides(overrides)
    config = group_config(overrides, broker)
    described: list[DescribedSetting] = []
    for name, setting in sorted(GROUP_SETTINGS.items()):
        text = format_value(getattr(config, setting.attribute)) or ""
        synonyms: list[DescribedSynonym] = []
        if name in overrides:
            synonyms.append(DescribedSynonym(name, overrides[name], Source.GROUP_CONFIG))
        if setting.synonyms:
            synonyms.extend(_synonyms_from(setting.synonyms[0].name, broker.layers))
        described.append(_entry(setting, text, synonyms, read_only=False))
    return described


def describe_broker(broker: BrokerConfig) -> list[DescribedSetting]:
    """All settings of this broker (config resource BROKER with its id), by name."""
    merged = merge(broker.layers)
    values = broker_values(merged)
    described = [
        _broker_entry(name, format_value(values[name]), broker.layers)
        for name, setting in BROKER_SETTINGS.items()
        if not (setting.internal or setting.dynamic_only) or name in merged
    ]
    described.extend(
        _broker_entry(name, text, broker.layers)
        for name, text in merged.items()
        if listener_base(name) is not None
    )
    described.extend(
        _unknown_entry(name, broker.layers)
        for name in merged
        if name not in BROKER_SETTINGS and listener_base(name) is None
    )
    return sorted(described, key=lambda entry: entry.name)


def describe_cluster_defaults(broker: BrokerConfig) -> list[DescribedSetting]:
    """The dynamic settings of all brokers (config resource BROKER with an empty name)."""
    layers = SettingLayers(cluster_wide=broker.layers.cluster_wide)
    described: list[DescribedSetting] = []
    for name, text in sorted(broker.layers.cluster_wide.items()):
        base = BROKER_SETTINGS.get(listener_base(name) or name)
        if base is None:
            described.append(_unknown_entry(name, layers))
            continue
        setting = base._replace(name=name)
        synonyms = [
            synonym
            for synonym in _broker_synonyms(spellings(name), layers)
            if synonym.source is Source.DYNAMIC_DEFAULT_BROKER_CONFIG
        ]
        described.append(_entry(setting, text, synonyms, read_only=_is_read_only(setting)))
    return described


def _broker_entry(name: str, text: str | None, layers: SettingLayers) -> DescribedSetting:
    setting = BROKER_SETTINGS[listener_base(name) or name]._replace(name=name)
    synonyms = _synonyms_from(name, layers)
    return _entry(setting, text, synonyms, read_only=_is_read_only(setting))


def _unknown_entry(name: str, layers: SettingLayers) -> DescribedSetting:
    """A setting that is not known here, perhaps of a plugin: what is in it may be a secret, so
    Kafka does not show its value."""
    found = _broker_synonyms((name,), layers)
    synonyms = [DescribedSynonym(name, None, synonym.source) for synonym in found]
    return DescribedSetting(
        name=name,
        value=None,
        source=synonyms[0].source,
        synonyms=tuple(synonyms),
        kind=Kind.UNKNOWN,
        documentation="",
        is_sensitive=True,
        read_only=True,
    )


def _is_read_only(setting: Setting) -> bool:
    if listener_base(setting.name) is not None:
        return not may_change(setting.name)
    return not setting.is_dynamic or setting.name in RESTART_ONLY


def _synonyms_from(name: str, layers: SettingLayers) -> list[DescribedSynonym]:
    """Where a broker setting could be from, beginning with a place that has it under this name.

    Kafka does not show a value as coming from another spelling alone. For a topic setting the name
    is the strongest spelling behind it: with only `log.retention.hours` set, `retention.ms` has the
    value that follows, but nothing is listed that it is from.
    """
    found = _broker_synonyms(spellings(name), layers)
    return list(dropwhile(lambda synonym: synonym.name != name, found))


def _broker_synonyms(names: Iterable[str], layers: SettingLayers) -> Iterator[DescribedSynonym]:
    """Strongest layer first; within a layer in the order of `names`."""
    names = tuple(names)
    for layer, source in (
        (layers.per_broker, Source.DYNAMIC_BROKER_CONFIG),
        (layers.cluster_wide, Source.DYNAMIC_DEFAULT_BROKER_CONFIG),
        (layers.static, Source.STATIC_BROKER_CONFIG),
    ):
        for name in names:
            if name in layer:
                yield DescribedSynonym(name, layer[name], source)
    for name in names:
        setting = BROKER_SETTINGS.get(name)
        if setting is not None and setting.default is not None:
            yield DescribedSynonym(name, format_value(setting.default), Source.DEFAULT_CONFIG)


def _entry(
    setting: Setting, text: str | None, synonyms: list[DescribedSynonym], *, read_only: bool
) -> DescribedSetting:
    if setting.is_sensitive:
        text = None
        synonyms = [DescribedSynonym(each.name, None, each.source) for each in synonyms]
    return DescribedSetting(
        name=setting.name,
        value=text,
        source=synonyms[0].source if synonyms else Source.DEFAULT_CONFIG,
        synonyms=tuple(synonyms),
        kind=setting.kind,
        documentation=setting.doc,
        is_sensitive=setting.is_sensitive,
        read_only=read_only,
    )
