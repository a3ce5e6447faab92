"""The words that every part shares: identifiers that must not be mixed up, and time.

This file knows no part of the system. Identifiers are `NewType`s: they cost nothing at run time
and a type checker keeps an offset from being passed where a leader epoch is wanted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple, NewType
from uuid import UUID

Offset = NewType("Offset", int)
"""Position of a record in one partition's log, counted from 0. `NO_OFFSET` means unknown."""

LeaderEpoch = NewType("LeaderEpoch", int)
"""Counts the leaders of one partition; assigned by the controller. `NO_EPOCH` means unknown."""

BrokerId = NewType("BrokerId", int)
ProducerId = NewType("ProducerId", int)
ProducerEpoch = NewType("ProducerEpoch", int)

NO_LEADER: Final = BrokerId(-1)
"""In the place of a leader: the partition has none."""
NO_OFFSET: Final = Offset(-1)
NO_EPOCH: Final = LeaderEpoch(-1)
NO_PRODUCER_ID: Final = ProducerId(-1)
NO_PRODUCER_EPOCH: Final = ProducerEpoch(-1)
NO_SEQUENCE: Final = -1
NO_TIMESTAMP: Final = -1

TopicId = UUID
"""A topic's identity across deletion and re-creation (KIP-516)."""

NO_TOPIC_ID: Final = UUID(int=0)


Lives = tuple[tuple[int, int], ...]
"""Processes of one broker, the oldest first: the first and the last broker epoch of each. A process
registers more than once if its session expires."""


class TopicPartition(NamedTuple):
    """One partition of one topic. A tuple, because it is the key of most maps."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Instant(NamedTuple):
    """The time at which something happens, as told to a part that decides.

    `monotonic_ms` measures durations (timeouts, sessions) and never goes back; `wall_ms` is
    milliseconds since 1970 in UTC, is what record timestamps and retention mean, and may jump.
    """

    monotonic_ms: int
    wall_ms: int


@dataclass(frozen=True, slots=True, order=True)
class Principal:
    """Who makes a request, as Kafka's `KafkaPrincipal`: a type, which is `User`, and a name.

    The name is that of SASL, or what `ssl.principal.mapping.rules` makes of a client certificate.
    """

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


USER: Final = "User"
"""The type of principals; Kafka has no other."""

ANONYMOUS: Final = Principal(USER, "ANONYMOUS")
"""The principal of a connection that has not said who it is, and need not."""
