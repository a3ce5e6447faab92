"""Interesting moments: bugs live where something changes, so faults like to strike there.

`when=in-sync-change` delays an action until the next such moment, at most as long as `wait` says;
then it is done anyway. What is recognised:

    proposal           a leader has begun to change its in-sync set and waits for the controller
    in-sync-change     the metadata has a new in-sync set of some partition
    epoch-change       some partition has a new leader epoch
    controller-change  another broker is the controller, or none
    decision           a coordinator has begun to write how a transaction ends, or that it has ended

This file knows when, not what.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from strandline.cluster.image import ClusterImage
from strandline.cluster.store import Changes
from strandline.replication.in_sync import Expanding, Shrinking
from strandline.sim.machine import Machine
from strandline.sim.silent import Silent
from strandline.sim.world import World
from strandline.types import TopicPartition

PROPOSAL: Final = "proposal"
IN_SYNC_CHANGE: Final = "in-sync-change"
EPOCH_CHANGE: Final = "epoch-change"
CONTROLLER_CHANGE: Final = "controller-change"
DECISION: Final = "decision"
MOMENTS: Final = (PROPOSAL, IN_SYNC_CHANGE, EPOCH_CHANGE, CONTROLLER_CHANGE)
"""Those that every seed has."""
KNOWN_MOMENTS: Final = (*MOMENTS, DECISION)


@dataclass(eq=False, slots=True)
class _Waiting:
    moment: str
    action: Callable[[], None]


class Moments(Silent):
    """Lets actions wait for their moment."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._waiting: list[_Waiting] = []
        self._controller: int | None = None
        self._states: Mapping[TopicPartition, tuple[object, object]] = {}

    def wait(self, moment: str, wait_us: int, action: Callable[[], None]) -> None:
        """Act at the next such moment, or when the time is over."""
        waiting = _Waiting(moment, action)
        if not self._waiting:
            self._look(self._world.image)
        self._waiting.append(waiting)
        self._world.schedule.after(wait_us, lambda: self._strike(waiting))

    def forget(self) -> None:
        """Drop all waiting actions."""
        self._waiting.clear()

    def node_acted(self, machine: Machine) -> None:
        """Look for leaders that have just proposed something, and coordinators that decide."""
        waits = any(each.moment == DECISION for each in self._waiting)
        if waits and machine.node.transactions.is_deciding:
            self._come(DECISION)
        if self._waiting and any(each.moment == PROPOSAL for each in self._waiting):
            for replica in machine.node.replicas:
                leader = replica.leader
                if leader is not None and isinstance(leader.in_sync, Expanding | Shrinking):
                    self._come(PROPOSAL)
                    return

    def metadata_changed(self, changes: Changes, image: ClusterImage) -> None:  # noqa: ARG002
        """Look for what is new."""
        if not self._waiting:
            return
        controller, states = self._controller, self._states
        self._look(image)
        if self._controller != controller:
            self._come(CONTROLLER_CHANGE)
        known = [(states[each], now) for each, now in self._states.items() if each in states]
        if any(before[0] != now[0] for before, now in known):
            self._come(IN_SYNC_CHANGE)
        if any(before[1] != now[1] for before, now in known):
            self._come(EPOCH_CHANGE)

    def _look(self, image: ClusterImage) -> None:
        self._controller = image.controller
        self._states = {
            TopicPartition(topic.name, number): (state.in_sync_replicas, state.leader_epoch)
            for topic in image.topics.values()
            for number, state in topic.partitions.items()
        }

    def _come(self, moment: str) -> None:
        # Not at once: the observer runs in the middle of the event that it observes.
        for each in [each for each in self._waiting if each.moment == moment]:
            self._world.schedule.after(0, partial(self._strike, each))

    def _strike(self, waiting: _Waiting) -> None:
        if waiting in self._waiting:
            self._waiting.remove(waiting)
            waiting.action()
