"""What a plan can expect of its cluster, at a time or at the end.

    at 9s expect cluster controller=2 brokers=1,2,3
    at 9s expect t-0 leader=2 epoch=1 isr=1,2 replicas=1,2,3      as the metadata has it
    expect t-0@2 role=follower epoch=1 start=0 hw=12 leo=12 lso=12
    expect reached unclean election                               a state that is counted
    expect violation I-14                                         as `violates:` in the header

Without a time it is the very end, when everything has come right. The words are those of scenarios
of replicas. This file knows how to look, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from strandline.sim.faults.nemesis import check
from strandline.sim.faults.targets import partition
from strandline.sim.plan import Action
from strandline.sim.scenarios.script import BadScript, Script, Step, parse_int, parse_us
from strandline.sim.text import PlanScript
from strandline.sim.verdict import Verdict
from strandline.sim.world import World
from strandline.types import TopicPartition

REACHED = "reached"
VIOLATION = "violation"


class Expectations:
    """Looks at one run; `unmet` says where it did not go as the plan says."""

    def __init__(self, script: PlanScript, source: Script) -> None:
        self._script = script
        self._source = source
        self.unmet: list[str] = []

    @property
    def violates(self) -> frozenset[str]:
        """The invariants that must be broken; no other may be."""
        named = {
            step.words[1]
            for step in self._script.at_the_end
            if step.words[:1] == (VIOLATION,) and len(step.words) > 1
        }
        return self._script.violates | named

    def at_its_time(self, world: World, action: Action) -> None:
        """What `run` calls for actions of that name."""
        found = differences(world, action.words, action.options)
        self.unmet.extend(f"{action}: {each}" for each in found)

    def at_the_end(self, world: World) -> None:
        """What `run` calls at the end."""
        for step in self._script.at_the_end:
            if step.words[:1] not in ((REACHED,), (VIOLATION,)):
                try:
                    found = differences(world, step.words, step.options)
                except BadScript as error:
                    raise BadScript(f"{self._source.where(step.line)}: {error}") from error
                self._say(step, found)

    def judge(self, verdict: Verdict) -> bool:
        """Whether everything went as the plan says; to be asked once, with the run's verdict."""
        for step in self._script.at_the_end:
            if step.words[:1] == (REACHED,):
                state = " ".join(step.words[1:])
                if not verdict.counters.get(state):
                    self._say(step, [f"'{state}' was never reached"])
        broken = {violation.invariant for violation in verdict.violations}
        return not self.unmet and broken == self.violates

    def _say(self, step: Step, found: list[str]) -> None:
        self.unmet.extend(f"{self._source.where(step.line)}: {each}" for each in found)


def check_actions(source: Script, script: PlanScript) -> None:
    """Raise `BadScript`, with its line, for the first action that nobody can do."""
    lines = [step for step in source.steps if step.verb == "at"]
    lines.sort(key=lambda step: parse_us(step.words[0]))
    for step, action in zip(lines, script.plan.actions, strict=True):
        try:
            check(action)
        except BadScript as error:
            raise BadScript(f"{source.where(step.line)}: {error}") from error


def differences(world: World, words: tuple[str, ...], options: Mapping[str, str]) -> list[str]:
    """What is otherwise than expected, in words."""
    if len(words) != 1 or not options:
        raise BadScript("'expect' is followed by cluster, t-0 or t-0@1, and by what it has.")
    facts = _facts(world, words[0])
    for name in options:
        if name not in facts:
            raise BadScript(f"{words[0]} can have {', '.join(facts)}, not '{name}'.")
    return [
        f"{words[0]} has {name}={facts[name]}, not {wanted}"
        for name, wanted in options.items()
        if facts[name] != wanted
    ]


def _facts(world: World, subject: str) -> dict[str, str]:
    if subject == "cluster":
        image = world.image
        controller = "none" if image.controller is None else str(image.controller)
        return {"controller": controller, "brokers": _ids(image.brokers)}
    named, at, broker = subject.partition("@")
    if at:
        return _replica_facts(world, parse_int(broker), partition(named))
    return _partition_facts(world, partition(named))


def _partition_facts(world: World, where: TopicPartition) -> dict[str, str]:
    state = world.image.partition(where)
    if state is None:
        return dict.fromkeys(("leader", "epoch", "isr", "replicas"), "none")
    return {
        "leader": str(state.leader) if state.leader in world.machines else "none",
        "epoch": str(state.leader_epoch),
        "isr": _ids(state.in_sync_replicas),
        "replicas": ",".join(map(str, state.replicas)),
    }


def _replica_facts(world: World, broker: int, where: TopicPartition) -> dict[str, str]:
    if broker not in world.machines:
        raise BadScript(f"There is no broker {broker}.")
    replica = world.replica(broker, where)
    if replica is None:
        return {"role": "down"} | dict.fromkeys(("epoch", "start", "hw", "leo", "lso"), "none")
    log = replica.log
    return {
        "role": "follower" if replica.leader is None else "leader",
        "epoch": str(replica.leader_epoch),
        "start": str(log.log_start_offset),
        "hw": str(log.high_watermark),
        "leo": str(log.log_end_offset),
        "lso": str(log.last_stable_offset),
    }


def _ids(brokers: Iterable[int]) -> str:
    return ",".join(map(str, sorted(brokers)))
