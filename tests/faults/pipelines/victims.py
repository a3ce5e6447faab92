"""Who is killed, and when: every kind of victim at every kind of moment, by turns.

A round has each pair of the two once, in an order of chance; so that of any number of kills, each
victim gets its share. The seed decides who and when, as a part of how long a stage usually takes;
what is hit then, is the machine's affair as well, and is told by the run itself (`phases`).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Final, NamedTuple

from tests.faults.pipelines.phases import COMMITTING, COMPACTING, STARTING, WRITING

DRIVER: Final = "driver"
JVM: Final = "JVM"
EXECUTOR: Final = "executor"
WORKER: Final = "worker"
BROKER: Final = "broker"
CLUSTER_WORKER: Final = "worker of the cluster"
"""A standalone Spark's, whose executors end with it."""
MASTER: Final = "master"
STORE: Final = "store"
"""Its connections: they are cut, and it is not killed."""

ANY: Final = "any time"
MOMENTS: Final = (ANY, STARTING, WRITING, COMMITTING, COMPACTING)
BEYOND: Final = 1.1
"""Of a stage's usual duration: now and then a kill comes when it is just over."""


class Kill(NamedTuple):
    """One kill that is to be. `part`, from 0 to `BEYOND`, is when in the moment's stage."""

    victim: str
    moment: str
    part: float


def plan(chance: random.Random, victims: Sequence[str]) -> Iterator[Kill]:
    """Without end."""
    while True:
        pairs = list(product(victims, MOMENTS))
        chance.shuffle(pairs)
        for victim, moment in pairs:
            yield Kill(victim, moment, chance.uniform(0.0, BEYOND))
