"""What is broken at this moment, and how it comes right again.

Theory: every fault is a *hold* on something (a link, a store session, the speed of a disk) with a
count, so that two faults that overlap end only when both are over. The end of a fault is planned
when it begins. `end_all` ends everything at once, which is the beginning of the liveness phase.

A broker whose process has ended is started again after a while, whatever ended it: as a supervisor
does. A fault says beforehand how long that takes. This file knows no verb.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Final, TypeAlias

from strandline.cluster.image import ClusterImage
from strandline.cluster.store import Changes
from strandline.sim.faults.budget import Budget
from strandline.sim.faults.moments import Moments
from strandline.sim.machine import Machine
from strandline.sim.observer import Ending
from strandline.sim.plan import Action
from strandline.sim.silent import Silent
from strandline.sim.world import World
from strandline.types import BrokerId

RESTART_US: Final = 500_000
"""After how long a process is started again if no fault says otherwise."""

Key: TypeAlias = tuple[str | int, ...]


class Skipped(Exception):
    """An action that makes no sense, or would break too much, at the moment of its turn."""


def _ignore(broker_id: BrokerId) -> None:
    """The callback for losses if the caller needs none."""


def _nobody(action: Action) -> None:
    """There are no administrators."""


class Scene(Silent):
    """The faults of one run, as an observer of its world."""

    def __init__(self, world: World, client_names: Sequence[str] = ()) -> None:
        self.world = world
        self.client_names = tuple(client_names)
        self.budget = Budget(world)
        self.moments = Moments(world)
        self.is_over = False
        """Whether all faults have ended for good."""
        self.done: Counter[str] = Counter()
        """How often each verb was carried out."""
        self.on_loss: Callable[[BrokerId], None] = _ignore
        """Told when a disk has lost something without the end of a process."""
        self.perform: Callable[[Action], object] = _nobody
        """Has an operation of an administrator begun."""
        self.to_repair: dict[BrokerId, bool] = {}
        """Brokers that wait for a repair, and whether that is a new disk; the longest first."""
        self._holds: Counter[Key] = Counter()
        self._undo: dict[Key, Callable[[], None]] = {}
        self._down_us: dict[BrokerId, int] = {}
        self._before_start: dict[BrokerId, list[Callable[[Machine], None]]] = {}
        world.observers.append(self)
        world.observers.append(self.moments)

    # -- time --------------------------------------------------------------------------------

    def later(self, delay_us: int, action: Callable[[], None]) -> None:
        """Do something after a while, unless all is over by then."""

        def act() -> None:
            if not self.is_over:
                action()

        self.world.schedule.after(delay_us, act)

    def random(self, action: Action) -> Random:
        """What an action draws from: its own stream, so that others can be dropped."""
        return self.world.streams(f"action {action}")

    # -- holds -------------------------------------------------------------------------------

    def hold(
        self, key: Key, apply: Callable[[], None], undo: Callable[[], None], for_us: int
    ) -> None:
        """Break something for a time; it is whole again when the last fault that broke it ends."""
        self._holds[key] += 1
        if self._holds[key] == 1:
            self._undo[key] = undo
            apply()
        self.later(for_us, lambda: self._release(key))

    def is_held(self, key: Key) -> bool:
        """Whether that is broken now."""
        return self._holds[key] > 0

    def _release(self, key: Key) -> None:
        self._holds[key] -= 1
        if self._holds[key] == 0:
            self._undo.pop(key)()

    # -- processes ---------------------------------------------------------------------------

    def expect_end(
        self,
        machine: Machine,
        down_us: int,
        before_start: Callable[[Machine], None] | None = None,
    ) -> None:
        """The process will end soon; start the next one after `down_us`, something done before."""
        self._down_us[machine.broker_id] = down_us
        if before_start is not None:
            self._before_start.setdefault(machine.broker_id, []).append(before_start)

    def ended(self, machine: Machine, how: Ending, *, lossy: bool) -> None:
        """A process is over: start the next one after a while."""
        self.budget.ended(machine, how, lossy=lossy)
        if how == "failed":
            return  # the machine tries again by itself
        down_us = RESTART_US if self.is_over else self._down_us.pop(machine.broker_id, RESTART_US)
        self.world.schedule.after(down_us, lambda: self._start(machine))

    def started(self, machine: Machine) -> None:
        """The budget follows how clean starts are."""
        self.budget.started(machine)

    def metadata_changed(self, changes: Changes, image: ClusterImage) -> None:  # noqa: ARG002
        """The budget follows the states of partitions and the settings of topics."""
        self.budget.metadata_changed(image)

    def lost_power(self, machine: Machine, *, lossy: bool) -> None:
        """A machine without a process lost its power, and perhaps what the last one left behind."""
        if lossy:
            self.on_loss(machine.broker_id)
        self.ended(machine, "power", lossy=lossy)

    def _start(self, machine: Machine) -> None:
        if machine.is_running:
            return
        before = self._before_start.pop(machine.broker_id, [])
        for action in () if self.is_over else before:
            action(machine)
        machine.start()

    # -- repairs -----------------------------------------------------------------------------

    def repair(
        self, machine: Machine, down_us: int, *, after_us: int = 0, new_disk: bool = False
    ) -> None:
        """A broker has to be started anew, perhaps with an empty disk, as soon as that may be."""
        self.to_repair[machine.broker_id] = new_disk or self.to_repair.get(machine.broker_id, False)
        self.later(after_us, lambda: self._maybe_repair(machine, down_us))

    def may_repair(self, machine: Machine) -> bool:
        """Whether the budget allows what a broker's repair costs."""
        if self.to_repair.get(machine.broker_id, False):
            return self.budget.may_lose(machine)
        return self.budget.may_crash(machine)

    def carry_out_repair(self, machine: Machine, down_us: int) -> None:
        """Start a broker anew."""
        if self.to_repair.pop(machine.broker_id):
            self.swap_disk(machine, down_us)
        elif machine.is_running:
            self.expect_end(machine, down_us)
            machine.kill()

    def _maybe_repair(self, machine: Machine, down_us: int) -> None:
        if machine.broker_id not in self.to_repair:
            return
        if self.may_repair(machine):
            self.carry_out_repair(machine, down_us)
        else:
            self.later(RESTART_US, lambda: self._maybe_repair(machine, down_us))

    def swap_disk(self, machine: Machine, down_us: int) -> None:
        """Put empty disks into a machine; that cuts its power."""
        self.to_repair.pop(machine.broker_id, None)
        self.expect_end(machine, down_us)
        was_running = machine.is_running
        self.world.note(f"new disk in {machine.broker_id}")
        machine.swap_disk()
        self.budget.new_disk(machine)
        if not was_running:
            self.lost_power(machine, lossy=True)

    # -- the end -----------------------------------------------------------------------------

    def end_all(self) -> None:
        """End every fault, and have every broker running."""
        self.is_over = True
        self.moments.forget()
        for undo in list(self._undo.values()):
            undo()
        self._undo.clear()
        self._holds.clear()
        self._before_start.clear()
        self.world.network.heal()
        self.world.store.heal_all()
        for machine in self.world.machines.values():
            machine.disarm()
            machine.disk.heal()
            if machine.is_paused:
                machine.resume()
            self._start(machine)
