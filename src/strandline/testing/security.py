"""The security of a test cluster: what its brokers are set to, and what lets a client in.

    SSL                       client certificates; the principal is the certificate's common name
    SASL_SSL, SASL_PLAINTEXT  SCRAM-SHA-512 or another mechanism, with names and passwords

Brokers reach each other by the same listener, with a name and certificate of their own.
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from random import SystemRandom
from typing import Final, Literal, TypeAlias

from strandline.errors import StrandlineError
from strandline.node.authentication.first_users import FirstUser, parse_first_user

Protocol: TypeAlias = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
USER: Final = "test"
BROKER: Final = "broker"
_MODULES: Final = {"PLAIN": "plain.PlainLoginModule"}
_COMMON_NAME: Final = "RULE:^CN=([^,]+).*$/$1/, DEFAULT"


class SecurityError(StrandlineError):
    """A test cluster was asked for security that it cannot have."""


class ClusterSecurity:
    """See the module. Files lie in a directory that `close` removes."""

    def __init__(
        self,
        protocol: str,
        mechanism: str = "SCRAM-SHA-512",
        users: Mapping[str, str] | None = None,
    ) -> None:
        """`users` are names and passwords; without them there is one, `test`. Raises
        `SecurityError`."""
        if protocol not in PROTOCOLS:
            raise SecurityError(f"security is {protocol}; it must be {', '.join(PROTOCOLS)}.")
        if mechanism not in MECHANISMS:
            raise SecurityError(f"A test cluster has {', '.join(MECHANISMS)}, not {mechanism}.")
        self.protocol = protocol
        self._mechanism = mechanism
        self._users = dict(users or {USER: secrets.token_urlsafe()})
        self._passwords = {**self._users, BROKER: secrets.token_urlsafe()}
        self._directory: Path | None = None
        if protocol.endswith("SSL"):
            self._directory = Path(tempfile.mkdtemp(prefix="strandline-security-"))
            self._issue(self._directory)

    @property
    def broker_settings(self) -> dict[str, str]:
        """What brokers are set to, but for `listeners`."""
        settings: dict[str, str] = {}
        if self._directory is not None:
            settings |= {
                "ssl.keystore.location": str(self._directory / f"{BROKER}.pem"),
                "ssl.keystore.type": "PEM",
                "ssl.truststore.location": str(self._directory / "authority.pem"),
                "ssl.truststore.type": "PEM",
                "ssl.client.auth": "required",
                "ssl.principal.mapping.rules": _COMMON_NAME,
            }
        if self._has_sasl:
            own = f"listener.name.{self.protocol}.{self._mechanism}.sasl.jaas.config".lower()
            settings |= {
                "sasl.enabled.mechanisms": self._mechanism,
                "sasl.mechanism.inter.broker.protocol": self._mechanism,
                own: self._jaas(BROKER, known=self._mechanism == "PLAIN"),
            }
        return settings

    @property
    def first_users(self) -> list[FirstUser]:
        """Those that are in the metadata from the start."""
        if not self._has_sasl or self._mechanism == "PLAIN":
            return []
        return [
            parse_first_user(
                f'{self._mechanism}=[name={name},password="{password}"]', SystemRandom()
            )
            for name, password in self._passwords.items()
        ]

    def client_config(self, user: str | None = None) -> dict[str, str]:
        """Settings that let a client in as this user, or as the first.

        Names are librdkafka's, which this package's clients and commands take as well. Raises
        `SecurityError` for a user that there is not.
        """
        user = next(iter(self._users)) if user is None else user
        if user not in self._users:
            raise SecurityError(f"There is no user {user}; there are {', '.join(self._users)}.")
        settings: dict[str, str] = {}
        if self.protocol != "PLAINTEXT":
            settings["security.protocol"] = self.protocol
        if self._directory is not None:
            settings["ssl.ca.location"] = str(self._directory / "authority.pem")
        if self.protocol == "SSL" and self._directory is not None:
            own = str(self._directory / f"{user}.pem")
            settings |= {"ssl.certificate.location": own, "ssl.key.location": own}
        if self._has_sasl:
            settings |= {
                "sasl.mechanism": self._mechanism,
                "sasl.username": user,
                "sasl.password": self._passwords[user],
            }
        return settings

    def java_config(self, user: str | None = None) -> dict[str, str]:
        """The same under the names of Kafka's Java clients."""
        settings = self.client_config(user)
        if (authority := settings.pop("ssl.ca.location", None)) is not None:
            settings |= {"ssl.truststore.location": authority, "ssl.truststore.type": "PEM"}
        if (own := settings.pop("ssl.certificate.location", None)) is not None:
            del settings["ssl.key.location"]
            settings |= {"ssl.keystore.location": own, "ssl.keystore.type": "PEM"}
        if (name := settings.pop("sasl.username", None)) is not None:
            del settings["sasl.password"]
            settings["sasl.jaas.config"] = self._jaas(name, known=False)
        return settings

    def close(self) -> None:
        """Remove keys and certificates."""
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)

    @property
    def _has_sasl(self) -> bool:
        return self.protocol.startswith("SASL")

    def _jaas(self, name: str, *, known: bool) -> str:
        """The JAAS line of a name; with all users, for brokers that check PLAIN."""
        module = _MODULES.get(self._mechanism, "scram.ScramLoginModule")
        options = {"username": name, "password": self._passwords[name]}
        if known:
            options |= {f"user_{user}": password for user, password in self._passwords.items()}
        text = " ".join(f'{option}="{value}"' for option, value in options.items())
        return f"org.apache.kafka.common.security.{module} required {text};"

    def _issue(self, directory: Path) -> None:
        try:
            from strandline.testing.authority import Authority
        except ModuleNotFoundError as missing:
            raise SecurityError(
                "Certificates for a test cluster need the package cryptography: "
                "pip install cryptography"
            ) from missing
        authority = Authority()
        (directory / "authority.pem").write_text(authority.pem)
        for name in (BROKER, *self._users):
            (directory / f"{name}.pem").write_text(authority.issue(name))
