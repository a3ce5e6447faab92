"""Looks at everything, whether or not anything was touched.

A light sweep now and then takes what is cheap, and one log on disk, in turn. A full one at the end
of a phase takes all. What only a sweep can see is what changes without an event: bytes on disk, a
timer that was lost, a session that was forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from strandline.sim.checkers.hosting import Hosting
from strandline.sim.checkers.node_internals import is_turn_over
from strandline.sim.checkers.rules import Rules
from strandline.sim.checkers.shadow import Shadow
from strandline.sim.checkers.truth import PartitionTruth

if TYPE_CHECKING:
    from strandline.sim.machine import Machine


class Sweeps:
    """See the module."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._count = 0

    def light(self, hostings: Iterable[Hosting]) -> None:
        """What is cheap, and one log on disk."""
        rules = self._rules
        self._count += 1
        candidates: list[tuple[Machine, Shadow]] = []
        for hosting in hostings:
            machine = hosting.machine
            if not machine.is_up:
                continue
            rules.waiting.check_sessions(machine.node, machine.life)
            if is_turn_over(machine.node.purgatory):
                rules.waiting.check_parked(machine.node, hosting.by_key)
            for shadow, truth in hosting.seen.values():
                if not shadow.is_current:
                    continue
                rules.storage.check_state(shadow)
                rules.replica.check_epoch_table(shadow)
                if shadow.leader is not None:
                    rules.commitment.check_progress(truth, shadow, shadow.leader)
                candidates.append((machine, shadow))
        if candidates:
            machine, shadow = candidates[self._count % len(candidates)]
            rules.storage.check_log(machine, shadow, is_full=False)
            rules.storage.check_partition_files(machine, shadow)

    def full(self, hostings: Iterable[Hosting]) -> None:
        """Everything."""
        rules = self._rules
        for hosting in hostings:
            machine = hosting.machine
            if not machine.is_up:
                continue
            rules.waiting.check_sessions(machine.node, machine.life)
            if is_turn_over(machine.node.purgatory):
                rules.waiting.check_parked(machine.node, hosting.by_key)
            rules.storage.check_directories(machine)
            for shadow, truth in hosting.seen.values():
                if shadow.log.failure is None and shadow.is_current:
                    self._check_log(machine, shadow, truth)

    def _check_log(self, machine: Machine, shadow: Shadow, truth: PartitionTruth) -> None:
        rules, leader = self._rules, shadow.leader
        rules.replica.check_offsets(shadow)
        rules.replica.check_epoch_table(shadow)
        rules.replica.check_stable(shadow)
        rules.replica.check_durable(shadow, machine, 0)
        rules.storage.check_state(shadow)
        rules.storage.check_log(machine, shadow, is_full=True)
        rules.storage.check_partition_files(machine, shadow)
        rules.recovery.check_producers(shadow, machine)
        rules.waiting.check_role(machine.node, shadow)
        if leader is not None:
            rules.commitment.check_quorum(truth, shadow, leader)
            rules.commitment.check_members(truth, shadow)
            rules.commitment.check_progress(truth, shadow, leader)


def hosted_logs(hostings: Iterable[Hosting]) -> Iterator[tuple[Machine, Shadow]]:
    """The log of every replica of a broker that is up."""
    for hosting in hostings:
        if hosting.machine.is_up:
            for shadow, _ in hosting.seen.values():
                yield hosting.machine, shadow
