"""Whom a quota is for, and which of several quotas counts (KIP-13, KIP-55).

A quota is for a user, a client id, or both; each may be `DEFAULT`, which stands for all that have
none of their own. The first of these that has the limit counts, and with whom it is shared:

    user and client id   (u, c)  (u, default)         shared by connections of that user and id
    user                 (u)                          by all connections of the user
    user and client id   (default, c)  (default, default)
    user                 (default)
    client id            (c)  (default)               by all connections with the id

How often connections come is limited by address: that of the client, or else `DEFAULT` (KIP-612).

Sources: `kafka.server.ClientQuotaManager.DefaultQuotaCallback`, `QuotaConfig`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

DEFAULT: Final = ""
"""In place of a name: all that have no quota of their own."""

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
"""Bytes per second and broker."""
REQUEST_PERCENTAGE: Final = "request_percentage"
"""Of the time of one thread, on each broker."""
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
"""Partitions that are created and deleted, per second."""
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"
"""Connections per second and broker."""

_INT_MAX: Final = 2**31 - 1
_LONG_MAX: Final = 2**63 - 1
Allowed = Mapping[str, tuple[str, int] | None]
"""The limits of a kind of entity; of those that are whole numbers the type and its largest."""
OF_CLIENTS: Final[Allowed] = MappingProxyType(
    {
        PRODUCER_BYTE_RATE: ("LONG", _LONG_MAX),
        CONSUMER_BYTE_RATE: ("LONG", _LONG_MAX),
        REQUEST_PERCENTAGE: None,
        CONTROLLER_MUTATION_RATE: None,
    }
)
OF_ADDRESSES: Final[Allowed] = MappingProxyType({CONNECTION_CREATION_RATE: ("INT", _INT_MAX)})


class Entity(NamedTuple):
    """Whom a quota is for; None: the quota does not ask for it."""

    user: str | None
    client_id: str | None
    ip: str | None = None
    """An address, which stands alone."""

    @property
    def allowed(self) -> Allowed:
        """The limits that such an entity may have."""
        return OF_CLIENTS if self.ip is None else OF_ADDRESSES


class Limit(NamedTuple):
    """A limit, and by whom it is shared."""

    rate: float
    shared_by: Entity


Limits = Mapping[Entity, Mapping[str, float]]
"""The limits of each entity, by their names."""


def limit_of(limits: Limits, user: str, client_id: str, name: str) -> Limit | None:
    """The limit that counts for a connection, or None."""
    both, of_user, of_id = Entity(user, client_id), Entity(user, None), Entity(None, client_id)
    for entity, shared_by in (
        (both, both),
        (Entity(user, DEFAULT), both),
        (of_user, of_user),
        (Entity(DEFAULT, client_id), both),
        (Entity(DEFAULT, DEFAULT), both),
        (Entity(DEFAULT, None), of_user),
        (of_id, of_id),
        (Entity(None, DEFAULT), of_id),
    ):
        rate = limits.get(entity, {}).get(name)
        if rate is not None:
            return Limit(rate, shared_by)
    return None


def limit_of_address(limits: Limits, ip: str) -> float | None:
    """How many connections a second may come from an address, or None."""
    for entity in (Entity(None, None, ip), Entity(None, None, DEFAULT)):
        rate = limits.get(entity, {}).get(CONNECTION_CREATION_RATE)
        if rate is not None:
            return rate
    return None
