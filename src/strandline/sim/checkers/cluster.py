"""Queries of the checkers about the brokers of a world, beside their logs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from strandline.types import BrokerId

if TYPE_CHECKING:
    from strandline.sim.machine import Machine


class Cluster:
    """The machines of a world."""

    def __init__(self, machines: Mapping[BrokerId, Machine]) -> None:
        self.machines = machines

    def is_up(self, broker: BrokerId) -> bool:
        """Whether the broker has a process with a node."""
        machine = self.machines.get(broker)
        return machine is not None and machine.is_up

    def is_meant(self, broker: BrokerId, recorded: int | None) -> bool:
        """Whether a state that records the broker under that epoch speaks of its present process.

        It does if nothing was lost since that registration. Between a restart and the controller's
        next look, states still speak of the process before.
        """
        if recorded is None or not self.is_up(broker):
            return False
        return self.machines[broker].node.membership.holds(recorded)

    def broker_epoch(self, broker: BrokerId) -> int:
        """The newest registration that the broker's process knows of; -1 for none."""
        return self.machines[broker].node.broker_epoch if self.is_up(broker) else -1
