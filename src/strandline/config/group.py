"""The settings of one consumer group (KIP-848) or share group (KIP-932), on top of the broker's.

A group's own value must lie within the broker's bounds when it is set; bounds may change later, and
then the nearer one counts (KIP-1241's rule in Kafka 4.3). Knows no text form beyond that of stored
overrides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from strandline.config.broker import BrokerConfig
from strandline.config.definition import BROKER_SETTINGS, GROUP_SETTINGS
from strandline.config.resolve import read_value, usable_settings
from strandline.config.unknown import unknown_setting
from strandline.config.values import Value
from strandline.errors import InvalidSetting

_BOUNDS: Final = {
    "consumer.assignment.interval.ms": (
        "group.consumer.min.assignment.interval.ms",
        "group.consumer.max.assignment.interval.ms",
    ),
    "consumer.heartbeat.interval.ms": (
        "group.consumer.min.heartbeat.interval.ms",
        "group.consumer.max.heartbeat.interval.ms",
    ),
    "consumer.session.timeout.ms": (
        "group.consumer.min.session.timeout.ms",
        "group.consumer.max.session.timeout.ms",
    ),
    "share.assignment.interval.ms": (
        "group.share.min.assignment.interval.ms",
        "group.share.max.assignment.interval.ms",
    ),
    "share.delivery.count.limit": (
        "group.share.min.delivery.count.limit",
        "group.share.max.delivery.count.limit",
    ),
    "share.heartbeat.interval.ms": (
        "group.share.min.heartbeat.interval.ms",
        "group.share.max.heartbeat.interval.ms",
    ),
    "share.partition.max.record.locks": (
        "group.share.min.partition.max.record.locks",
        "group.share.max.partition.max.record.locks",
    ),
    "share.record.lock.duration.ms": (
        "group.share.min.record.lock.duration.ms",
        "group.share.max.record.lock.duration.ms",
    ),
    "share.session.timeout.ms": (
        "group.share.min.session.timeout.ms",
        "group.share.max.session.timeout.ms",
    ),
}
_OF_OTHERS: Final = {
    "streams.": "streams groups (KIP-1071)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """What a group's coordinator follows. Times in milliseconds."""

    consumer_assignment_interval_ms: int
    consumer_heartbeat_interval_ms: int
    consumer_session_timeout_ms: int
    share_assignment_interval_ms: int
    share_auto_offset_reset: str
    share_delivery_count_limit: int
    share_heartbeat_interval_ms: int
    share_isolation_level: str
    share_partition_max_record_locks: int
    share_record_lock_duration_ms: int
    share_renew_acknowledge_enable: bool
    share_session_timeout_ms: int


def group_config(overrides: Mapping[str, str], broker: BrokerConfig) -> GroupConfig:
    """What a group with these overrides follows.

    Raises InvalidSetting for an unknown name or a value that is not allowed at all; one that is out
    of the broker's bounds is brought within them.
    """
    return _made(_values(overrides), broker)


def usable_group_overrides(overrides: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The stored overrides that a group follows, and a sentence about each that it does not."""
    return usable_settings(overrides, lambda name, text: _values({name: text}), {})


def check_group(overrides: Mapping[str, str], broker: BrokerConfig) -> None:
    """Refuse overrides that a group may not have. Raises InvalidSetting."""
    values = _values(overrides)
    for name, value in values.items():
        if name not in _BOUNDS:
            continue
        low, high = _bounds(name, broker)
        least, most = _BOUNDS[name]
        if cast("int", value) < low:
            raise InvalidSetting(name, f"{name} must be greater than or equal to {least}: {low}.")
        if cast("int", value) > high:
            raise InvalidSetting(name, f"{name} must be less than or equal to {most}: {high}.")
    made = _made(values, broker)
    for kind, session_ms, heartbeat_ms in (
        ("consumer", made.consumer_session_timeout_ms, made.consumer_heartbeat_interval_ms),
        ("share", made.share_session_timeout_ms, made.share_heartbeat_interval_ms),
    ):
        if session_ms <= heartbeat_ms:
            name = f"{kind}.session.timeout.ms"
            raise InvalidSetting(name, f"{name} must be greater than {kind}.heartbeat.interval.ms.")


def _values(overrides: Mapping[str, str]) -> dict[str, Value]:
    values: dict[str, Value] = {}
    for name, text in overrides.items():
        setting = GROUP_SETTINGS.get(name)
        if setting is None:
            for prefix, kind in _OF_OTHERS.items():
                if name.startswith(prefix):
                    raise InvalidSetting(name, f"{name} is for {kind}, which are not served.")
            raise unknown_setting(name, GROUP_SETTINGS, "group setting")
        values[name] = read_value(setting, text)
    return values


def _made(values: Mapping[str, Value], broker: BrokerConfig) -> GroupConfig:
    arguments: dict[str, Any] = {}
    for name, setting in GROUP_SETTINGS.items():
        if name not in _BOUNDS:
            arguments[setting.attribute] = values.get(name, setting.default)
            continue
        low, high = _bounds(name, broker)
        own = cast("int", values.get(name, getattr(broker, f"group_{setting.attribute}")))
        arguments[setting.attribute] = min(max(own, low), high)
    return GroupConfig(**arguments)


def _bounds(name: str, broker: BrokerConfig) -> tuple[int, int]:
    low, high = (getattr(broker, BROKER_SETTINGS[bound].attribute) for bound in _BOUNDS[name])
    return low, high
