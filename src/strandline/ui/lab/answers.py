"""What the page asks its server, answered inside the browser: scenarios, and scripts as they grow.

    GET  /api/scenarios             the list of those that come along
    GET  /api/scenarios/NAME        one of them, played under each of its rules
    POST /api/scenarios             {"text": script, "until": expectations}: the same of a script,
                                    with answers to "why?", and which expectations are met then

A person's next step is a line more at the end of the script: only that is then played. There is no
server, no thread and no limit of time here: a script that takes too long is the page's to end. This
file knows paths and documents, and no page.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import unquote

from strandline.errors import ProtocolError, StrandlineError
from strandline.node.why.subject import why
from strandline.sim.scenarios.documents import Json, Run, as_document
from strandline.sim.scenarios.expectations import Unmet, check_expectation
from strandline.sim.scenarios.policy import variants
from strandline.sim.scenarios.replica import name_of
from strandline.sim.scenarios.script import REPLICAS, BadScript, Script, parse_script
from strandline.sim.scenarios.world import World
from strandline.types import BrokerId
from strandline.ui.scenario_list import listing, played

NAME: Final = "script"
_NO_CONTROLLER: Final = "no-controller"
_BROKERS: Final = re.compile(r"\bbrokers? (\d+(?:, \d+)*)")
SCENARIOS: Final = "/api/scenarios"


class Answers:
    """See the module. It remembers the last script, played."""

    def __init__(self) -> None:
        self._script: Script | None = None
        self._runs: list[Run] = []

    def answer(self, path: str, body: str | None = None) -> str:
        """JSON for a request; what is refused is `{"error": ...}`, as the page's server says it."""
        try:
            return json.dumps(self._answer(path, body))
        except StrandlineError as error:
            return json.dumps({"error": str(error)})

    def _answer(self, path: str, body: str | None) -> Json:
        if path == SCENARIOS:
            if body is None:
                return {"groups": listing()}
            asked = json.loads(body)
            return self.play(asked["text"], asked.get("until", ()))
        if path.startswith(f"{SCENARIOS}/"):
            return played(unquote(path.removeprefix(f"{SCENARIOS}/")))
        raise BadScript("There is no cluster behind this page.")

    def play(self, text: str, until: Sequence[str] = ()) -> Json:
        """The document of a script. Raises `BadScript` with the line."""
        script = parse_script(NAME, text)
        if script.world != REPLICAS:
            raise BadScript("Scenarios of a whole cluster are played by 'strandline sim play'.")
        before, self._script = self._script, None  # what cannot be played is not gone on with
        if before is not None and _continues(script, before):
            done = len(before.steps)
        else:
            self._runs, done = [Run(script, policy) for policy in variants(script)], 0
        for run in self._runs:
            run.play(script.steps[done:])
        self._script = script
        shown = [{**run.as_json(), "why": reasons(run)} for run in self._runs]
        met = [_is_met(self._runs[0].world, each) for each in until]
        return {**as_document(script, shown), "text": text, "met": met}


def reasons(run: Run) -> Json:
    """What each broker that works says of what is refused or waits, as `/api/why` has it."""
    return {"brokers": {name: _why(run.world, name) for name in _working(run.world)}}


def _is_met(world: World, expectation: str) -> bool:
    (step,) = parse_script(NAME, f"expect {expectation}").steps
    try:
        check_expectation(world, step)
    except Unmet:
        return False
    return True


def _continues(script: Script, before: Script) -> bool:
    is_same = script.entries == before.entries and len(before.steps) <= len(script.steps)
    return is_same and script.steps[: len(before.steps)] == before.steps


def _working(world: World) -> list[str]:
    return [n for n, each in world.replicas.items() if each.is_running and not each.is_paused]


def _why(world: World, name: str) -> Json:
    machine = world.replicas[name].machine
    try:
        told = json.dumps(why(machine.node.parts, {}, machine.now))
    except ProtocolError as error:
        return {"error": str(error)}
    found: Json = json.loads(_BROKERS.sub(_letters, told))
    # The controller of a scenario is none of its brokers.
    found["findings"] = [each for each in found["findings"] if each["rule"] != _NO_CONTROLLER]
    return found


def _letters(brokers: re.Match[str]) -> str:
    """`broker 2, 3` as scenarios call them: B, C."""
    return ", ".join(name_of(BrokerId(int(number))) for number in brokers[1].split(", "))
