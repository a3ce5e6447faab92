"""The messages between the simulated metadata store and one client: writes and notifications.

A notification tells what was changed, as one net effect, and then what came of the writes whose
changes it covers (see `store_client`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final, TypeAlias

from strandline.cluster.net_effect import NetEffect
from strandline.cluster.store import Changes, Operation, OutcomeUnknown, StoreError
from strandline.sim.store import Session

Told: TypeAlias = Callable[[StoreError | None], None]
"""Hears the outcome of a write, once, unless the process dies before. None: it was done."""

_TORN: Final = 0.5


@dataclass(slots=True, eq=False)
class Write:
    """A write under way."""

    operations: Sequence[Operation]
    told: Told
    session: Session
    patience_us: int
    """The time at which the caller stops waiting for the outcome."""
    fate: bool | None
    """Whether the connection breaks under it, after it was applied or before."""
    answer: StoreError | None = None
    is_answer_known: bool = False
    """Whether the client has the answer although it has lost the connection."""
    has_alarm: bool = False


@dataclass(slots=True, eq=False)
class Notification:
    """See the module."""

    news: list[Changes] = field(default_factory=list)
    answered: list[Write] = field(default_factory=list)
    is_survey: bool = False
    """Whether it is the first of a connection: everything that was missed before."""

    def net(self) -> Changes | None:
        """One transaction as it is, several as what they come to, which may be nothing."""
        if len(self.news) == 1:
            return self.news[0]
        effect = NetEffect()
        for changes in self.news:
            effect.add(changes)
        return effect.take()

    def tear(self, random: Random) -> Changes | None:
        """Take the end of the last transaction out, perhaps: what is left is no whole one."""
        if self.answered or not self.news or random.random() >= _TORN:
            return None
        last = self.news[-1]
        if len(last.changes) < 2:
            return None
        seam = random.randrange(1, len(last.changes))
        self.news[-1] = Changes(last.zxid, last.changes[:seam])
        return Changes(last.zxid, last.changes[seam:])


def unknown() -> OutcomeUnknown:
    """The outcome of a write whose answer was lost."""
    return OutcomeUnknown("The connection to the metadata store was lost during a write.")
