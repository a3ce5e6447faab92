"""Safety rules that can be switched off, one at a time, to see that some checker bites.

This file knows the table of rules and how one is switched off for a while. What each rule is and
where it stands in the real code is in `strandline.sim.mutations`; the real code has no switches, it
is patched from outside and put back as it was.

A rule whose absence no run can notice is either checked too weakly, never put to the test, or not
needed: `strandline sim --without NAME` finds out which.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from strandline.errors import StrandlineError
from strandline.sim.mutations.mutant import Mutant
from strandline.sim.mutations.storage import STORAGE_MUTANTS

__all__ = ["MUTANTS", "Mutant", "UnknownMutant", "mutated"]

MUTANTS: Final[dict[str, Mutant]] = {mutant.name: mutant for mutant in (*STORAGE_MUTANTS,)}


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
