"""A replica that lags leaves the in-sync set, and one that keeps up joins it: I-53.

A follower lags for as long as its leader has had the first record that the follower lacks, and not
for longer than its log has been without it: a truncation, or a new disk, begins that time. Within
`replica.lag.time.max.ms` and half of it (so often a leader looks), and the time that its proposal
takes, such a follower must be out of the set, or acks=all waits for it for ever (F-15, F-25).

A follower outside the set keeps up if whatever its leader appends is in its log within half of
`replica.lag.time.max.ms`. However far away it is, it joins with its third fetch of that kind and
the time that a proposal takes: the high watermark waits for it (KAFKA-4485). Otherwise those that
are nearer are always in front.

Both are asked only of a leader that was able to do it all that time: it worked without a gap, and
so did the controller, which stayed the same; neither was cut off from the store, nor one from the
other, and neither had to register anew. All of this is looked at in sweeps. What is shorter than
the time between two of them is within the slack, if that is; of more, nothing is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
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
LOOK_US: Final = 1_000_000
"""How often to look at the least, if anything happens: of longer times nothing is known."""
_APPENDS_MIN: Final = 10
"""So many growths of a leader's log, spread over all the time, show that a follower keeps up."""


class LagRules:
    """See the module."""

    def __init__(self, world: World, findings: Findings) -> None:
        self._world = world
        self._findings = findings
        self._hindered_us: dict[BrokerId, int] = {}
        """When each broker was last seen to be hindered in its work."""
        self._absent_us: dict[BrokerId, int] = {}
        """The same without replicas on slow disks, which may keep up all the same."""
        self._apart_us: dict[tuple[BrokerId, BrokerId], int] = {}
        """The same of the way between a leader and the controller."""
        self._registered: dict[BrokerId, int] = {}
        """Under which broker epoch each was registered when it was last looked at."""
        self._controller: tuple[BrokerId, int] | None = None
        self._controller_since_us = 0
        self.looked_us = 0
        """When this was last looked at."""

    def check(self, hostings: Mapping[BrokerId, Hosting]) -> None:
        """A sweep: look at the conditions, then at every leader of the store's states."""
        now_us = self._world.schedule.now_us
        former_us, self.looked_us = self.looked_us, now_us
        for broker, hosting in hostings.items():
            self._look_at(broker, hosting, now_us)
            if now_us - former_us > _SLACK_US:  # a quiet time: anything may have been broken in it
                self._absent_us[broker] = self._hindered_us[broker] = now_us
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
            to_leave_us, to_join_us = _to_leave_us(hosting.machine), _to_join_us(hosting.machine)
            if now_us - since_us <= to_join_us:
                continue
            for model, partition in hosting.seen.values():
                if _leads_since(model, partition, now_us - to_join_us):
                    self._check_outsiders(model, partition, hostings, now_us - to_join_us)
                if since_us < now_us - to_leave_us and _leads_since(
                    model, partition, now_us - to_leave_us
                ):
                    self._check_members(model, partition, since_us, now_us - to_leave_us)

    # -- Whether a leader was able to --------------------------------------------------------

    def _since(self, broker: BrokerId, hosting: Hosting) -> int:
        return max(self._hindered_us.get(broker, 0), hosting.busy_until_us)

    def _look_at(self, broker: BrokerId, hosting: Hosting, now_us: int) -> None:
        machine, store = hosting.machine, self._world.store
        registered = self._world.image.brokers.get(broker)
        epoch = -1 if registered is None or registered.is_shutting_down else registered.epoch
        former, self._registered[broker] = self._registered.get(broker), epoch
        if (
            epoch < 0
            or epoch != former
            or not machine.is_up
            or machine.is_paused
            or not store.is_available
            or store.is_cut(broker)
            or store.lag_of(broker).us > _SLACK_US // 5
        ):
            self._absent_us[broker] = self._hindered_us[broker] = now_us
        elif machine.disk.is_slow:
            self._hindered_us[broker] = now_us

    def _look_between(self, broker: BrokerId, controller: BrokerId, now_us: int) -> None:
        network = self._world.network
        if broker != controller and not (
            network.is_quick(broker, controller) and network.is_quick(controller, broker)
        ):
            self._apart_us[broker, controller] = now_us

    # -- Whether it did ----------------------------------------------------------------------

    def _check_members(
        self, model: LogModel, partition: PartitionModel, since_us: int, before_us: int
    ) -> None:
        for broker in () if partition.state is None else partition.state.in_sync_replicas:
            follower = partition.models.get(broker)
            if broker == model.broker_id or follower is None:
                continue
            lacks_since_us = model.growth.longer_since_us(follower.log.log_end_offset)
            self._findings.counters["followers compared"] += 1
            if lacks_since_us is None:
                continue
            lacks_since_us = max(lacks_since_us, follower.growth.begun_us)
            if max(lacks_since_us, since_us) < before_us:
                now_us = self._world.schedule.now_us
                self._findings.add(
                    "I-53",
                    f"{partition.at}: broker {broker} is in sync, but its log ends at "
                    f"{follower.log.log_end_offset}, and that of its leader, broker "
                    f"{model.broker_id}, has been longer for "
                    f"{(now_us - lacks_since_us) // 1000} ms",
                    partition.at,
                )

    def _check_outsiders(
        self,
        model: LogModel,
        partition: PartitionModel,
        hostings: Mapping[BrokerId, Hosting],
        before_us: int,
    ) -> None:
        state, now_us = partition.state, self._world.schedule.now_us
        if state is None or state.adding or state.removing:
            return
        within_us = _within_us(hostings[model.broker_id].machine)
        for broker in state.replicas:
            follower, hosting = partition.models.get(broker), hostings.get(broker)
            if (
                broker in state.in_sync_replicas
                or follower is None
                or hosting is None
                or self._absent_us.get(broker, 0) >= before_us
                or follower.log.failure is not None
            ):
                continue
            self._findings.counters["outsiders compared"] += 1
            if _keeps_up(model, follower, before_us, now_us, within_us):
                self._findings.add(
                    "I-53",
                    f"{partition.at}: broker {broker} is not in sync, but for "
                    f"{(now_us - before_us) // 1000} ms it has had all that its leader, broker "
                    f"{model.broker_id}, appended within {within_us // 1000} ms",
                    partition.at,
                )


