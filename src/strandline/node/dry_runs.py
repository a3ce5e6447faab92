"""Dry runs of compaction that a client has asked for: begun here, carried out by the driver.

A dry run reads as much as the round itself would, so the answer comes later; who asked comes back
with the number that it was given. This file keeps the newest outcomes and nothing else.
"""

from __future__ import annotations

from itertools import count
from typing import Final

from strandline.errors import StrandlineError
from strandline.node.effects import ExamineLog
from strandline.node.outbox import Outbox
from strandline.storage.compaction.dry_run import DryRun
from strandline.storage.compaction.plan import CleaningPlan

KEPT_MAX: Final = 32
UNDER_WAY_MAX: Final = 4


class TooManyDryRuns(StrandlineError):
    """Dry runs read much: others have to end first."""


class DryRuns:
    """See the module. Outcomes by token; None while a dry run is under way."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._tokens = count(-1, -1)  # not those of rounds, which the same driver carries out
        self._outcomes: dict[int, DryRun | StrandlineError | None] = {}

    def begin(self, plan: CleaningPlan) -> int:
        """Begin one, and return its token. Raises `TooManyDryRuns`."""
        if sum(outcome is None for outcome in self._outcomes.values()) >= UNDER_WAY_MAX:
            raise TooManyDryRuns(f"{UNDER_WAY_MAX} dry runs are under way; wait for one to end.")
        token = next(self._tokens)
        self._outcomes[token] = None
        self._outbox.add(ExamineLog(token, plan))
        return token

    def ended(self, token: int, outcome: DryRun | StrandlineError) -> None:
        """The driver has carried one out."""
        self._outcomes[token] = outcome
        done = [each for each, found in self._outcomes.items() if found is not None]
        for old in done[:-KEPT_MAX]:
            del self._outcomes[old]

    def outcome(self, token: int) -> DryRun | StrandlineError | None:
        """What came of it, None while it is under way. Raises `KeyError` for one not known."""
        return self._outcomes[token]
