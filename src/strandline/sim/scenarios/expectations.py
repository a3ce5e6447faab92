"""What a scenario can expect: facts about a replica or the controller, and claims by name.

    expect A leo=2 hw=1 start=0 lso=1 log=m0,m1 epochs=0:0 role=leader epoch=0 checkpoint=1
    expect A sync=AB proposed=ABC change=expanding leso=0 rem.B=1      of a leader only
    expect controller leader=A epoch=0 version=0 sync=AB eligible=C replicas=ABC
    expect logs-equal A B           the same batches, byte by byte, and the same epochs
    expect diverged A B             different records at one offset
    expect lost m1                  committed once, and not in the leader's log
    expect kept m1                  committed once, and in the leader's log
    expect acked m0@0 m1            answered with success, at that offset
    expect waiting m2               not answered yet
    expect failed m3 CODE           answered with that error; `marker` stands for the last marker
    expect low-watermark A 3

This file knows how to look; it changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from strandline.replication.in_sync import Committed, Expanding, Shrinking
from strandline.sim.scenarios.replica import Entry, Replica, name_of, names_of
from strandline.sim.scenarios.script import BadScript, Step, parse_int
from strandline.sim.scenarios.verbs import leading, replica_of
from strandline.sim.scenarios.words import gather, show, spread
from strandline.sim.scenarios.world import World


class Unmet(Exception):
    """Something else was found than a script expects."""


def check_expectation(world: World, step: Step) -> None:
    """Raise `Unmet` with what was found instead, `BadScript` if nothing can be meant."""
    subject = step.words[0] if step.words else ""
    if subject in _CLAIMS:
        least, claim = _CLAIMS[subject]
        if len(step.words) <= least:
            raise BadScript(f"'expect {subject}' has too few words.")
        claim(world, step.words[1:])
        return
    if not step.options:
        raise BadScript(f"'{step.text}' expects nothing.")
    is_controller = subject == "controller"
    found = _state_facts(world) if is_controller else _facts(replica_of(world, subject))
    for name, wanted in step.options.items():
        if name not in found:
            raise Unmet(f"{subject} has no {name}")
        if found[name] != wanted:
            raise Unmet(f"{subject} has {name}={found[name]}, not {wanted}")


def _logs_equal(world: World, names: tuple[str, ...]) -> None:
    first, *others = (_with_log(world, name) for name in names)
    for other in others:
        is_equal = first.batch_bytes() == other.batch_bytes()
        if not is_equal or first.written_epochs() != other.written_epochs():
            raise Unmet(f"{show(first)} | {show(other)}")


def _diverged(world: World, names: tuple[str, ...]) -> None:
    one, other = (_by_offset(_with_log(world, name)) for name in names[:2])
    if all(one[offset] == other[offset] for offset in one.keys() & other.keys()):
        raise Unmet("the logs agree where both have records")


def _with_log(world: World, name: str) -> Replica:
    replica = replica_of(world, name)
    if not replica.has_log:
        raise Unmet(f"{name} is down" if not replica.is_running else f"{name} has no replica")
    return replica


def _by_offset(replica: Replica) -> dict[int, Entry]:
    return {entry.offset: entry for entry in replica.entries()}


def _leader_values(world: World) -> set[str]:
    if world.state.leader is None:
        raise Unmet("there is no leader")
    return {entry.value for entry in _with_log(world, world.state.leader).entries()}


def _lost(world: World, values: tuple[str, ...]) -> None:
    for value in _committed(world, values):
        if value in _leader_values(world):
            raise Unmet(f"the leader has {value}")


def _kept(world: World, values: tuple[str, ...]) -> None:
    for value in _committed(world, values):
        if value not in _leader_values(world):
            raise Unmet(f"the leader does not have {value}")


def _committed(world: World, words: tuple[str, ...]) -> Iterator[str]:
    for value in (value for word in words for value in spread(word)):
        if value not in world.committed:
            raise Unmet(f"{value} was never committed")
        yield value


def _outcome(world: World, value: str) -> str:
    if value not in world.outcomes:
        raise Unmet(f"{value} was never sent")
    return world.outcomes[value]


def _acked(world: World, values: tuple[str, ...]) -> None:
    for value, _, offset in (word.partition("@") for word in values):
        for name in spread(value):
            outcome = _outcome(world, name)
            if not outcome.startswith("@") or (offset and outcome != f"@{offset}"):
                raise Unmet(f"{name}: {outcome}")


def _waiting(world: World, values: tuple[str, ...]) -> None:
    for value in values:
        if _outcome(world, value) != "waiting":
            raise Unmet(f"{value}: {world.outcomes[value]}")


def _failed(world: World, words: tuple[str, ...]) -> None:
    if _outcome(world, words[0]) != words[1]:
        raise Unmet(f"{words[0]}: {world.outcomes[words[0]]}")


def _low_watermark(world: World, words: tuple[str, ...]) -> None:
    found = world.low_watermark(leading(world, words[0]))
    if found != parse_int(words[1]):
        raise Unmet(f"the low watermark is {found}")


_CLAIMS: dict[str, tuple[int, Callable[[World, tuple[str, ...]], None]]] = {
    "logs-equal": (2, _logs_equal),
    "diverged": (2, _diverged),
    "lost": (1, _lost),
    "kept": (1, _kept),
    "acked": (1, _acked),
    "waiting": (1, _waiting),
    "failed": (2, _failed),
    "low-watermark": (2, _low_watermark),
}
"""How many words a claim needs at least, and how it is checked."""


def _facts(replica: Replica) -> dict[str, str]:
    facts = {"role": replica.role, "checkpoint": replica.checkpointed()}
    if not replica.has_log:
        return facts
    log, leader = replica.log, replica.leader
    facts |= {
        "leo": str(log.log_end_offset),
        "hw": str(log.high_watermark),
        "start": str(log.log_start_offset),
        "lso": str(log.last_stable_offset),
        "epoch": str(replica.leader_epoch),
        "log": ",".join(gather([entry.value for entry in replica.entries()])),
        "epochs": ",".join(f"{epoch}:{start}" for epoch, start in log.leader_epochs.entries),
    }
    if leader is not None:
        facts["leso"] = str(leader.start_offset)
        facts["sync"] = names_of(leader.in_sync.members)
        facts["proposed"] = names_of(leader.in_sync.proposed)
        facts["change"] = {Committed: "none", Expanding: "expanding", Shrinking: "shrinking"}[
            type(leader.in_sync)
        ]
        for broker_id, progress in leader.progress.items():
            facts[f"rem.{name_of(broker_id)}"] = str(progress.log_end_offset)
    return facts


def _state_facts(world: World) -> dict[str, str]:
    state = world.state
    return {
        "leader": state.leader or "none",
        "epoch": str(state.leader_epoch),
        "version": str(state.partition_epoch),
        "sync": state.in_sync,
        "eligible": state.eligible,
        "replicas": state.replicas,
    }
