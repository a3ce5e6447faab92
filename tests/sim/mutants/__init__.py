"""Safety rules that can be switched off, one at a time, to see that some checker bites.

This package knows the table of rules and how each is switched off for a while: the real code has no
switches, it is patched from outside and put back as it was. One file per family of rules:

    leading       the high watermark and the in-sync set, as their leader keeps them
    following     how a follower makes its log that of its leader
    controlling   who leads: elections, restarts, the controller's own fences
    serving       what clients are told: acks, reads, fetch sessions, those who wait
    appending     what may be written: checksums, epochs, idempotence, deleted records
    recovering    what is on disk, and what is believed after a crash
    compacting    what compaction may take
    grouping      consumer groups and their offsets
    sharing       share groups
    transacting   transactions, from their beginning to their markers
    authorizing   what is asked before a request is served
    starving      what running out of something does not break
    meeting       what meets by chance: deletions beside moves, rounds and fetches, full disks

A rule whose absence no run can notice is either checked too weakly, never put to the test, or not
needed: `python -m tests.sim.mutants run NAME` finds out which. What is known to be not needed,
because another rule stands behind it, says so in its `remark`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from strandline.errors import StrandlineError
from tests.sim.mutants.appending import APPENDING
from tests.sim.mutants.authorizing import AUTHORIZING
from tests.sim.mutants.compacting import COMPACTING
from tests.sim.mutants.controlling import CONTROLLING
from tests.sim.mutants.following import FOLLOWING
from tests.sim.mutants.grouping import GROUPING
from tests.sim.mutants.leading import LEADING
from tests.sim.mutants.meeting import MEETING
from tests.sim.mutants.mutant import Mutant
from tests.sim.mutants.recovering import RECOVERING
from tests.sim.mutants.serving import SERVING
from tests.sim.mutants.sharing import SHARING
from tests.sim.mutants.starving import STARVING
from tests.sim.mutants.transacting import TRANSACTING

__all__ = ["MUTANTS", "Mutant", "UnknownMutant", "mutated"]

MUTANTS: Final[dict[str, Mutant]] = {
    mutant.name: mutant
    for mutant in (
        *LEADING,
        *FOLLOWING,
        *CONTROLLING,
        *SERVING,
        *APPENDING,
        *RECOVERING,
        *COMPACTING,
        *GROUPING,
        *SHARING,
        *TRANSACTING,
        *STARVING,
        *MEETING,
        *AUTHORIZING,
    )
}


class UnknownMutant(StrandlineError):
    """No rule has this name."""


@contextmanager
def mutated(name: str | None) -> Iterator[None]:
    """Everything within runs without the rule of this name; None: with all rules."""
    if name is None:
        yield
        return
    mutant = MUTANTS.get(name)
    if mutant is None:
        raise UnknownMutant(f"There is no rule {name!r}. There are: {', '.join(sorted(MUTANTS))}.")
    with mutant.switch_on():
        yield
