"""From a properties file and overrides to `BrokerConfig` and `TopicConfig`.

The public way in. A misspelt name, or that of a topic setting, is refused with the one that was
meant; other names that are not known, which may be those of plugins, and values without effect are
accepted with a warning, because a `server.properties` written for Kafka should start a broker. This
file reads one file and does nothing else to the outside.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import Final, NamedTuple

from strandline.config import checks
from strandline.config.broker import BrokerConfig, SettingLayers
from strandline.config.definition import BROKER_SETTINGS, TOPIC_SETTINGS
from strandline.config.listener_changes import check_stored
from strandline.config.listener_settings import SASL_MECHANISMS, is_read
from strandline.config.listeners import Listener
from strandline.config.properties import parse_properties
from strandline.config.resolve import (
    KEEPING,
    broker_values,
    listener_base,
    make_topic_config,
    merge,
    read_value,
    topic_default_values,
    topic_override_values,
    usable_settings,
    usable_topic_overrides,
)
from strandline.config.setting import Service
from strandline.config.topic import TopicConfig
from strandline.config.unknown import refuse_misspelt
from strandline.config.values import Value
from strandline.errors import InvalidSetting

_PLUGIN_PREFIXES: Final = ("rsm.config.", "rlmm.config.")
"""Kafka hands settings with these prefixes to tiered-storage plugins and does not know them."""

NOT_FOR_ONE_BROKER: Final = frozenset({"min.insync.replicas"})
"""Cluster-wide settings that Kafka, too, does not let one broker have for itself (KIP-966)."""

_KEEPING: Final = {  # what topics follow that have no setting of their own
    TOPIC_SETTINGS[name].synonyms[0].name: text for name, text in KEEPING.items()
}

_MADE_SEPARATELY: Final = frozenset(
    {
        "advertised_listeners",
        "inter_broker_listener",
        "layers",
        "listeners",
        "log_dirs",
        "max_connections_per_ip_overrides",
        "topic_defaults",
    }
)


class LoadedConfig(NamedTuple):
    """A broker's configuration and sentences for the person who wrote it."""

    config: BrokerConfig
    warnings: tuple[str, ...]


def load_broker_config(path: str | None = None, overrides: Sequence[str] = ()) -> LoadedConfig:
    """Read a properties file and `name=value` overrides, which win.

    Raises InvalidSetting for what is not allowed, and OSError when the file cannot be read.
    """
    static = {} if path is None else _read_file(path)
    for override in overrides:
        name, equals, value = override.partition("=")
        if not equals or not name.strip():
            raise InvalidSetting(
                override, f"'{override}' is not of the form name=value, as overrides must be."
            )
        static[name.strip()] = value.strip()
    for name in static:
        _check_static_name(name)
    return make_broker_config(SettingLayers(static=static))


def make_broker_config(layers: SettingLayers) -> LoadedConfig:
    """Values and cross checks for layers whose names are known to be allowed there."""
    merged = merge(layers)
    values = broker_values(merged)
    topic_defaults = make_topic_config(topic_default_values(merged, values), TopicConfig())
    checks.check_topic(topic_defaults)
    network, warnings = checks.check_network(merged, values)
    warnings += checks.check_broker(values)
    arguments = {
        setting.attribute: values[name]
        for name, setting in BROKER_SETTINGS.items()
        if setting.attribute in _PLAIN_ATTRIBUTES
    }
    config = BrokerConfig(
        **arguments,  # type: ignore[arg-type]
        listeners=network.listeners,
        advertised_listeners=network.advertised_listeners,
        inter_broker_listener=network.inter_broker_listener,
        max_connections_per_ip_overrides=network.connection_limits,
        log_dirs=checks.log_directories(values),
        topic_defaults=topic_defaults,
        layers=layers,
    )
    return LoadedConfig(
        config, (*_no_effect_warnings(merged, values, network.listeners), *warnings)
    )


