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

from collections.abc import Callable

from strandline.replication.in_sync import Committed, Expanding, Shrinking
from strandline.sim.scenarios.replica import Replica, name_of, names_of
from strandline.sim.scenarios.script import Step
from strandline.sim.scenarios.words import gather, show, spread
from strandline.sim.scenarios.world import World


def check_expectation(world: World, step: Step) -> None:
    """Raise `AssertionError` with what was found instead."""
    subject = step.words[0] if step.words else ""
    if subject in _CLAIMS:
        _CLAIMS[subject](world, step.words[1:])
        return
    found = _state_facts(world) if subject == "controller" else _facts(world.replicas[subject])
    for name, wanted in step.options.items():
        assert name in found, f"{subject} has no {name}"
        assert found[name] == wanted, f"{subject} has {name}={found[name]}, not {wanted}"


def _logs_equal(world: World, names: tuple[str, ...]) -> None:
    first, *others = (world.replicas[name] for name in names)
    for other in others:
        assert first.batch_bytes() == other.batch_bytes(), f"{show(first)} | {show(other)}"
        assert first.written_epochs() == other.written_epochs(), f"{show(first)} | {show(other)}"


def _diverged(world: World, names: tuple[str, ...]) -> None:
    one, other = (
        {entry.offset: entry for entry in world.replicas[name].entries()} for name in names
    )
    differing = [offset for offset in one.keys() & other.keys() if one[offset] != other[offset]]
    assert differing, "the logs agree where both have records"


def _leader_values(world: World) -> set[str]:
    assert world.state.leader is not None, "there is no leader"
    return {entry.value for entry in world.replicas[world.state.leader].entries()}


def _lost(world: World, values: tuple[str, ...]) -> None:
    for value in (v for word in values for v in spread(word)):
        assert value in world.oracle.ever, f"{value} was never committed"
        assert value not in _leader_values(world), f"the leader has {value}"


def _kept(world: World, values: tuple[str, ...]) -> None:
    for value in (v for word in values for v in spread(word)):
        assert value in world.oracle.ever, f"{value} was never committed"
        assert value in _leader_values(world), f"the leader does not have {value}"


def _acked(world: World, values: tuple[str, ...]) -> None:
    for value, _, offset in (word.partition("@") for word in values):
        for name in spread(value):
            outcome = world.outcomes[name]
            assert outcome.startswith("@"), f"{name}: {outcome}"
            assert not offset or outcome == f"@{offset}", f"{name}: {outcome}"


def _waiting(world: World, values: tuple[str, ...]) -> None:
    for value in values:
        assert world.outcomes[value] == "waiting", f"{value}: {world.outcomes[value]}"


def _failed(world: World, words: tuple[str, ...]) -> None:
    value, code = words
    assert world.outcomes[value] == code, f"{value}: {world.outcomes[value]}"


def _low_watermark(world: World, words: tuple[str, ...]) -> None:
    name, offset = words
    found = world.low_watermark(name)
    assert found == int(offset), f"the low watermark is {found}"


_CLAIMS: dict[str, Callable[[World, tuple[str, ...]], None]] = {
    "logs-equal": _logs_equal,
    "diverged": _diverged,
    "lost": _lost,
    "kept": _kept,
    "acked": _acked,
    "waiting": _waiting,
    "failed": _failed,
    "low-watermark": _low_watermark,
}


def _facts(replica: Replica) -> dict[str, str]:
    if not replica.is_running:
        return {"role": "down", "checkpoint": replica.checkpointed()}
    log, leader = replica.log, replica.leader
    facts = {
        "role": "leader" if leader else "follower" if replica.leader_name else "none",
        "leo": str(log.log_end_offset),
        "hw": str(log.high_watermark),
        "start": str(log.log_start_offset),
        "checkpoint": replica.checkpointed(),
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
        "sync": "".join(state.in_sync),
        "eligible": "".join(state.eligible),
        "replicas": "".join(state.replicas),
    }
