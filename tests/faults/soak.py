"""`python -m tests.faults.soak --minutes 30`: random faults, one after the other and several at a
time, under continuous load, until the time is over or the judgement of a round is bad.

A round is a topic of its own: load starts, some faults happen, everything is put right, all is
judged as in the tests. The seed decides which faults and when; how far the cluster has come by then
is the machine's affair, so that a seed repeats a plan, not a run. Data of every round stays.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tests.faults.load import LoadError
from tests.faults.network import CLIENTS, ZOOKEEPER, Node
from tests.faults.run import under_load
from tests.faults.zookeeper_cluster import ZooKeeperCluster

FAULTS_PER_ROUND: Final = (1, 6)
PAUSE_S: Final = (0.0, 4.0)
"""Between two faults: from both at once to a failover in between (sessions last 2.5 s)."""


class Trouble:
    """Random faults for one cluster; knows what is broken at the moment, to put it right."""

    def __init__(self, cluster: ZooKeeperCluster, chance: random.Random) -> None:
        self._cluster = cluster
        self._chance = chance
        self._down: set[int] = set()
        self._frozen: set[int] = set()
        self._faults: Mapping[str, Callable[[int], None]] = {
            "kill": self._kill,
            "restart": self._restart,
            "freeze": self._freeze,
            "stop": self._stop,
            "expire": self._expire,
            "isolate": self._isolate,
            "cut from brokers": self._cut_from_brokers,
            "cut from ZooKeeper": self._cut_from_zookeeper,
            "cut one way": self._cut_one_way,
            "cut from clients": self._cut_from_clients,
            "reset connections": self._reset,
            "put right": lambda _: self.put_right(),
        }

    def happen(self) -> None:
        """One fault, to a broker that runs."""
        time.sleep(self._chance.uniform(*PAUSE_S))
        able = sorted(set(self._cluster.ids) - self._down - self._frozen)
        if able:
            name = self._chance.choice(list(self._faults))
            self._faults[name](self._chance.choice(able))

    def put_right(self) -> None:
        """Everything runs and reaches everything."""
        self._cluster.heal()
        for broker in sorted(self._frozen):
            self._cluster.resume(broker)
        if self._down:
            self._cluster.start(*sorted(self._down))
        self._frozen.clear()
        self._down.clear()

    def _kill(self, broker: int) -> None:
        self._cluster.kill(broker)
        self._down.add(broker)

    def _restart(self, broker: int) -> None:
        self._cluster.kill(broker)
        self._down.add(broker)
        if not self._frozen:
            self.put_right()

    def _freeze(self, broker: int) -> None:
        self._cluster.pause(broker)
        self._frozen.add(broker)

    def _stop(self, broker: int) -> None:
        """As an operator does it, who sees to it first that the cluster is whole."""
        self.put_right()
        self._cluster.stop(broker)
        self._down.add(broker)

    def _expire(self, broker: int) -> None:
        if self._cluster.is_registered(broker):
            self._cluster.expire_session(broker)

    def _isolate(self, broker: int) -> None:
        self._cluster.cut({broker}, {ZOOKEEPER, *self._cluster.others(broker)})

    def _cut_from_brokers(self, broker: int) -> None:
        others = self._cluster.others(broker)
        self._cluster.cut({broker}, set(self._chance.sample(others, self._chance.randint(1, 2))))

    def _cut_from_zookeeper(self, broker: int) -> None:
        self._cluster.cut({broker}, {ZOOKEEPER})

    def _cut_from_clients(self, broker: int) -> None:
        self._cluster.cut({broker}, {CLIENTS})

    def _cut_one_way(self, broker: int) -> None:
        others: list[Node] = [ZOOKEEPER, *self._cluster.others(broker)]
        other = self._chance.choice(others)
        source, target = self._chance.choice([(broker, other), (other, broker)])
        self._cluster.note(f"cut one way from {source} to {target}")
        self._cluster.network.cut_one_way(sources={source}, targets={target})

    def _reset(self, broker: int) -> None:
        self._cluster.note("reset all connections of", broker)
        self._cluster.network.reset(broker)


def round_of(cluster: ZooKeeperCluster, number: int, chance: random.Random) -> None:
    """One topic, some faults, one judgement. Raises AssertionError or LoadError."""
    trouble = Trouble(cluster, chance)
    with under_load(cluster, f"round-{number}", with_group=chance.random() < 0.5):
        for _ in range(chance.randint(*FAULTS_PER_ROUND)):
            trouble.happen()
        time.sleep(chance.uniform(*PAUSE_S))
        trouble.put_right()


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--zookeepers", type=int, default=1)
    parser.add_argument("--keep-going", action="store_true", help="after a bad round, too")
    options = parser.parse_args()
    deadline = time.monotonic() + 60 * options.minutes
    number, failures = 0, 0
    while time.monotonic() < deadline:
        chance = random.Random(f"{options.seed}-{number}")
        home = Path(tempfile.mkdtemp(prefix=f"strandline-soak-{number}-"))
        began = time.monotonic()
        print(f"seed {options.seed}, round {number}: {home}", flush=True)
        try:
            with ZooKeeperCluster(home, zookeepers=options.zookeepers) as cluster:
                round_of(cluster, number, chance)
            verdict = "good"
        except (AssertionError, LoadError) as error:
            if not options.keep_going:
                raise
            verdict = f"BAD: {error}\n "
            failures += 1
        print(f"  {verdict} after {time.monotonic() - began:.1f} s", flush=True)
        number += 1
    print(f"{number} rounds, {failures} bad")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
