"""Which settings of single listeners change at run time: `listener.name.<listener>.<setting>`.

As in Kafka 4: certificates of one broker's listeners, and how many connections a listener takes.
What opens or closes a listener, or says how clients authenticate there, changes at a restart. This
file knows names and values; files with certificates are read where connections are secured.
"""

from __future__ import annotations

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


def may_change(name: str) -> bool:
    """Whether a setting of a listener changes at run time."""
    return listener_base(name) in CERTIFICATES | LIMITS


def is_for_one_broker(name: str) -> bool:
    """Whether a setting of a listener is for one broker only."""
    return listener_base(name) in CERTIFICATES


def check_change(name: str, text: str, broker: BrokerConfig) -> None:
    """Raise `InvalidSetting` unless a listener of the broker may have that from now on."""
    base = listener_base(name)
    listener = name.removeprefix(LISTENER_PREFIX).partition(".")[0]
    if not any(each.name.lower() == listener for each in broker.listeners):
        known = ", ".join(each.name.lower() for each in broker.listeners)
        raise InvalidSetting(
            name,
            f"{name}: this broker has no listener {listener!r}, only {known}. Listeners are opened "
            "and closed at a restart.",
        )
    if base is None or not may_change(name):
        raise InvalidSetting(
            name,
            f"{name} cannot change at run time: of a listener only its certificates (ssl.keystore, "
            "ssl.truststore, ssl.key.password) and max.connections, max.connection.creation.rate "
            "do; restart the broker.",
        )
    if base in _SECRETS and not text.startswith(_REFERENCES):
        raise InvalidSetting(
            name,
            f"{name} would be a secret in the metadata: give env:NAME or file:PATH, which the "
            "broker reads itself.",
        )
    read_value(BROKER_SETTINGS[base], text)


def check_stored(name: str, text: str, *, one_broker: bool) -> None:
    """Raise `InvalidSetting` for a stored setting of a listener that is not followed."""
    base = listener_base(name)
    if base is None or not may_change(name) or (is_for_one_broker(name) and not one_broker):
        raise InvalidSetting(name, "it cannot change at run time.")
    read_value(BROKER_SETTINGS[base], text)
