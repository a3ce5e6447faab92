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

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from strandline.sim.checkers.invariants import INVARIANTS
from strandline.sim.faults.nemesis import check
from strandline.sim.faults.targets import partition
from strandline.sim.plan import Action
from strandline.sim.scenarios.script import BadScript, Step, parse_int
from strandline.sim.sometimes import STATES
from strandline.sim.text import EXPECT, PlanScript
from strandline.sim.verdict import Verdict
from strandline.sim.world import World
from strandline.types import TopicPartition

REACHED: Final = "reached"
VIOLATION: Final = "violation"


class Expectations:
    """Looks at one run; `unmet` says where it did not go as the plan says."""

    def __init__(self, script: PlanScript) -> None:
        """Raises `BadScript`, with its line, for an unknown verb or an unknown name of a state."""
        self._script = script
        self.unmet: list[str] = []
        for action, line in zip(script.plan.actions, script.lines, strict=True):
            self._at(line, lambda action=action: _check_action(action))  # type: ignore[misc]
        for step in script.at_the_end:
            self._at(step.line, lambda step=step: _check_end(step))  # type: ignore[misc]

    @property
    def violates(self) -> frozenset[str]:
        """The invariants that must be broken; no other may be."""
        ends = self._script.at_the_end
        return self._script.violates | {s.words[1] for s in ends if s.words[0] == VIOLATION}

    def at_its_time(self, world: World, action: Action) -> None:
        """What `run` calls for actions of that name."""
        actions = zip(self._script.plan.actions, self._script.lines, strict=True)
        line = next(line for each, line in actions if each is action)
        self._look(line, world, action.words[0], action.options)

    def at_the_end(self, world: World) -> None:
        """What `run` calls at the end."""
        for step in self._script.at_the_end:
            if step.words[0] not in (REACHED, VIOLATION):
                self._look(step.line, world, step.words[0], step.options)

    def judge(self, verdict: Verdict) -> bool:
        """Whether everything went as the plan says; to be asked once, with the run's verdict."""
        for step in self._script.at_the_end:
            state = " ".join(step.words[1:])
            if step.words[0] == REACHED and not verdict.counters.get(state):
                self.unmet.append(f"{self._where(step.line)}: '{state}' was never reached")
        broken = {violation.invariant for violation in verdict.violations}
        return not self.unmet and broken == self.violates

    def _look(self, line: int, world: World, subject: str, wanted: Mapping[str, str]) -> None:
        def look() -> None:
            found = differences(world, subject, wanted)
            self.unmet.extend(f"{self._where(line)}: {each}" for each in found)

        self._at(line, look)

    def _at(self, line: int, look: Callable[[], None]) -> None:
        try:
            look()
        except BadScript as error:
            raise BadScript(f"{self._where(line)}: {error}") from error

    def _where(self, line: int) -> str:
        return f"{self._script.name}, line {line}"


def _check_action(action: Action) -> None:
    check(action)
    if action.verb == EXPECT:
        _check_look(action.words, action.options)


def _check_end(step: Step) -> None:
    first, *rest = step.words or ("",)
    if first == REACHED:
        if " ".join(rest) not in STATES:
            raise BadScript(f"No state is called '{' '.join(rest)}'.")
    elif first == VIOLATION:
        if len(rest) != 1 or rest[0] not in INVARIANTS:
            raise BadScript("'expect violation' is followed by an invariant such as I-14.")
    else:
        _check_look(step.words, step.options)


def _check_look(words: tuple[str, ...], options: Mapping[str, str]) -> None:
    if len(words) != 1 or not options:
        raise BadScript("'expect' is followed by cluster, t-0 or t-0@1, and by what it has.")
    subject, at, broker = words[0].partition("@")
    names: tuple[str, ...] = _OF_CLUSTER
    if subject != "cluster":
        partition(subject)
        names = _OF_REPLICA if at else _OF_PARTITION
    if at:
        parse_int(broker)
    for name in options:
        if name not in names:
            raise BadScript(f"{words[0]} can have {', '.join(names)}, not '{name}'.")


def differences(world: World, subject: str, wanted: Mapping[str, str]) -> list[str]:
    """What is otherwise than expected, in words."""
    facts = _facts(world, subject)
    return [
        f"{subject} has {name}={facts[name]}, not {value}"
        for name, value in wanted.items()
        if facts[name] != value
    ]


_OF_CLUSTER: Final = ("controller", "brokers")
_OF_PARTITION: Final = ("leader", "epoch", "isr", "replicas")
_OF_REPLICA: Final = ("role", "epoch", "start", "hw", "leo", "lso")


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
        return dict.fromkeys(_OF_PARTITION, "none")
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
        return dict.fromkeys(_OF_REPLICA, "none") | {"role": "down"}
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