_PLAIN_ATTRIBUTES: Final = frozenset(f.name for f in fields(BrokerConfig)) - _MADE_SEPARATELY


def topic_config(overrides: Mapping[str, str], broker: BrokerConfig) -> TopicConfig:
    """What a topic shall follow: its overrides, then the broker's settings, then defaults.

    Raises InvalidSetting for an unknown name, a value that is not allowed, or a contradiction.
    """
    config = make_topic_config(topic_override_values(overrides), broker.topic_defaults)
    checks.check_topic(config)
    return config


class StoredTopicConfig(NamedTuple):
    """What a topic with stored overrides follows, and sentences about what was left out."""

    config: TopicConfig
    warnings: tuple[str, ...]


def stored_topic_config(overrides: Mapping[str, str], broker: BrokerConfig) -> StoredTopicConfig:
    """What a topic follows whose overrides were checked when they were stored.

    Maybe another version or Kafka itself stored them: single ones that are not allowed here are
    left out with a warning. As in Kafka, a later contradiction with the broker's settings does not
    count: both are followed.
    """
    usable, dropped = usable_topic_overrides(overrides)
    values = topic_override_values(usable)
    return StoredTopicConfig(make_topic_config(values, broker.topic_defaults), tuple(dropped))


def apply_dynamic(
    broker: BrokerConfig, *, cluster_wide: Mapping[str, str], per_broker: Mapping[str, str]
) -> LoadedConfig:
    """The configuration with stored dynamic settings, on top of the static ones of `broker`.

    Stored settings were checked when they were stored, maybe by another version, or by a broker
    whose file allows them. One that is not allowed here, alone or beside the others, stays as it is
    in `broker`, which never fails, and a warning says so. What is odd in `broker` itself is not
    said again.
    """
    in_force = broker.layers
    own, dropped = usable_settings(
        per_broker, partial(_check_stored, one_broker=True), _KEEPING | {**in_force.per_broker}
    )
    of_all, also_dropped = usable_settings(
        cluster_wide, partial(_check_stored, one_broker=False), _KEEPING | {**in_force.cluster_wide}
    )
    wanted = replace(in_force, cluster_wide=of_all, per_broker=own)
    dropped += also_dropped
    before = make_broker_config(in_force)
    try:
        made = make_broker_config(wanted)
    except InvalidSetting:
        made, contradictions = _as_far_as_possible(before, wanted)
        dropped += contradictions
    news = (warning for warning in made.warnings if warning not in before.warnings)
    return LoadedConfig(made.config, (*dropped, *news))


def _as_far_as_possible(
    before: LoadedConfig, wanted: SettingLayers
) -> tuple[LoadedConfig, list[str]]:
    """`before` with the single changes towards `wanted` that it allows, and why not the others.

    A change may need another one first, such as a minimum above the former maximum: so the changes
    are tried again until none of them can be made.
    """
    made = before
    followed, goal = _dynamic(before.config.layers), _dynamic(wanted)
    changes = sorted(key for key in followed | goal if followed.get(key) != goal.get(key))
    while True:
        refused: dict[tuple[bool, str], InvalidSetting] = {}
        for key in changes:
            tried = followed | {key: goal.get(key)}
            try:
                made = make_broker_config(_layers(wanted.static, tried))
            except InvalidSetting as contradiction:
                refused[key] = contradiction
            else:
                followed = tried
        if len(refused) == len(changes):
            return made, [f"{name} stays as it is: {why}" for (_, name), why in refused.items()]
        changes = list(refused)


def _dynamic(layers: SettingLayers) -> dict[tuple[bool, str], str | None]:
    """The dynamic settings by whether they are for all brokers, and name. Sorted, the stronger come
    first."""
    return {
        **{(False, name): text for name, text in layers.per_broker.items()},
        **{(True, name): text for name, text in layers.cluster_wide.items()},
    }


