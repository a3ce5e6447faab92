"""The secrets of delegation tokens (KIP-48): which token is meant, and what proves that one has it.

A token's secret is the HMAC-SHA-512 of its id by `delegation.token.secret.key`, which all brokers
have and nothing else: it is stored nowhere. A client logs in by SCRAM with the id as its name, the
secret in Base64 as its password, and the extension `tokenauth=true`. The SCRAM credential of a
token is made when it is first needed, since that takes milliseconds, and kept while the token is.
"""

from __future__ import annotations

import base64
import hmac
from typing import Final, NamedTuple

from strandline.client.security.secret import Secret
from strandline.cluster.image import ImageDelta
from strandline.cluster.scram_credentials import (
    ITERATIONS_MIN,
    ScramCredential,
    ScramMechanism,
)
from strandline.cluster.znodes import TokenNode
from strandline.config.broker import BrokerConfig
from strandline.node.connection import Connection
from strandline.node.metadata import Metadata
from strandline.types import ANONYMOUS, Instant

KEY: Final = "delegation.token.secret.key"
_HASH: Final = "sha512"
_SALT_BYTES: Final = 20


class TokenCredential(NamedTuple):
    """What a client has to know that shows a token."""

    credential: ScramCredential
    owner: str
    """The name as which the client is served."""
    expires_ms: int


class DelegationTokens:
    """The tokens in the metadata, with their secrets."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self._key = b""
        self._ids: dict[bytes, str] = {}
        """By a keyed hash of the secret, so that the time of a look-up tells nothing of secrets."""
        self._credentials: dict[tuple[str, ScramMechanism], ScramCredential] = {}

    def load(self, config: BrokerConfig) -> None:
        """Read the key. Raises `InvalidSetting`."""
        text = config.delegation_token_secret_key
        self._key = Secret(KEY, text).reveal().encode() if text else b""
        if self._key:
            for token_id in self._metadata.image.tokens:
                self._learn(token_id)

    @property
    def is_enabled(self) -> bool:
        """Whether there is a key; without one there are no tokens."""
        return bool(self._key)

    def follow(self, delta: ImageDelta) -> None:
        """The metadata has changed."""
        if not self._key:
            return
        for token_id in delta.tokens_changed:
            if token_id in self._metadata.image.tokens:
                self._learn(token_id)
                continue
            self._ids.pop(self._index(self.secret_of(token_id)), None)
            for mechanism in ScramMechanism:
                self._credentials.pop((token_id, mechanism), None)

    def secret_of(self, token_id: str) -> bytes:
        """The secret of a token, whether or not it is there."""
        return hmac.digest(self._key, token_id.encode(), _HASH)

    def meant_by(self, secret: bytes) -> str | None:
        """The id of the token with that secret."""
        return self._ids.get(self._index(secret))

    def credential(
        self, token_id: str, mechanism: ScramMechanism, now: Instant
    ) -> TokenCredential | None:
        """What to compare a client's proof with; None without such a token, or if it expired."""
        stored = self._metadata.image.tokens.get(token_id) if self._key else None
        if stored is None or stored.value.has_expired(now.wall_ms):
            return None
        token: TokenNode = stored.value
        known = self._credentials.get((token_id, mechanism))
        if known is None:
            known = self._derived(token_id, mechanism)
            self._credentials[token_id, mechanism] = known
        return TokenCredential(known, token.owner.name, token.expires_ms)

    def _derived(self, token_id: str, mechanism: ScramMechanism) -> ScramCredential:
        password = base64.b64encode(self.secret_of(token_id)).decode()
        named = f"salt of {mechanism.sasl_name} {token_id}".encode()
        salt = hmac.digest(self._key, named, _HASH)[:_SALT_BYTES]
        return ScramCredential.of_password(mechanism, password, salt, ITERATIONS_MIN)

    def _learn(self, token_id: str) -> None:
        self._ids[self._index(self.secret_of(token_id))] = token_id

    def _index(self, secret: bytes) -> bytes:
        return hmac.digest(self._key, b"index of " + secret, _HASH)


def may_ask_for_tokens(connection: Connection) -> bool:
    """Whether requests about tokens are taken from the connection: from a client that has shown who
    it is, by something else than a token."""
    protocol = connection.protocol
    return not (
        connection.has_shown_token
        or protocol == "PLAINTEXT"
        or (protocol == "SSL" and connection.principal == ANONYMOUS)
    )
