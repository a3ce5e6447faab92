"""What is counted over the members of a classic group, so that no request has to count anew.

A group of many members, or one whose members name many protocols, is asked for these numbers by
every join. Knows nothing of the group; whatever changes a member that is counted has to say so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from strandline.errors import InvariantViolated
from strandline.groups.counts import add
from strandline.groups.member import Member, ParkedRequest
from strandline.protocol.messages.join_group import JoinGroupRequestProtocol


class Tally:
    """See the module."""

    def __init__(self) -> None:
        self.supporters: Counter[str] = Counter()
        """How many members support each protocol; one that lists it twice counts once. No zeros."""
        self.awaiting_join = 0
        """How many members wait for the answer to a join."""

    def add(self, member: Member) -> None:
        """It belongs to the group from now on."""
        self.supporters.update(_names(member))
        self.awaiting_join += member.awaiting_join is not None

    def remove(self, member: Member) -> None:
        """It does not belong to the group any more."""
        add(self.supporters, _names(member), -1)
        self.awaiting_join -= member.awaiting_join is not None

    def set_protocols(self, member: Member, protocols: list[JoinGroupRequestProtocol]) -> None:
        """A member that is counted says anew what it can do."""
        if protocols != member.protocols:
            self.remove(member)
            member.protocols = protocols
            self.add(member)

    def set_awaiting_join(self, member: Member, parked: ParkedRequest | None) -> None:
        """A member that is counted waits for the answer to a join, or does not any more."""
        self.awaiting_join += (parked is not None) - (member.awaiting_join is not None)
        member.awaiting_join = parked

    def supported_by_all(self, members: Iterable[Member]) -> set[str]:
        """The protocols that each of these, who are all that are counted, supports."""
        counted = list(members)
        fewest = min(counted, key=lambda member: len(member.protocols))
        return {name for name in _names(fewest) if self.supporters[name] == len(counted)}

    def check(self, members: Iterable[Member]) -> None:
        """Verify the counts against the members."""
        fresh = Tally()
        for member in members:
            fresh.add(member)
        if fresh.supporters != self.supporters or fresh.awaiting_join != self.awaiting_join:
            raise InvariantViolated("What is counted of a group's members is not what they are.")


def _names(member: Member) -> set[str]:
    return {protocol.name for protocol in member.protocols}
