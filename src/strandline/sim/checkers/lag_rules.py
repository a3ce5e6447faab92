"""Who stays behind leaves the in-sync set: I-53.

A follower lags for as long as its leader has had the first record that the follower lacks. Within
`replica.lag.time.max.ms` and half of it (so often a leader looks), and the time that its proposal
takes, such a follower must be out of the set, or acks=all waits for it for ever (F-15, F-25).

That is asked only of a leader that was able to do it all that time: it worked without a gap, and so
did the controller, which stayed the same; neither was cut off from the store, nor one from the
other. All of this is looked at in sweeps; what is shorter than the time between two of them is
within the slack.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from strandline.sim.checkers.log_model import LogModel
from strandline.sim.checkers.partition_model import PartitionModel
from strandline.sim.checkers.violations import Findings
from strandline.types import BrokerId

if TYPE_CHECKING:
    from strandline.sim.checkers.hosting import Hosting
    from strandline.sim.machine import Machine
    from strandline.sim.world import World

GAP_US: Final = 500_000
"""A broker that has handled no event for so long was busy, or was not there."""
_SLACK_US: Final = 1_500_000
"""For a proposal: connections that broke, writes to the store that were lost, timers that wait."""


class LagRules:
    """See the module."""

    def __init__(self, world: World, findings: Findings) -> None:
        self._world = world
        self._findings = findings
        self._hindered_us: dict[BrokerId, int] = {}
        """When each broker was last seen to be hindered in its work."""
        self._apart_us: dict[tuple[BrokerId, BrokerId], int] = {}
        """The same of the way between a leader and the controller."""
        self._controller: tuple[BrokerId, int] | None = None
        self._controller_since_us = 0

    def check(self, hostings: Mapping[BrokerId, Hosting]) -> None:
        """A sweep: look at the conditions, then at every leader of the store's states."""
        now_us = self._world.schedule.now_us
        for broker, hosting in hostings.items():
            self._look_at(broker, hosting, now_us)
        controller = self._world.image.controller
        office = None if controller is None else hostings.get(controller)
        if controller is None or office is None:
            self._controller = None
            return
        if self._controller != (controller, office.machine.life):
            self._controller = (controller, office.machine.life)
            self._controller_since_us = now_us
        able_since_us = max(self._controller_since_us, self._since(controller, office))
        for broker, hosting in hostings.items():
            self._look_between(broker, controller, now_us)
            since_us = max(
                able_since_us,
                self._since(broker, hosting),
                self._apart_us.get((broker, controller), 0),
            )
            allowed_us = _allowed_us(hosting.machine)
            if now_us - since_us > allowed_us:
                for model, partition in hosting.seen.values():
                    self._check_followers(model, partition, since_us, now_us - allowed_us)

    # -- Whether a leader was able to --------------------------------------------------------

    def _since(self, broker: BrokerId, hosting: Hosting) -> int:
        return max(self._hindered_us.get(broker, 0), hosting.busy_until_us)

    def _look_at(self, broker: BrokerId, hosting: Hosting, now_us: int) -> None:
        machine, store = hosting.machine, self._world.store
        if (
            not machine.is_up
            or machine.is_paused
            or machine.disk.is_slow
            or not store.is_available
            or store.is_cut(broker)
            or store.lag_of(broker).us > _SLACK_US // 5
        ):
            self._hindered_us[broker] = now_us

    def _look_between(self, broker: BrokerId, controller: BrokerId, now_us: int) -> None:
        network = self._world.network
        if broker != controller and not (
            network.is_quick(broker, controller) and network.is_quick(controller, broker)
        ):
            self._apart_us[broker, controller] = now_us

    # -- Whether it did ----------------------------------------------------------------------

    def _check_followers(
        self, model: LogModel, partition: PartitionModel, since_us: int, before_us: int
    ) -> None:
        state, leader = partition.state, model.leader
        if (
            state is None
            or leader is None
            or leader.leader_epoch != state.leader_epoch
            or model.log.failure is not None
            or max(partition.state_since_us, model.leads_since_us) >= before_us
        ):
            return
        for broker in state.in_sync_replicas:
            follower = partition.models.get(broker)
            if broker == model.broker_id or follower is None:
                continue
            lacks_since_us = model.had_more_since_us(follower.log.log_end_offset)
            self._findings.counters["followers compared"] += 1
            if lacks_since_us is not None and max(lacks_since_us, since_us) < before_us:
                now_us = self._world.schedule.now_us
                self._findings.add(
                    "I-53",
                    f"{partition.at}: broker {broker} is in sync, but its log ends at "
                    f"{follower.log.log_end_offset}, and that of its leader, broker "
                    f"{model.broker_id}, has been longer for "
                    f"{(now_us - lacks_since_us) // 1000} ms",
                    partition.at,
                )


def _allowed_us(machine: Machine) -> int:
    """How long a follower may be behind in the in-sync set of a leader on this machine."""
    config = machine.config
    lag_us = config.replica_lag_time_max_ms * 1000
    # For so long it waits for a silent controller (`node.in_sync_changes`).
    patience_us = min(config.controller_socket_timeout_ms * 1000, max(1_000_000, lag_us // 2))
    return lag_us * 8 // 5 + patience_us + _SLACK_US  # a clock may be slow by some per cent
