"""How a link to another broker authenticates, before anything else goes over it and again later.

The exchange is the client's (`client.security`); the link carries its requests, one at a time. A
session that has an end is renewed on the same connection: the link sends nothing new, waits for
what is under way, and then begins this again (KIP-368).

Brokers know of each other which versions they serve; so they ask for none.
"""

from __future__ import annotations

from random import Random
from typing import Final

from strandline.client.security.authentication import Authentication, Step
from strandline.client.security.mechanisms import Exchange, Plain, Scram
from strandline.client.security.settings import Sasl
from strandline.client.versions import ServedVersions
from strandline.errors import InvalidSetting
from strandline.protocol.apis import ApiKey
from strandline.protocol.versions import VersionRange

_VERSIONS: Final = {
    int(ApiKey.SASL_HANDSHAKE): VersionRange(1, 1),
    int(ApiKey.SASL_AUTHENTICATE): VersionRange(1, 2),
}


class PeerLogin:
    """Begins authentications with the name and password of this broker."""

    def __init__(self, sasl: Sasl, random: Random) -> None:
        self._sasl = sasl
        self._random = random

    def begin(self, broker: str) -> Authentication:
        """A new one with `broker`, which sentences name. Raises `InvalidSetting`."""
        served = ServedVersions(broker, _VERSIONS)
        return Authentication(broker, self._sasl.mechanism, self._exchange(), served)

    def again_after_ms(self, done: Authentication) -> int | None:
        """When to begin the next; None if the session has no end."""
        return done.again_after_ms(self._random)

    def _exchange(self) -> Exchange:
        sasl = self._sasl
        if sasl.password is None:
            raise InvalidSetting("sasl.jaas.config", f"{sasl.mechanism} needs a password.")
        password = sasl.password.reveal()
        if sasl.mechanism == "PLAIN":
            return Plain(sasl.username, password)
        return Scram(sasl, password)


__all__ = ["PeerLogin", "Step"]
