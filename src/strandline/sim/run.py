"""One run: a plan goes in, a verdict comes out, and nothing else has any influence.

    verdict = run(draw_plan(42))

A cluster that is broken is described by the verdict and never raises; what raises is a mistake of
the simulator itself, as `HarnessError` with the seed in it. No clock is read here: how long a run
took is for the caller to measure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from strandline.errors import StrandlineError
from strandline.sim.bugs import quiet
from strandline.sim.knobs import turned
from strandline.sim.machine import Machine
from strandline.sim.observer import Observer
from strandline.sim.phases import Course
from strandline.sim.plan import Action, Plan
from strandline.sim.scenarios.script import BadScript
from strandline.sim.sometimes import Sometimes
from strandline.sim.verdict import Verdict, replica_rows
from strandline.sim.world import World
from strandline.storage.memory_files import ProcessEnded, UsedAfterEnd


class HarnessError(StrandlineError):
    """The simulator itself failed; the seed and the cause are named."""


def run(
    plan: Plan,
    *,
    observers: Sequence[Observer[Machine]] = (),
    on_expect: Callable[[World, Action], None] | None = None,
    on_note: Callable[[int, str], None] | None = None,
    on_phase: Callable[[str, int], None] | None = None,
    on_end: Callable[[World], None] | None = None,
    is_checked: bool = True,
    stop_at_violation: bool = False,
) -> Verdict:
    """Run a plan.

    `on_expect` is called for actions of the plan whose verb is `expect`, `on_note` and `on_phase`
    with what happens and when, `on_end` once before the world is gone. Without `is_checked` no
    invariant is checked, which changes nothing else. `stop_at_violation` ends the run soon after
    the first violation.
    """
    hooks = _Hooks(observers, on_expect, on_note, on_phase, on_end)
    with turned(plan.options.knobs), quiet():
        try:
            return _run(plan, hooks, is_checked=is_checked, stops=stop_at_violation)
        except BadScript:
            raise
        except (Exception, ProcessEnded, UsedAfterEnd) as error:
            seed = plan.options.seed
            raise HarnessError(f"The simulator failed at seed {seed}: {error!r}") from error


class _Hooks(NamedTuple):
    observers: Sequence[Observer[Machine]]
    on_expect: Callable[[World, Action], None] | None
    on_note: Callable[[int, str], None] | None
    on_phase: Callable[[str, int], None] | None
    on_end: Callable[[World], None] | None


def _run(plan: Plan, hooks: _Hooks, *, is_checked: bool, stops: bool) -> Verdict:
    world = World(plan.options)
    try:
        world.on_note = hooks.on_note
        course = Course(
            plan, world, told=hooks.on_phase, is_checked=is_checked, stops_at_violation=stops
        )
        sometimes = Sometimes(world)
        world.observers += [sometimes, *hooks.observers]
        on_expect = hooks.on_expect
        course.run(None if on_expect is None else lambda action: on_expect(world, action))
        if hooks.on_end is not None:
            hooks.on_end(world)
        return Verdict(
            plan=plan,
            violations=tuple(course.violations),
            counters=sometimes.counters(course.workload, course.scene, course.checkers),
            trace_hash=world.trace_hash,
            events=world.schedule.events,
            simulated_us=world.schedule.now_us,
            replicas=replica_rows(world),
            notes=tuple(world.notes),
            phases=tuple(course.phases),
        )
    finally:
        world.close()
