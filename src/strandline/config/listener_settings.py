"""The settings of one listener: its own where there are any, else those of the broker.

    listener.name.<listener>.<mechanism>.<setting>     for some settings of SASL
    listener.name.<listener>.<setting>
    <setting>

Listeners and mechanisms are in lower case there. This file knows which text wins; what it means is
known where certificates are loaded and clients are authenticated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

from strandline.config.broker import BrokerConfig
from strandline.config.definition import BROKER_SETTINGS
from strandline.config.listener_changes import LIMITS
from strandline.config.resolve import merge, read_value
from strandline.config.setting import Service
from strandline.config.values import Value

SASL_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
"""Those that are served."""
_BY_MECHANISM: Final = frozenset(
    {
        "connections.max.reauth.ms",
        "sasl.jaas.config",
        "sasl.login.callback.handler.class",
        "sasl.login.class",
        "sasl.server.callback.handler.class",
    }
)
"""What is read for one mechanism of a listener."""
_BY_LISTENER: Final = frozenset(
    {
        *LIMITS,
        *_BY_MECHANISM,
        *(
            name
            for name, setting in BROKER_SETTINGS.items()
            if name.startswith(("sasl.", "ssl.")) and setting.service is Service.SERVED
        ),
    }
) - {"sasl.jaas.config"}
"""What is read for one listener; everything else is for the whole broker."""


def is_read(setting: str, mechanism: str) -> bool:
    """Whether it is read for one listener, or for a mechanism of it: in lower case, or ""."""
    if not mechanism:
        return setting in _BY_LISTENER
    return setting in _BY_MECHANISM and mechanism in map(str.lower, SASL_MECHANISMS)


class ListenerSettings:
    """Settings of the listener of that name, in the form of `SettingLayers.static`."""

    def __init__(self, static: Mapping[str, str], listener: str) -> None:
        self.listener = listener
        self._static = static
        self._prefix = f"listener.name.{listener.lower()}."

    @classmethod
    def now(cls, config: BrokerConfig, listener: str) -> ListenerSettings:
        """Those of the listener with what was changed at run time."""
        return cls(merge(config.layers), listener)

    def name(self, setting: str, mechanism: str | None = None) -> str:
        """The full name under which the setting is given; the bare one if it is not."""
        names = [self._prefix + setting, setting]
        if mechanism is not None:
            names.insert(0, f"{self._prefix}{mechanism.lower()}.{setting}")
        return next((name for name in names if name in self._static), setting)

    def is_given(self, setting: str, mechanism: str | None = None) -> bool:
        """Whether it is set anywhere."""
        return self.name(setting, mechanism) in self._static

    def value(self, setting: str, mechanism: str | None = None) -> Value:
        """Its value, or the default. Raises `InvalidSetting`."""
        text = self._static.get(self.name(setting, mechanism))
        described = BROKER_SETTINGS[setting]
        return described.default if text is None else read_value(described, text)

    def text(self, setting: str, mechanism: str | None = None) -> str | None:
        """As `value`, of a setting that is text; nothing counts as not set."""
        value = self.value(setting, mechanism)
        return str(value) if value not in (None, "") else None

    def number(self, setting: str, mechanism: str | None = None) -> int:
        """As `value`, of a setting that is a number."""
        return cast("int", self.value(setting, mechanism))

    def items(self, setting: str, mechanism: str | None = None) -> tuple[str, ...]:
        """As `value`, of a setting that is a list."""
        return cast("tuple[str, ...]", self.value(setting, mechanism))

    def prefixed(self, setting: str, mechanism: str) -> tuple[str, str | None]:
        """The name and text of a setting that is for this listener and mechanism only."""
        name = f"{self._prefix}{mechanism.lower()}.{setting}"
        return name, self._static.get(name)
