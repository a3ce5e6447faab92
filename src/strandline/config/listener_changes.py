"""What changes of listeners at run time: which are open, and `listener.name.<listener>.<setting>`.

As in Kafka 4, `listeners` opens and closes listeners of one broker, but not that of the brokers. A
new one brings its settings with it. Of one that is open, certificates change and how many
connections it takes. This file knows names and values; files with certificates are read where
connections are secured.
"""

from __future__ import annotations

import re
from typing import Final

from strandline.config.broker import BrokerConfig
from strandline.config.definition import BROKER_SETTINGS
from strandline.config.resolve import LISTENER_PREFIX, listener_base, read_value
from strandline.errors import InvalidSetting

CERTIFICATES: Final = frozenset(
    {
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)
"""`SslConfigs.RECONFIGURABLE_CONFIGS`. Of one broker only."""
LIMITS: Final = frozenset({"max.connections", "max.connection.creation.rate"})
"""Of one broker or of all."""
_SECRETS: Final = frozenset(
    {"ssl.key.password", "ssl.keystore.key", "ssl.keystore.password", "ssl.truststore.password"}
)
_REFERENCES: Final = ("env:", "file:")
_JAAS: Final = "sasl.jaas.config"
_PASSWORDS: Final = re.compile(r'(?:password|user_[^\s=]*)\s*=\s*(?:"([^"]*)"|([^\s;]+))')
"""Passwords in such a line, within quotation marks or without."""


def may_change(name: str) -> bool:
    """Whether a setting of a listener that is open changes at run time."""
    return listener_base(name) in CERTIFICATES | LIMITS


def is_for_one_broker(name: str) -> bool:
    """Whether a setting of a listener is for one broker only."""
    return listener_base(name) not in (*LIMITS, None)


def check_opened(before: BrokerConfig, after: BrokerConfig) -> None:
    """Raise `InvalidSetting` unless the listeners of one may become those of the other."""
    between = before.inter_broker_listener.name
    old, new = ({each.name: each for each in broker.listeners} for broker in (before, after))
    if new.get(between) != old.get(between) or after.inter_broker_listener.name != between:
        raise InvalidSetting(
            "listeners",
            f"Brokers reach each other by the listener {between}, which must stay as it is "
            f"(listeners: {', '.join(map(str, before.listeners))}; inter.broker.listener.name). "
            "It changes at a restart.",
        )
    for name in sorted(old.keys() & new.keys()):
        if old[name].security_protocol != new[name].security_protocol:
            raise InvalidSetting(
                "listener.security.protocol.map",
                f"Security protocol cannot be updated for existing listener {name}.",
            )


def check_change(name: str, text: str | None, before: BrokerConfig, after: BrokerConfig) -> None:
    """Raise `InvalidSetting` unless a listener may have that from now on; None: no longer."""
    base = listener_base(name)
    listener = name.removeprefix(LISTENER_PREFIX).partition(".")[0]
    is_there, was_there = (
        any(each.name.lower() == listener for each in broker.listeners)
        for broker in (after, before)
    )
    if text is not None and not is_there:
        known = ", ".join(each.name.lower() for each in after.listeners)
        raise InvalidSetting(
            name,
            f"{name}: this broker has no listener {listener!r}, only {known}. A new one is named "
            "in listeners with the same change.",
        )
    if base is None or (is_there and was_there and not may_change(name)):
        raise InvalidSetting(
            name,
            f"{name} cannot change at run time: of a listener that is open only its certificates "
            "(ssl.keystore, ssl.truststore, ssl.key.password) and max.connections, "
            "max.connection.creation.rate do; restart the broker, or open a new listener.",
        )
    if text is None:
        return
    if _shows_secret(base, text):
        raise InvalidSetting(
            name,
            f"{name} would be a secret in the metadata: give env:NAME or file:PATH, which the "
            "broker reads itself.",
        )
    read_value(BROKER_SETTINGS[base], text)


def _shows_secret(base: str, text: str) -> bool:
    if base != _JAAS:
        return base in _SECRETS and not text.startswith(_REFERENCES)
    return any(
        not (quoted or bare).startswith(_REFERENCES) for quoted, bare in _PASSWORDS.findall(text)
    )


def check_stored(name: str, text: str, *, one_broker: bool) -> None:
    """Raise `InvalidSetting` for a stored setting of a listener that is not followed."""
    base = listener_base(name)
    if base is None or (is_for_one_broker(name) and not one_broker):
        raise InvalidSetting(name, "it cannot change at run time.")
    read_value(BROKER_SETTINGS[base], text)
