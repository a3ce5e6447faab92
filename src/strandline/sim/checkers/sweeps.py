"""Periodic checks of all replicas and disks, whether or not an event has touched them.

A light sweep now and then takes what is cheap, and one log on disk, in turn. A full one at the end
of a phase takes all. What only a sweep can see is what changes without an event: bytes on disk, a
timer that was lost, a session that was forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from strandline.sim.checkers.hosting import Hosting
from strandline.sim.checkers.log_model import LogModel
from strandline.sim.checkers.partition_model import PartitionModel
from strandline.sim.checkers.rules import Rules

if TYPE_CHECKING:
    from strandline.sim.machine import Machine


class Sweeps:
    """See the module."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._count = 0

    def light(self, hostings: Iterable[Hosting]) -> None:
        """The cheap checks, and those of one log on disk."""
        rules = self._rules
        self._count += 1
        candidates: list[tuple[Machine, LogModel]] = []
        for hosting in hostings:
            machine = hosting.machine
            if not machine.is_up:
                continue
            if machine.node.purgatory.is_settled:
                rules.node.check_fetches(machine.node, hosting.seen)
            for model, partition in hosting.seen.values():
                if not model.is_current:
                    continue
                rules.storage.check_state(model)
                rules.replica.check_epoch_table(model)
                if model.leader is not None:
                    rules.commitment.check_progress(partition, model, model.leader)
                candidates.append((machine, model))
        if candidates:
            machine, model = candidates[self._count % len(candidates)]
            rules.storage.check_log(machine, model, is_full=False)
            rules.storage.check_partition_files(machine, model)

    def full(self, hostings: Iterable[Hosting]) -> None:
        """Everything."""
        rules = self._rules
        for hosting in hostings:
            machine = hosting.machine
            if not machine.is_up:
                continue
            if machine.node.purgatory.is_settled:
                rules.node.check_fetches(machine.node, hosting.seen)
            rules.storage.check_directories(machine)
            for model, partition in hosting.seen.values():
                if model.log.failure is None and model.is_current:
                    self._check_log(machine, model, partition)

    def _check_log(self, machine: Machine, model: LogModel, partition: PartitionModel) -> None:
        rules, leader = self._rules, model.leader
        rules.replica.check_end(model)
        rules.replica.check_epoch_table(model)
        rules.replica.check_stable(model)
        rules.replica.check_durable(model, machine, 0)
        rules.storage.check_state(model)
        rules.storage.check_log(machine, model, is_full=True)
        rules.storage.check_aborts(machine, model)
        rules.storage.check_partition_files(machine, model)
        rules.recovery.check_producers(model)
        if leader is not None:
            rules.commitment.check_quorum(partition, model, leader)
            rules.commitment.check_members(partition, model)
            rules.commitment.check_progress(partition, model, leader)
