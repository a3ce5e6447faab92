"""Faults of clocks. They are right again when the fault is over."""

from __future__ import annotations

from functools import partial
from typing import Final

from strandline.sim.faults.scene import Scene
from strandline.sim.faults.targets import some
from strandline.sim.faults.verb import Verb
from strandline.sim.plan import Action

_FOR_US: Final = 3_000_000


def clock_jump(scene: Scene, action: Action) -> None:
    """The wall clock is set forward or back, and set right after `for`."""
    ms = (action.time_us("forward", 0) - action.time_us("back", 0)) // 1000
    scene.world.clocks_set_ms += abs(ms)
    for machine in some(scene, action.word(0)):
        jump = machine.clock.jump_wall
        # Named by the action: two jumps of one clock add up, and end one by one.
        key = ("jump", machine.broker_id, str(action))
        scene.hold(key, partial(jump, ms), partial(jump, -ms), action.time_us("for", _FOR_US))


def clock_leap(scene: Scene, action: Action) -> None:
    """A leap second: the same second is shown twice."""
    for machine in some(scene, action.word(0)):
        machine.clock.leap()


def clock_drift(scene: Scene, action: Action) -> None:
    """The clocks run too fast or too slow."""
    ppm = action.number("fast", 0) - action.number("slow", 0)
    for machine in some(scene, action.word(0)):
        drift, usual = machine.clock.drift, scene.world.options.drift_ppm(machine.broker_id)
        key = ("drift", machine.broker_id)
        scene.hold(key, partial(drift, ppm), partial(drift, usual), action.time_us("for", _FOR_US))


VERBS: Final = (
    Verb("clock-jump", clock_jump, "BROKERS forward=|back= [for=]"),
    Verb("clock-leap", clock_leap, "BROKERS"),
    Verb("clock-drift", clock_drift, "BROKERS fast=PPM|slow=PPM [for=]"),
)
