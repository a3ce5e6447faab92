"""From layers of text to the values in force.

Theory: each layer is a map from names to text. A stronger layer replaces a setting together with
the other spellings of the same value (`log.roll.hours` set dynamically replaces a static
`log.roll.ms`), so that after merging, the order among spellings is decided only within what is
left. Topic settings then take their defaults from the broker settings behind them, unit and all.
Nothing here knows where the text came from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from strandline.config.allowed import ListOf
from strandline.config.broker import SettingLayers
from strandline.config.definition import BROKER_SETTINGS, TOPIC_SETTINGS
from strandline.config.setting import Service, Setting
from strandline.config.topic import UNLIMITED, TopicConfig
from strandline.config.unknown import unknown_setting
from strandline.config.values import Value, format_value, parse_value
from strandline.errors import InvalidSetting

_SPELLINGS: Final = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)
KEEPING: Final = {"cleanup.policy": "", "retention.bytes": "-1", "retention.ms": "-1"}
"""What takes the place of a topic's setting that is stored and cannot be used: no record is removed
by a rule that is not understood."""
_FLUSH: Final = ("log.flush.interval.ms", "log.flush.scheduler.interval.ms")
LISTENER_PREFIX: Final = "listener.name."


def spellings(name: str) -> tuple[str, ...]:
    """The broker settings that say the same as `name` does, strongest first."""
    for group in _SPELLINGS:
        if name in group:
            return group
    if name == _FLUSH[0]:  # the scheduler interval has a meaning of its own besides
        return _FLUSH
    base = listener_base(name)
    return (name,) if base is None else (name, base)


def listener_base(name: str) -> str | None:
    """The setting that `listener.name.<listener>[.<mechanism>].<setting>` is for, if it is known.

    Kafka puts a SASL mechanism between the listener and some settings.
    """
    if not name.startswith(LISTENER_PREFIX):
        return None
    rest = name[len(LISTENER_PREFIX) :]
    while (dot := rest.find(".")) >= 0:
        rest = rest[dot + 1 :]
        if rest in BROKER_SETTINGS:
            return rest
    return None


def read_value(setting: Setting, text: str) -> Value:
    """The value that `text` stands for; raises InvalidSetting with what would be allowed."""
    try:
        value = parse_value(setting.kind, text)
    except ValueError:
        raise InvalidSetting(
            setting.name,
            f"{setting.name} is '{text}'; expected {setting.kind.expectation}"
            f"{f' in {setting.allowed.text}' if setting.allowed.text else ''}.",
        ) from None
    if isinstance(setting.allowed, ListOf) and isinstance(value, tuple):
        value = tuple(dict.fromkeys(value))
    check_value(setting, value)
    return value


def check_value(setting: Setting, value: Value) -> None:
    problem = setting.allowed.problem(value)
    if problem is not None:
        raise InvalidSetting(setting.name, f"{_shown(setting, value)}; it {problem}.")
    if setting.service is Service.REFUSED and (value or None) != (setting.default or None):
        raise InvalidSetting(
            setting.name,
            f"{_shown(setting, value)}; Strandline does not have this and accepts only the "
            f"default, {format_value(setting.default) or 'not set'}.",
        )


def _shown(setting: Setting, value: Value) -> str:
    return f"{setting.name} is {'hidden' if setting.is_sensitive else format_value(value)}"


def merge(layers: SettingLayers) -> dict[str, str]:
    """One map of all that is set, without what a stronger layer replaces."""
    merged = dict(layers.static)
    for layer in (layers.cluster_wide, layers.per_broker):
        for name in layer:
            for spelling in spellings(name):
                if not name.startswith(LISTENER_PREFIX):
                    merged.pop(spelling, None)
        merged.update(layer)
    return merged


def broker_values(merged: Mapping[str, str]) -> dict[str, Value]:
    """The values of all broker settings, defaults included."""
    values = {name: setting.default for name, setting in BROKER_SETTINGS.items()}
    for name, text in merged.items():
        if name in BROKER_SETTINGS:
            values[name] = read_value(BROKER_SETTINGS[name], text)
        elif (base := listener_base(name)) is not None:
            read_value(BROKER_SETTINGS[base], text)
    _join_broker_id(merged, values)
    return values


def _join_broker_id(merged: Mapping[str, str], values: dict[str, Value]) -> None:
    """`broker.id` is an older name of `node.id`: either sets both."""
    if "broker.id" in merged and "node.id" not in merged:
        check_value(BROKER_SETTINGS["node.id"], values["broker.id"])
        values["node.id"] = values["broker.id"]
    elif "broker.id" not in merged:
        values["broker.id"] = values["node.id"]
    if values["broker.id"] != values["node.id"]:
        raise InvalidSetting(
            "broker.id",
            f"broker.id is {values['broker.id']} and node.id is {values['node.id']}; "
            "they are one value and must be equal.",
        )


def topic_default_values(
    merged: Mapping[str, str], values: Mapping[str, Value]
) -> dict[str, Value]:
    """The values of all topic settings for a topic without overrides."""
    return {
        name: _topic_default(setting, merged, values) for name, setting in TOPIC_SETTINGS.items()
    }


def _topic_default(
    setting: Setting, merged: Mapping[str, str], values: Mapping[str, Value]
) -> Value:
    for synonym in setting.synonyms:
        if synonym.name not in merged:
            continue
        value = values[synonym.name]
        if isinstance(value, int) and not isinstance(value, bool):
            value *= synonym.factor
            if setting.name == "retention.ms" and value < 0:
                value = UNLIMITED  # Kafka takes any negative time on a broker as "for ever"
        _check_topic_default(setting, synonym.name, value)
        return value
    return setting.default


def _check_topic_default(setting: Setting, behind: str, value: Value) -> None:
    """Broker settings have looser rules than the topic settings that they become."""
    problem = setting.allowed.problem(value)
    if problem is None and setting.name == "retention.ms" and value == 0:
        problem = "must be -1 or at least 1"
    if problem is not None:
        raise InvalidSetting(
            behind, f"{behind} makes {setting.name} {format_value(value)}; it {problem}."
        )


def topic_override_values(overrides: Mapping[str, str]) -> dict[str, Value]:
    """The values of a topic's overrides by name; an unknown name is refused."""
    values: dict[str, Value] = {}
    for name, text in overrides.items():
        setting = TOPIC_SETTINGS.get(name)
        if setting is None:
            raise unknown_setting(name, TOPIC_SETTINGS, "topic setting")
        values[name] = read_value(setting, text)
    return values


