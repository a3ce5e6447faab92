"""The owner of each partition by epoch, in groups of the consumer protocol (I-39).

Members of a classic group all enter a generation together. Those of the consumer protocol come to a
new epoch one by one, and keep what they own over many of them: such a time is a tenure, named by
its first epoch. Two rules follow, whichever broker coordinates: in one epoch, one member owns a
partition; and a member that has lost it to another member, which knows that already, commits
nothing for it any more.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from strandline.types import TopicPartition

NONE = -1
_MADE_ANEW: Final = 1 << 32
"""Between an epoch and the same one of the group that is made next: no epoch has as many bits."""


def epoch_of(number: int) -> int:
    """The epoch as it stands in answers to members."""
    return number % _MADE_ANEW


class Standing(NamedTuple):
    """As what a member commits an offset."""

    tenure: int
    newest: int
    """The newest tenure that any member knew of when the commit was made."""


class Tenures:
    """One group. Members are named by their instance ids, which last, or else by their ids."""

    def __init__(self) -> None:
        self._owners: dict[TopicPartition, dict[int, str]] = {}
        """By epoch."""
        self.newest_epoch = NONE
        """The last epoch in an answer to any member, as a number."""

    def base(
        self, epoch: int, member: str, owned: Iterable[TopicPartition], newest_before: int
    ) -> int | None:
        """What to add to a joining member's epochs; `newest_before` is `newest_epoch` from when it
        asked to join.

        A member that joins is told no epoch before that, and in that one itself nothing that
        another member owns: else the group was made anew. If it was not, the other member will
        commit, and be found out. None if the group was made anew while the member asked: its answer
        may be of either group, or of one that was made after both.
        """
        base = max(newest_before, 0) // _MADE_ANEW * _MADE_ANEW
        if self.newest_epoch >= base + _MADE_ANEW:
            return None
        number = base + epoch
        is_anew = number < newest_before or (
            number == newest_before
            and any(self._owners.get(at, {}).get(number, member) != member for at in owned)
        )
        return base + _MADE_ANEW if is_anew else base

    def owned(
        self, epoch: int, member: str, owned: Iterable[TopicPartition]
    ) -> list[tuple[TopicPartition, str]]:
        """A member in that epoch owns these; which of them another one owns in it, and who."""
        taken: list[tuple[TopicPartition, str]] = []
        self.newest_epoch = max(self.newest_epoch, epoch)
        for at in owned:
            owner = self._owners.setdefault(at, {}).setdefault(epoch, member)
            if owner != member:
                taken.append((at, owner))
        return taken

    def of(self, at: TopicPartition, epoch: int, member: str) -> int:
        """The tenure of a member that is in that epoch; `NONE` if it is not known to own it."""
        tenures = self._of(at).items()
        return max(
            (each for each, owner in tenures if each <= epoch and owner == member), default=NONE
        )

    def newest(self, at: TopicPartition) -> int:
        """The last tenure in an answer to a member."""
        return max(self._of(at), default=NONE)

    def _of(self, at: TopicPartition) -> dict[int, str]:
        """The epochs in which the owner is another one than before, whenever it was heard of:
        answers to different members overtake each other."""
        tenures: dict[int, str] = {}
        last = None
        for epoch, owner in sorted(self._owners.get(at, {}).items()):
            if owner != last:
                last = tenures[epoch] = owner
        return tenures
