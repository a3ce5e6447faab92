"""The checks that apply to a run: all, until a fault makes some of them pointless.

A run is `strict` as long as no file was changed behind a broker's back and no more was lost than
acks=all survives. What holds then is asked without any exception. After the first fault of the
other kinds whole checks end, for the rest of the run; no check excuses a single case.

    strict   everything
    beyond   more was lost, or an unclean election was permitted: what was promised to clients is
             not asked any more; that logs agree with each other and with themselves is
    damage   a disk has rotted, lost a file or lied: nothing is asked of what logs hold, only of
             what clients see, of how states in the metadata follow each other, of what brokers
             check themselves, and that everything comes right in the end
"""

from __future__ import annotations

from collections.abc import Callable


class Scope:
    """See the module. Both properties become False at some moment, and stay so."""

    def __init__(self, exceeds_budget: Callable[[], bool]) -> None:
        """`exceeds_budget` says whether the faults so far were more than acks=all survives."""
        self.has_logs = True
        """Whether what logs hold can be judged: no disk was damaged."""
        self._exceeds_budget = exceeds_budget
        self._may_lose = False

    @property
    def may_lose(self) -> bool:
        """Whether what was acknowledged may be gone."""
        if not self._may_lose and self._exceeds_budget():
            self._may_lose = True
        return self._may_lose

    @property
    def has_promises(self) -> bool:
        """Whether what is committed must stay, everywhere."""
        return self.has_logs and not self.may_lose

    def permit_loss(self) -> None:
        """An unclean election was permitted."""
        self._may_lose = True

    def note_damage(self) -> None:
        """A disk has changed a file behind its broker's back."""
        self.has_logs = False