def usable_settings(
    stored: Mapping[str, str],
    check: Callable[[str, str], object],
    instead: Mapping[str, str],
) -> tuple[dict[str, str], list[str]]:
    """The stored settings that are followed, and a sentence about each that cannot be.

    `check` raises InvalidSetting for the latter; `instead` has what takes their place, if anything
    does.
    """
    usable: dict[str, str] = {}
    dropped: list[str] = []
    for name, text in stored.items():
        try:
            check(name, text)
        except InvalidSetting as invalid:
            dropped.append(f"The stored setting {name} is ignored: {invalid}")
            if name in instead:
                usable[name] = instead[name]
        else:
            usable[name] = text
    return usable, dropped


def usable_topic_overrides(overrides: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The stored overrides that a topic follows, and a sentence about each that it does not."""
    return usable_settings(
        overrides, lambda name, text: topic_override_values({name: text}), KEEPING
    )


def make_topic_config(values: Mapping[str, Value], base: TopicConfig) -> TopicConfig:
    """`base` with these values in its place, which may contradict one another."""
    arguments: dict[str, Any] = {
        TOPIC_SETTINGS[name].attribute: value for name, value in values.items()
    }
    if "cleanup_policy" in arguments:
        arguments["cleanup_policies"] = frozenset(arguments.pop("cleanup_policy"))
    internal_segment_bytes = arguments.pop("internal_segment_bytes", None)
    if internal_segment_bytes is not None:
        arguments["segment_bytes"] = internal_segment_bytes
    return replace(base, **arguments)
