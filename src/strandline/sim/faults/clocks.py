"""Faults of clocks. They are right again when the fault is over."""

from __future__ import annotations

from typing import Final

from strandline.sim.faults.scene import Scene
from strandline.sim.faults.targets import some
from strandline.sim.faults.verb import Verb
from strandline.sim.machine import Machine
from strandline.sim.plan import Action

_FOR_US: Final = 3_000_000


def clock_jump(scene: Scene, action: Action) -> None:
    """The wall clock is set forward or back, and set right after `for`."""
    ms = (action.time_us("forward", 0) - action.time_us("back", 0)) // 1000
    for machine in some(scene, action.word(0)):
        machine.clock.jump_wall(ms)

        def undo(machine: Machine = machine) -> None:
            machine.clock.jump_wall(-ms)

        # Each jump is a fault of its own: two of them add up.
        scene.hold(
            ("jump", machine.broker_id, str(action)),
            _nothing,
            undo,
            action.time_us("for", _FOR_US),
        )


def clock_leap(scene: Scene, action: Action) -> None:
    """A leap second: the same second is shown twice."""
    for machine in some(scene, action.word(0)):
        machine.clock.leap()


def clock_drift(scene: Scene, action: Action) -> None:
    """The clocks run too fast or too slow."""
    ppm = action.number("fast", 0) - action.number("slow", 0)
    for machine in some(scene, action.word(0)):
        clock, usual = machine.clock, scene.drift_of(machine)
        scene.hold(
            ("drift", machine.broker_id),
            lambda clock=clock: clock.drift(ppm),  # type: ignore[misc]
            lambda clock=clock, usual=usual: clock.drift(usual),  # type: ignore[misc]
            action.time_us("for", _FOR_US),
        )


def _nothing() -> None:
    """The fault has begun before it was held."""


VERBS: Final = (
    Verb("clock-jump", clock_jump, ("F-56", "F-57"), "BROKERS forward=|back= [for=]"),
    Verb("clock-leap", clock_leap, ("F-58",), "BROKERS"),
    Verb("clock-drift", clock_drift, ("F-58",), "BROKERS fast=PPM|slow=PPM [for=]"),
)
