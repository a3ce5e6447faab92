"""The in-sync set of a partition, and the one change of it that may be on its way.

This file knows the states of the set as its leader sees them. It must not know why a replica
joins or leaves. Theory (KIP-497): only the controller changes the set, so between proposal and
answer the leader cannot know which set is in force. It must be safe under both: `maximal` counts a
replica from the moment it was proposed, and one that is to leave until its leaving is committed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from strandline.replication.progress import NO_BROKER_EPOCH
from strandline.types import BrokerId


@dataclass(frozen=True, slots=True)
class Committed:
    """The set as the controller last told it; no change is under way."""

    members: frozenset[BrokerId]

    @property
    def maximal(self) -> frozenset[BrokerId]:
        """Every replica that may be in the set in force: who is waited for."""
        return self.members

    @property
    def proposed(self) -> frozenset[BrokerId]:
        """The set that the leader wants."""
        return self.members


@dataclass(frozen=True, slots=True)
class Expanding:
    """The leader has asked to add `joining` to the committed `members`.

    `broker_epoch` is the registration under which it qualified, -1 if it told none. Whatever it
    fetches under a later one, perhaps with an emptied log, does not change what was proposed: then
    the proposal is for a process that is gone (KIP-903).
    """

    members: frozenset[BrokerId]
    joining: BrokerId
    broker_epoch: int = NO_BROKER_EPOCH

    @property
    def maximal(self) -> frozenset[BrokerId]:
        """See `Committed.maximal`."""
        return self.members | {self.joining}

    @property
    def proposed(self) -> frozenset[BrokerId]:
        """See `Committed.proposed`."""
        return self.members | {self.joining}


@dataclass(frozen=True, slots=True)
class Shrinking:
    """The leader has asked to take `leaving` out of the committed `members`."""

    members: frozenset[BrokerId]
    leaving: frozenset[BrokerId]

    @property
    def maximal(self) -> frozenset[BrokerId]:
        """See `Committed.maximal`."""
        return self.members

    @property
    def proposed(self) -> frozenset[BrokerId]:
        """See `Committed.proposed`."""
        return self.members - self.leaving


@dataclass(frozen=True, slots=True)
class Withdrawing:
    """The leader has given up to add `joining`, but an attempt of it was never answered.

    That attempt may come true for as long as the state keeps its version. So the leader asks for
    the committed `members` once more: that moves the version and changes nothing else. Until then
    `joining` counts as one that may be in the set in force.
    """

    members: frozenset[BrokerId]
    joining: BrokerId

    @property
    def maximal(self) -> frozenset[BrokerId]:
        """See `Committed.maximal`."""
        return self.members | {self.joining}

    @property
    def proposed(self) -> frozenset[BrokerId]:
        """See `Committed.proposed`."""
        return self.members


InSyncState = Committed | Expanding | Shrinking | Withdrawing


def committed(members: Iterable[BrokerId]) -> Committed:
    """The settled state with these members."""
    return Committed(frozenset(members))
