"""The state of a cluster with one partition, as small as it can be said.

Brokers are numbers from 0. Everything is a tuple of numbers, so that states can be compared, hashed
and kept by the million. A record is the leader epoch that wrote it: with its offset that names it,
since in one epoch one leader writes each offset once (I-10 and I-11, which are checked).

What the controller has written of a replica stands with the replica. Versions of the partition's
state are not counted: a leader knows the newest one (`is_current`), or an older one.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

NO_REPLICA: Final = -1
UNTOLD: Final = -1
"""The leader epoch of a broker that has not been told one since it started."""
UNKNOWN: Final = -1

OUT: Final = 0
MEMBER: Final = 1
JOINING: Final = 2
LEAVING: Final = 3
WITHDRAWN: Final = 4
"""It was to join, and may still do so although the leader has given that up."""

Entries: TypeAlias = tuple[tuple[int, int], ...]
"""A table of leader epochs: each with the offset at which it begins."""


class View(NamedTuple):
    """What a leader knows of one follower; `membership` in its in-sync set.

    `joins_as`: while it joins, the life in which it qualified.
    """

    end: int
    life: int
    membership: int
    joins_as: int = UNKNOWN


OWN: Final = View(UNKNOWN, UNKNOWN, MEMBER)
"""Stands for the leader itself among its views."""


class Reign(NamedTuple):
    """A broker's leadership in the newest epoch that it knows."""

    start: int
    is_current: bool
    """Whether it knows the newest version of the partition's state."""
    views: tuple[View, ...]


class Replica(NamedTuple):
    """One broker, its log, its role, and what the controller has written of it.

    - `log`: the epochs of its records; `entries`: its table of epochs; `mark`: high watermark.
    - `compares`: whether its fetches carry the epoch of its last record (always, but for rules
      that were given up).
    - `life`: counts the registrations of this broker; `unbroken_since`: the first of them since
      which it has certainly forgotten nothing.
    - `epoch`: the newest leader epoch that it was told; `reign`: not empty while it leads.
    - `recorded`: the life under which the controller knew it complete, 0 for none.
    """

    log: tuple[int, ...]
    entries: Entries
    mark: int
    compares: bool
    is_up: bool
    is_registered: bool
    life: int
    unbroken_since: int
    epoch: int
    reign: tuple[Reign, ...]
    is_in_sync: bool
    is_eligible: bool
    was_complete: bool
    """Restarted uncleanly since it was in sync or eligible (`last_known_elr`)."""
    recorded: int


class Delayed(NamedTuple):
    """A request under way that will arrive at some time, or never; `sender` need not live."""

    is_fetch: bool
    sender: int
    receiver: int
    """Of a fetch: its leader. Of a proposal: `NO_REPLICA`."""
    life: int
    epoch: int
    offset: int = 0
    last_epoch: int = UNKNOWN
    is_current: bool = False
    members: tuple[tuple[int, int], ...] = ()
    """Of a proposal: brokers and their lives."""
    registrations: tuple[tuple[bool, int, int], ...] = ()
    """Not empty: the controller has decided, by what was registered then (see `Standing`), and its
    write is under way; it succeeds if the state has the same version still."""


class Left(NamedTuple):
    """How much of what is bounded may still happen."""

    records: int
    crashes: int
    losses: int
    expiries: int


class World(NamedTuple):
    """Everything. `replicas` are numbers of a `Table`.

    - `leaders`: by leader epoch, who was elected; the last one is the present one.
    - `committed`: the records below the highest high watermark that any leader ever had.
    - `may_lose`: an election has happened after which committed records may be gone.
    - `is_recovering`: the state says that the leader was elected uncleanly.
    """

    replicas: tuple[int, ...]
    leaders: tuple[int, ...]
    committed: tuple[int, ...]
    is_recovering: bool
    may_lose: bool
    left: Left
    delayed: tuple[Delayed, ...]


class Table:
    """Every replica state that was ever met, once, by a number."""

    def __init__(self) -> None:
        self.all: list[Replica] = []
        self._numbers: dict[Replica, int] = {}

    def number(self, replica: Replica) -> int:
        """The number of an equal replica."""
        number = self._numbers.get(replica)
        if number is None:
            number = self._numbers[replica] = len(self.all)
            self.all.append(replica)
        return number
