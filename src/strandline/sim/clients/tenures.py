"""Who owns a partition since which epoch, in groups whose members have epochs of their own (I-39).

Members of a classic group all enter a generation together. Those of the consumer protocol come to a
new epoch one by one, and keep what they own over many of them: such a time is a tenure, named by
its first epoch. Two rules follow, whichever broker coordinates: in one epoch, one member owns a
partition; and who has lost it to another member, which knows that already, commits nothing for it
any more.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from strandline.types import TopicPartition

NONE = -1


class Standing(NamedTuple):
    """As what a member commits an offset."""

    tenure: int
    newest: int
    """The newest tenure that any member knew of when the commit was made."""


class Tenures:
    """One group. Members are named by their instance ids, which last, or else by their ids."""

    def __init__(self) -> None:
        self._owners: dict[tuple[int, TopicPartition], str] = {}
        """By epoch."""
        self._tenures: dict[TopicPartition, dict[int, str]] = {}

    def owned(
        self, epoch: int, member: str, owned: Iterable[TopicPartition]
    ) -> list[tuple[TopicPartition, str]]:
        """A member in that epoch owns these; which of them another one owns in it, and who."""
        taken: list[tuple[TopicPartition, str]] = []
        for at in owned:
            owner = self._owners.setdefault((epoch, at), member)
            if owner != member:
                taken.append((at, owner))
            else:
                self._begin(at, epoch, member)
        return taken

    def _begin(self, at: TopicPartition, epoch: int, member: str) -> None:
        tenures = self._tenures.setdefault(at, {})
        # A coordinator that is none any more may tell a member once more what it told before: that
        # is not a new tenure.
        last = max((each for each in tenures if each <= epoch), default=None)
        if last is None or tenures[last] != member:
            tenures[epoch] = member

    def of(self, at: TopicPartition, epoch: int, member: str) -> int:
        """The tenure of a member that is in that epoch; `NONE` if it is not known to own it."""
        tenures = self._tenures.get(at, {})
        return max(
            (each for each, owner in tenures.items() if each <= epoch and owner == member),
            default=NONE,
        )

    def newest(self, at: TopicPartition) -> int:
        """The last tenure that a member was told of."""
        return max(self._tenures.get(at, ()), default=NONE)
