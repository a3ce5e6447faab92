"""One run: a plan goes in, a verdict comes out, and nothing else has any influence.

    verdict = run(draw_plan(42))

A cluster that is broken is described by the verdict and never raises; what raises is a mistake of
the simulator itself, as `HarnessError` with the seed in it. No clock is read here: how long a run
took is for the caller to measure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack

from strandline.errors import StrandlineError
from strandline.sim.bugs import quiet
from strandline.sim.checkers import Checkers
from strandline.sim.mutants import mutated
from strandline.sim.observer import Observer
from strandline.sim.phases import Course
from strandline.sim.plan import Action, Plan
from strandline.sim.scenarios.script import BadScript
from strandline.sim.sometimes import Sometimes
from strandline.sim.verdict import Verdict, replica_rows
from strandline.sim.world import World


class HarnessError(StrandlineError):
    """The simulator itself failed; the seed and the cause are named."""


def run(
    plan: Plan,
    *,
    without: str | None = None,
    observers: Sequence[Observer] = (),
    on_expect: Callable[[World, Action], None] | None = None,
    on_note: Callable[[int, str], None] | None = None,
    on_phase: Callable[[str, int], None] | None = None,
) -> Verdict:
    """Run a plan. `without` switches a rule of the core off (see `mutants`)."""
    with ExitStack() as stack:
        stack.enter_context(quiet())
        if without is not None:
            stack.enter_context(mutated(without))
        try:
            return _run(plan, observers, on_expect, on_note, on_phase)
        except BadScript:
            raise
        except Exception as error:
            seed = plan.options.seed
            raise HarnessError(f"The simulator failed at seed {seed}: {error!r}") from error


def _run(
    plan: Plan,
    observers: Sequence[Observer],
    on_expect: Callable[[World, Action], None] | None,
    on_note: Callable[[int, str], None] | None,
    on_phase: Callable[[str, int], None] | None,
) -> Verdict:
    world = World(plan.options)
    world.on_note = on_note
    checkers = Checkers(world, allows_loss=lambda: course.scene.budget.is_exceeded)
    sometimes = Sometimes(world)
    world.observers += [checkers, sometimes, *observers]
    course = Course(plan, world, checkers, told=on_phase)
    expect = None if on_expect is None else lambda action: on_expect(world, action)
    try:
        course.run(expect)
        violations = sorted((*checkers.violations, *course.violations), key=lambda each: each.at_us)
        return Verdict(
            plan=plan,
            violations=tuple(violations),
            counters=sometimes.counters(course.crew, course.scene, checkers),
            trace_hash=world.trace_hash,
            events=world.schedule.events,
            simulated_us=world.schedule.now_us,
            replicas=replica_rows(world),
            notes=tuple(world.notes),
            phases=tuple(course.phases),
        )
    finally:
        world.close()
