"""Plays a scenario of replicas: each line to the world, and a trace of what came of it.

The trace is the explanation. It has the script's own lines; under each of them what happened, and
then one line per replica (see `words`). Lines whose condition does not hold are not there. The
verbs stand in `verbs`, the expectations in `expectations`; this file knows the header and in which
order things are asked.

A run ends with a verdict: which invariants were broken, and whether the script says so. A script of
a rule that was given up breaks some; it goes well if it breaks just those.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from strandline.errors import StrandlineError
from strandline.sim.scenarios.expectations import Unmet, check_expectation
from strandline.sim.scenarios.policy import (
    Policy,
    check_conditions,
    choose,
    policies_of,
    rules_of,
)
from strandline.sim.scenarios.script import BadScript, Script, Step, holds, parse_int, parse_ms
from strandline.sim.scenarios.verbs import carry_out
from strandline.sim.scenarios.words import merge, show
from strandline.sim.scenarios.world import World

HEADER: Final = (
    "title",
    "group",
    "alias",
    "world",
    "replicas",
    "spare",
    "in-sync",
    "min-in-sync",
    "lag-max",
    "segment-bytes",
    "topic",
    "policy",
    "violates",
)

TOPIC_SETTINGS: Final = (
    "cleanup.policy",
    "delete.retention.ms",
    "min.cleanable.dirty.ratio",
    "retention.bytes",
    "retention.ms",
    "segment.ms",
)
"""What `topic` in the header can set; `segment-bytes` and `min-in-sync` are names of their own."""

TITLE: Final = "title"
COMMENT: Final = "comment"
STEP: Final = "step"
EVENT: Final = "event"
VIOLATION: Final = "violation"
STATE: Final = "state"
UNMET: Final = "unmet"


class Unexpected(StrandlineError):
    """A scenario did not go as it says; carries the trace so far."""


@dataclass(frozen=True, slots=True)
class TraceLine:
    """One line of the trace, and what kind of line it is."""

    kind: str
    text: str
    number: int = 0
    """Of a step: where it stands in the script."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a scenario ended."""

    policy: Policy
    broken: Mapping[str, str]
    """What was first seen of each invariant that was broken, by its number."""
    expected: frozenset[str]
    """The invariants that the script says are broken."""
    unmet: tuple[str, ...]
    """Expectations that were not met, each with its line."""

    @property
    def is_as_expected(self) -> bool:
        """Whether everything went as the script says."""
        return not self.unmet and set(self.broken) == self.expected


def play(script: Script, policy: Policy | None = None) -> str:
    """The trace of the scenario. Raises `Unexpected` where it does not go as it says."""
    player = Player(script, policy or {})
    lines: list[str] = []
    for line in player.lines():
        lines.append(line.text)
        if line.kind == UNMET:
            break
    trace = "\n".join(lines) + "\n"
    outcome = player.outcome
    if outcome.unmet:
        raise Unexpected(f"{outcome.unmet[0]}\n{trace}")
    if not outcome.is_as_expected:
        raise Unexpected(
            f"{script.name} breaks {dict(outcome.broken) or 'nothing'}, but says "
            f"{sorted(outcome.expected) or 'nothing'}.\n{trace}"
        )
    return trace


class Player:
    """One scenario being played under one policy. Raises `BadScript` for what it cannot be."""

    def __init__(self, script: Script, policy: Policy) -> None:
        self._script = script
        self._policy = choose(script, policy)
        self._unmet: list[str] = []
        self.world = make_world(script, self._policy)

    def lines(self) -> Iterator[TraceLine]:
        """Play it to its end; each line of the trace as it comes to be."""
        yield from self.begin()
        for step in self._script.steps:
            yield from self.play_step(step)

    def begin(self) -> Iterator[TraceLine]:
        """What is there before the first step."""
        yield TraceLine(TITLE, f"# {self._script.title}")
        yield from self._states()

    def play_step(self, step: Step) -> Iterator[TraceLine]:
        """Play one step more; a person's next one may be no part of the script yet."""
        try:
            check_conditions(step.when)
            if holds(step.when, self._policy):
                yield from self._play(step)
        except BadScript as error:
            raise BadScript(f"{self._script.where(step.line)}: {error}") from error

    @property
    def outcome(self) -> Outcome:
        """How it has gone so far."""
        return Outcome(
            self._policy,
            self.world.violations,
            self._script.violates_under(self._policy),
            tuple(self._unmet),
        )

    def _play(self, step: Step) -> Iterator[TraceLine]:
        if not step.verb:
            yield TraceLine(COMMENT, step.text)
            return
        yield TraceLine(STEP, step.text, step.line)
        if step.verb == "expect":
            try:
                check_expectation(self.world, step)
            except Unmet as error:
                self._unmet.append(f"{self._script.where(step.line)}: {error}")
                yield TraceLine(UNMET, f"    ! not met: {error}")
            return
        carry_out(self.world, step)
        self.world.end_step()
        for event in merge(self.world.events):
            yield TraceLine(VIOLATION if event.startswith("!") else EVENT, f"    > {event}")
        self.world.events.clear()
        yield from self._states()

    def _states(self) -> Iterator[TraceLine]:
        for replica in self.world.replicas.values():
            yield TraceLine(STATE, f"    {show(replica)}".rstrip())


def make_world(script: Script, policy: Policy) -> World:
    """The world that a script's header describes, under a policy with a value for each rule."""
    for entry in script.entries:
        if entry.name not in HEADER:
            raise BadScript(f"{script.where(entry.line)}: The header has no '{entry.name}'.")
    header = script.header
    for needed in ("title", "replicas"):
        if not header.get(needed):
            raise BadScript(f"{script.name} has no {needed}.")
    assigned, spare = _letters(script, "replicas"), _letters(script, "spare")
    in_sync = _letters(script, "in-sync")
    if len({*assigned, *spare}) < len(assigned + spare):
        raise BadScript(f"{script.name} names a replica twice.")
    if in_sync and (assigned[0] not in in_sync or not set(in_sync) <= set(assigned)):
        raise BadScript(f"In {script.name} '{in_sync}' cannot be in sync: {assigned[0]} leads.")
    try:
        return World(
            assigned,
            spare=spare,
            in_sync=in_sync,
            policies=policies_of(policy),
            rules=rules_of(policy, min_in_sync=parse_int(header.get("min-in-sync", "1"))),
            lag_max_ms=parse_ms(header.get("lag-max", "30s")),
            settings=_settings(header),
        )
    except BadScript as error:
        raise BadScript(f"The header of {script.name}: {error}") from error


def _settings(header: Mapping[str, str]) -> dict[str, str]:
    """The topic's settings. Brokers would ignore all of them for one that is not allowed.

    Segments of a few records are below the least `segment.bytes`; the other name is for tests.
    """
    found = {"internal.segment.bytes": str(parse_int(header.get("segment-bytes", str(1 << 20))))}
    for word in header.get("topic", "").split():
        name, _, value = word.partition("=")
        if name not in TOPIC_SETTINGS or not value:
            known = ", ".join(TOPIC_SETTINGS)
            raise BadScript(f"'{word}' is no setting of a scenario's topic; there are {known}.")
        found[name] = value
    return found


def _letters(script: Script, name: str) -> str:
    letters = script.header.get(name, "").replace(" ", "")
    if not all("A" <= letter <= "Z" for letter in letters):
        raise BadScript(f"{script.name}: Replicas are named A to Z, not '{letters}'.")
    return letters