def _leads_since(model: LogModel, partition: PartitionModel, before_us: int) -> bool:
    """Whether the replica has led all that time, with one state of the partition in the store."""
    state, leader = partition.state, model.leader
    return (
        state is not None
        and leader is not None
        and leader.leader_epoch == state.leader_epoch
        and model.log.failure is None
        and max(partition.state_since_us, model.leads_since_us) < before_us
    )


def _keeps_up(
    leader: LogModel, follower: LogModel, after_us: int, now_us: int, within_us: int
) -> bool:
    """Whether the leader's log grew all that time, and the follower's soon after each time."""
    grown = leader.growth.appended(after_us, now_us - within_us)
    times_us = [after_us, *(at_us for _, at_us in grown), now_us - within_us]
    if len(grown) < _APPENDS_MIN or any(b - a > within_us for a, b in pairwise(times_us)):
        return False
    for end, at_us in grown:
        had_us = follower.growth.longer_since_us(end - 1)
        if had_us is None or had_us > at_us + within_us:
            return False
    return True


def _lag_us(machine: Machine) -> int:
    return machine.config.replica_lag_time_max_ms * 1000


def _within_us(machine: Machine) -> int:
    """How soon a follower must have what its leader appends, to keep up."""
    return _lag_us(machine) // 2


def _to_propose_us(machine: Machine) -> int:
    """How long a leader on this machine may take to change the in-sync set."""
    # For so long it waits for a silent controller (`node.in_sync_changes`).
    patience_us = machine.config.controller_socket_timeout_ms * 1000
    return min(patience_us, max(1_000_000, _lag_us(machine) // 2)) + _SLACK_US


def _to_join_us(machine: Machine) -> int:
    """How long a leader on this machine may take to get a follower in that keeps up.

    The follower's first fetch of that time says that it is there, its second that it had at the
    first all that there was; from then on the high watermark waits for its third.
    """
    return 3 * _within_us(machine) + _to_propose_us(machine)


def _to_leave_us(machine: Machine) -> int:
    """How long a follower may be behind in the in-sync set of a leader on this machine."""
    # a clock may be slow by some per cent
    return _lag_us(machine) * 8 // 5 + _to_propose_us(machine)
