"""Whom a quota is for, and which of several quotas counts (KIP-13, KIP-55).

A quota is for a user, a client id, or both; each may be `DEFAULT`, which stands for all that have
none of their own. The first of these that has the limit counts, and with whom it is shared:

    user and client id   (u, c)  (u, default)         shared by connections of that user and id
    user                 (u)                          by all connections of the user
    user and client id   (default, c)  (default, default)
    user                 (default)
    client id            (c)  (default)               by all connections with the id

Source: `kafka.server.ClientQuotaManager.DefaultQuotaCallback`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

DEFAULT: Final = ""
"""In place of a name: all that have no quota of their own."""

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
ENFORCED: Final = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE)
"""The limits that brokers hold clients to; in bytes per second and broker."""

KNOWN: Final = (
    *ENFORCED,
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)
"""All limits that Kafka has."""


class Entity(NamedTuple):
    """Whom a quota is for; None: the quota does not ask for it."""

    user: str | None
    client_id: str | None


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