def _layers(
    static: Mapping[str, str], dynamic: Mapping[tuple[bool, str], str | None]
) -> SettingLayers:
    """The inverse of `_dynamic`; None is no setting."""
    own, of_all = (
        {
            name: text
            for (is_of_all, name), text in dynamic.items()
            if is_of_all is which and text is not None
        }
        for which in (False, True)
    )
    return SettingLayers(static, cluster_wide=of_all, per_broker=own)


def _check_stored(name: str, text: str, *, one_broker: bool) -> None:
    """Raise `InvalidSetting` for a stored setting that is not followed."""
    setting = BROKER_SETTINGS.get(name)
    if setting is None:
        # Perhaps it is a plugin's: then it is shown, and has no effect.
        if listener_base(name) is not None:
            check_stored(name, text, one_broker=one_broker)
        return
    if one_broker and name in NOT_FOR_ONE_BROKER:
        raise InvalidSetting(name, "it is for all brokers.")
    if not setting.is_dynamic:
        raise InvalidSetting(name, "it cannot change at run time.")
    read_value(setting, text)
    if name == checks.LIMITS_BY_ADDRESS:  # another version took names of hosts
        checks.connection_limits(text)


def is_usable(name: str, text: str, *, one_broker: bool) -> bool:
    """Whether brokers follow this stored setting, or leave it out with a warning."""
    check = partial(_check_stored, one_broker=one_broker)
    return name in usable_settings({name: text}, check, {})[0]


def _read_file(path: str) -> dict[str, str]:
    with open(path, "rb") as file:
        content = file.read()
    try:
        return parse_properties(content.decode("utf-8"))
    except UnicodeDecodeError:
        raise InvalidSetting("", f"The properties file {path} is not UTF-8 text.") from None


def _check_static_name(name: str) -> None:
    setting = BROKER_SETTINGS.get(name)
    if setting is None:
        if listener_base(name) is None and not name.startswith(_PLUGIN_PREFIXES):
            refuse_misspelt(name, BROKER_SETTINGS, TOPIC_SETTINGS)
    elif setting.dynamic_only:
        raise InvalidSetting(
            name, f"{name} can only be set dynamically, not in a file or on the command line."
        )


_JAAS: Final = "sasl.jaas.config"


def _no_effect_warnings(
    merged: Mapping[str, str], values: Mapping[str, Value], listeners: Iterable[Listener]
) -> list[str]:
    prefixes = tuple(f"listener.name.{each.name.lower()}." for each in listeners)
    warnings: list[str] = []
    for name in sorted(merged):
        of_listener = next((each for each in prefixes if name.startswith(each)), None)
        base = None if of_listener is None else listener_base(name)
        if of_listener is not None and base is not None:
            warnings += _listener_warnings(name, of_listener, base)
            continue
        setting = BROKER_SETTINGS.get(name)
        if setting is None or name == _JAAS:
            # As in Kafka, brokers read it for one listener and one mechanism only.
            is_followed = False
        else:
            is_default = values[name] == setting.default
            is_followed = setting.service is not Service.NO_EFFECT or is_default
        if not is_followed:
            warnings.append(f"{name} is accepted but has no effect in Strandline.")
    return warnings


def _listener_warnings(name: str, prefix: str, base: str) -> list[str]:
    """Of the setting `base` for the listener with that prefix, or a mechanism of it."""
    mechanism = name.removeprefix(prefix).removesuffix(base).removesuffix(".")
    if is_read(base, mechanism):
        return []
    if base == _JAAS:
        known = ", ".join(each.lower() for each in SASL_MECHANISMS)
        return [
            f"{name} is accepted but has no effect: write {prefix}MECHANISM.{base}, where "
            f"MECHANISM is one of {known}."
        ]
    if BROKER_SETTINGS[base].service is not Service.SERVED:
        return [f"{name} is accepted but has no effect in Strandline."]
    of = "one mechanism" if mechanism and is_read(base, "") else "one listener"
    return [f"{name} is accepted but has no effect: {base} is not read for {of}."]
