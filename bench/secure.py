"""A second listener of the brokers under test, with TLS and a login, and clients that use it.

Both brokers get the same certificate (an elliptic curve, as most authorities issue them now) and
the same user. The login is PLAIN: it happens once per connection, so that what is measured is what
TLS costs every byte. Versions and ciphers are the brokers' own defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from strandline.testing.authority import Authority

_NAME: Final = "SECURE"
_USER: Final = "bench"
_PASSWORD: Final = "bench-secret"
_LOGIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"


@dataclass(frozen=True, slots=True)
class Security:
    """Whom clients trust, and what a broker shows."""

    authority: Path
    keystore: Path
    """A key, as Java reads it, and its certificates."""

    @classmethod
    def made_in(cls, directory: Path) -> Security:
        """A new authority, and a certificate for this machine."""
        authority = Authority()
        trusted, keystore = directory / "authority.pem", directory / "keystore.pem"
        trusted.write_text(authority.pem)
        keystore.write_text(authority.issue("bench"))
        return cls(trusted, keystore)

    def added_to(self, settings: Mapping[str, str], port: int) -> dict[str, str]:
        """A broker's settings with the second listener, for Kafka and Strandline alike."""
        address = f",{_NAME}://127.0.0.1:{port}"
        addresses = {
            name: settings[name] + address
            for name in ("listeners", "advertised.listeners")
            if name in settings
        }
        protocols = settings.get("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT")
        own = f"listener.name.{_NAME.lower()}"
        return {
            **settings,
            **addresses,
            "listener.security.protocol.map": f"{protocols},{_NAME}:SASL_SSL",
            "inter.broker.listener.name": "PLAINTEXT",
            f"{own}.ssl.keystore.type": "PEM",
            f"{own}.ssl.keystore.location": str(self.keystore),
            f"{own}.sasl.enabled.mechanisms": "PLAIN",
            f"{own}.plain.sasl.jaas.config": f'{_LOGIN} user_{_USER}="{_PASSWORD}";',
        }

    @property
    def login(self) -> bytes:
        """What a client of PLAIN sends."""
        return f"\0{_USER}\0{_PASSWORD}".encode()

    def client_settings(self) -> dict[str, str]:
        """librdkafka's words for it."""
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.authority),
            "sasl.mechanism": "PLAIN",
            "sasl.username": _USER,
            "sasl.password": _PASSWORD,
        }
