"""What a connection needs to be trusted by a broker and to trust it. Values only.

They are pickled into Spark's tasks; what they hold of secrets prints itself as hidden.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from strandline.client.security.secret import Secret

Mechanism: TypeAlias = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
TlsVersion: TypeAlias = Literal["TLSv1.2", "TLSv1.3"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """Certificates or keys: a file, or PEM text in the setting itself."""

    setting: str
    """Which setting errors name."""
    path: str | None = None
    pem: Secret | None = None
    password: Secret | None = None
    """Of a PKCS#12 file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """How a connection is encrypted. Without `trust`, the system's authorities are trusted."""

    trust: Store | None = None
    chain: Store | None = None
    """The client's own certificate, with those in between; and its key, if that is in there too."""
    key: Store | None = None
    key_password: Secret | None = None
    checks_name: bool = True
    """Whether the broker's certificate must be for the host that was connected to."""
    oldest: TlsVersion = "TLSv1.2"
    newest: TlsVersion = "TLSv1.3"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenEndpoint:
    """Where OAUTHBEARER tokens are had by client credentials (RFC 6749, 4.4)."""

    url: str
    client_id: str
    client_secret: Secret
    scope: str | None = None
    connect_timeout_ms: int = 10_000
    read_timeout_ms: int = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Sasl:
    """How a client authenticates: `username` and `password`, or for OAUTHBEARER a token."""

    mechanism: Mechanism
    username: str = ""
    password: Secret | None = None
    is_delegation_token: bool = False
    """Whether name and password are those of a delegation token (KIP-48), of SCRAM."""
    token: Secret | None = None
    """A token that is there already, or a reference to a file that is kept fresh."""
    endpoint: TokenEndpoint | None = None
    extensions: tuple[tuple[str, str], ...] = ()
    """OAUTHBEARER's extensions (KIP-342)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """TLS and SASL of a connection, each of which may be absent."""

    tls: Tls | None = None
    sasl: Sasl | None = None

    @property
    def protocol(self) -> str:
        """The value of `security.protocol`."""
        if self.sasl is None:
            return "PLAINTEXT" if self.tls is None else "SSL"
        return "SASL_PLAINTEXT" if self.tls is None else "SASL_SSL"


PLAINTEXT: Final = Security()
