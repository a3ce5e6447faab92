"""Which of the available records between two offsets a member gets (KAFKA-17541).

A record that makes its worker fail takes along what was given with it: all that counts as delivered
once more. So from half of the allowed deliveries on fewer and fewer records are given at once, and
nothing else with them; a record that may be delivered once more only is given alone. Then it is
the only one that is given up.

Kafka halves a batch as a member acquired it, and lets records of it that were delivered less often
fill the half; here it is a record batch of the log, and they come by themselves.
"""

from __future__ import annotations

from typing import NamedTuple

from strandline.sharing.runs import Held, RecordState, Run, Runs, Status
from strandline.sharing.values import Acquired, Limits


class Taken(NamedTuple):
    """What a member is given."""

    acquired: list[Acquired]
    position: int
    """Where to go on."""
    is_all: bool
    """Whether nothing else is to be given with it."""


def take(
    runs: Runs,
    first: int,
    last: int,
    *,
    most: int,
    batch_size: int,
    held: Held,
    limits: Limits,
    has_others: bool,
) -> Taken:
    """Acquire what is available from `first` to `last`, `most` records at most. `batch_size` is
    that of the whole record batch; `has_others`: the member was given records before these."""
    given: list[Acquired] = []
    is_careful = False
    for run in runs.within(first, last):
        if not run.status.is_available:
            continue
        if most <= 0:
            return Taken(given, run.first, is_careful)
        deliveries = run.status.deliveries
        is_often = deliveries >= limits.careful_after
        is_last = is_often and deliveries >= limits.deliveries_max - 1
        if (given or has_others) and (is_last or is_often != is_careful):
            return Taken(given, run.first, True)
        if is_often and not given:
            is_careful = True
            halved = max(1, batch_size >> (deliveries - limits.careful_after + 1))
            most = 1 if is_last else min(most, halved)
        stop = min(run.last, run.first + most - 1)
        runs.put([Run(run.first, stop, Status(RecordState.ACQUIRED, deliveries + 1, held))])
        given.append(Acquired(run.first, stop, deliveries + 1))
        most -= stop - run.first + 1
        if stop < run.last:
            return Taken(given, stop + 1, is_careful)
    return Taken(given, last + 1, is_careful)
