"""The simulated cluster that a scenario plays on: quick, lossless, and still.

Nothing happens in it by itself: no session runs out, no disk is written in the background, and what
goes over a wire takes the same short time always. This file makes it, and hears who registers.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from strandline.cluster.image import ClusterImage
from strandline.cluster.store import Changes
from strandline.node.node import Node
from strandline.sim.latency import Tcp
from strandline.sim.machine import Machine
from strandline.sim.network import Network
from strandline.sim.plan import LatencySpec, Options
from strandline.sim.scenarios.replica import PARTITION, name_of
from strandline.sim.schedule import Schedule
from strandline.sim.silent import Silent
from strandline.sim.streams import Streams
from strandline.sim.world import World
from strandline.types import BrokerId, Instant

_LATENCY: Final = LatencySpec(least_us=50, mean_us=50)
_SETTINGS: Final = {
    "controlled.shutdown.max.retries": "1",
    "controlled.shutdown.retry.backoff.ms": "1",
    "log.index.size.max.bytes": "4096",
    "replica.fetch.backoff.ms": "1",
    "replica.socket.timeout.ms": "100000000",
    # There is no coordinator to ask: a script writes what its producers and coordinators would.
    "transaction.partition.verification.enable": "false",
    "zookeeper.session.timeout.ms": "100000000",
}
_BROKER: Final = re.compile(r"\bbroker (\d+)")
_NOISE: Final = re.compile(rf" \([0-9a-f]{{8}}\)|\b{PARTITION}(?::| on) ")
BY_SCRIPTS: Final = "I-57"
"""The simulator's clients write no transactions, which the checkers hold it to; scripts do."""


def make_simulation(brokers: int, *, min_in_sync: int, lag_max_ms: int) -> World:
    """A cluster of so many brokers, none of which is started."""
    settings = {
        **_SETTINGS,
        "min.insync.replicas": str(min_in_sync),
        "replica.lag.time.max.ms": str(lag_max_ms),
    }
    options = Options(seed=1, brokers=brokers, settings=settings, store_latency_us=0)
    return World(options, permute=False, network=_network)


class Watch(Silent):
    """Gives each process the rules of the scenario, and tells who registers."""

    def __init__(self, say: Callable[[str], None], began: Callable[[Machine], None]) -> None:
        """`say` is told who registers, `began` of each process, before its node has any role."""
        self._say = say
        self._began = began
        self._epochs: dict[BrokerId, int] = {}

    def started(self, machine: Machine) -> None:
        """See `Observer`."""
        self._began(machine)

    def metadata_changed(self, changes: Changes, image: ClusterImage) -> None:
        """See `Observer`."""
        del changes
        for broker_id, broker in image.brokers.items():
            if self._epochs.get(broker_id) != broker.epoch:
                self._epochs[broker_id] = broker.epoch
                self._say(f"{name_of(broker_id)} registers")


def is_informed(machine: Machine) -> bool:
    """Whether a broker is up and has heard everything that the store knows."""
    store = machine.metadata
    return machine.is_up and store is not None and store.is_up_to_date


def with_letters(what: str) -> str:
    """What a checker found, in the script's words: brokers are letters, and checksums no help."""
    return _BROKER.sub(lambda found: name_of(BrokerId(int(found[1]))), _NOISE.sub("", what))


def _network(schedule: Schedule, streams: Streams) -> Network:
    return Network(schedule, streams, _LATENCY, Tcp())


def write_checkpoints(node: Node, now: Instant) -> None:
    """Write down the high watermarks of all logs."""
    del now
    for directory in node.replicas.logs.directories:
        directory.write_high_watermarks()


def look_at_followers(node: Node, now: Instant) -> None:
    """Have every leader find out who lags."""
    for replica in node.replicas:
        if replica.leading is not None:
            replica.leading.check_lag(now)
