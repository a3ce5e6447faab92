"""The nemesis: carries out the actions of a plan, each at its time or at its moment.

This file knows all verbs, and what is common to them: `when=MOMENT [wait=2s]` lets an action wait
for an interesting moment (see `moments`). What cannot be done is noted and skipped: a plan stays a
plan when some of its lines are taken out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from strandline.sim.clients.make import ADMIN_VERBS
from strandline.sim.clients.workload import Workload
from strandline.sim.faults import clocks, disks, elections, links, processes, sessions
from strandline.sim.faults.budget import MIN_IN_SYNC
from strandline.sim.faults.moments import KNOWN_MOMENTS
from strandline.sim.faults.scene import Scene, Skipped
from strandline.sim.faults.verb import Verb
from strandline.sim.plan import Action
from strandline.sim.scenarios.script import BadScript

_WAIT_US: Final = 2_000_000
EXPECT: Final = "expect"
_OPTION: Final = re.compile(r"([a-z-]+)=")
_COMMON: Final = ("when", "wait")
_OF_TOPICS: Final = frozenset({"alter-config", "alter-defaults"})

VERBS: Final[Mapping[str, Verb]] = {
    verb.name: verb
    for family in (processes, elections, links, sessions, disks, clocks)
    for verb in family.VERBS
}
"""All faults by name."""

Expect = Callable[[Action], None]


class Nemesis:
    """Carries out one plan's actions."""

    def __init__(self, scene: Scene, workload: Workload, expect: Expect | None = None) -> None:
        self._scene = scene
        scene.perform = workload.perform
        self._workload = workload
        self._expect = expect

    def plan(self, actions: Iterable[Action]) -> None:
        """Have the actions done at their times, counted from now."""
        for action in actions:
            check(action)
            self._scene.later(action.at_us, partial(self._begin, action))

    def _begin(self, action: Action) -> None:
        moment = action.options.get("when")
        if moment is None:
            self._do(action)
            return
        wait_us = action.time_us("wait", _WAIT_US)
        options = {name: text for name, text in action.options.items() if name not in _COMMON}
        now = replace(action, options=options)
        self._scene.moments.wait(moment, wait_us, partial(self._do, now))

    def _do(self, action: Action) -> None:
        world = self._scene.world
        try:
            self._act(action)
        except Skipped as skipped:
            world.note(f"skipped {action}: {skipped}")
        else:
            self._scene.done[action.verb] += 1

    def _act(self, action: Action) -> None:
        if action.verb == EXPECT:
            if self._expect is not None:
                self._expect(action)
            return
        self._scene.world.note(str(action))
        verb = VERBS.get(action.verb)
        if verb is not None:
            verb.act(self._scene, action)
            return
        self._ask_budget(action)
        if self._workload.perform(action) is None:
            raise Skipped("the client declined")

    def _ask_budget(self, action: Action) -> None:
        """What administrators ask for may cost what the cluster has promised."""
        value = action.options.get(MIN_IN_SYNC)
        if value is None or action.verb not in _OF_TOPICS:
            return
        topic = None if action.verb == "alter-defaults" else action.word(0)
        budget = self._scene.budget
        refusal = budget.refusal_to_set(topic, value)
        if refusal is not None:
            raise Skipped(refusal)
        budget.will_set(topic, value)


def check(action: Action) -> None:
    """Raise `BadScript` if the verb or its arguments are unknown."""
    if action.verb not in VERBS and action.verb not in ADMIN_VERBS and action.verb != EXPECT:
        raise BadScript(f"There is no verb {action.verb}.")
    verb = VERBS.get(action.verb)
    if verb is not None:
        for name in action.options:
            if name not in (*_OPTION.findall(verb.usage), *_COMMON):
                raise BadScript(f"{action.verb} has no option '{name}', only: {verb.usage}")
    if "when" in action.options and action.options["when"] not in KNOWN_MOMENTS:
        raise BadScript(
            f"There is no moment '{action.options['when']}', only {', '.join(KNOWN_MOMENTS)}."
        )
