"""Plays a scenario: verbs to the world, expectations against it, and a trace of every step.

This file knows the verbs of the language and how a state is shown in one line:

    A* 2/1 [m0 m1] epochs{0:0} sync AB rem B=1
    |  | |  |       |           |       `- log end offset of each follower, as the leader knows it
    |  | |  |       |           `- the committed in-sync set, and a change in flight
    |  | |  |       `- leader epochs and where they start
    |  | |  `- records, those from the high watermark on behind a bar
    |  `-`- log end offset / high watermark
    `- a star leads
"""

from __future__ import annotations

import re
from collections.abc import Callable

from strandline.replication.in_sync import Committed, Expanding, Shrinking
from strandline.replication.policies import (
    AnswerWatermark,
    LagPolicy,
    Policies,
    RecordLag,
    TimeLag,
    TruncateBy,
)
from strandline.replication.progress import Progress
from tests.scenarios.controller import Rules
from tests.scenarios.messages import Write
from tests.scenarios.replica import Replica, name_of, names_of
from tests.scenarios.script import BadScript, Script, Step, parse_ms
from tests.scenarios.world import World


class Unexpected(AssertionError):
    """An expectation was not met; carries the trace so far."""


def play(script: Script) -> str:
    """The trace of the scenario. Raises `Unexpected` where it does not go as it says."""
    player = Player(script)
    for step in script.steps:
        player.step(step)
    return player.finish()


class Player:
    """One scenario being played."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._lines: list[str] = [f"# {script.header['title']}"]
        self.world = make_world(script)
        self._show_state()

    def step(self, step: Step) -> None:
        """Carry one line out, and say what came of it."""
        if not step.verb:
            self._lines.append(step.text)
            return
        self._lines.append(step.text)
        if step.verb == "expect":
            try:
                self._expect(step)
            except AssertionError as error:
                raise Unexpected(
                    f"{self._script.name}, line {step.line}: {error}\n" + "\n".join(self._lines)
                ) from None
            return
        try:
            action = _VERBS[step.verb]
        except KeyError:
            raise BadScript(f"{self._script.name}, line {step.line}: {step.verb}?") from None
        action(self.world, step)
        self.world.end_step()
        self._lines.extend(f"    > {event}" for event in _merge(self.world.events))
        self.world.events.clear()
        self._show_state()

    def finish(self) -> str:
        """The whole trace; the invariants that were broken must be those that the header names."""
        broken = self.world.oracle.violations
        trace = "\n".join(self._lines) + "\n"
        if set(broken) != self._script.violates:
            raise Unexpected(
                f"{self._script.name} breaks {broken or 'nothing'}, but says "
                f"{sorted(self._script.violates) or 'nothing'}.\n{trace}"
            )
        return trace

    def _show_state(self) -> None:
        self._lines.extend(f"    {show(r)}".rstrip() for r in self.world.replicas.values())

    # -- Expectations ------------------------------------------------------------------------

    def _expect(self, step: Step) -> None:
        subject = step.words[0] if step.words else ""
        if subject in _CLAIMS:
            _CLAIMS[subject](self.world, step.words[1:])
            return
        if subject == "controller":
            found = _state_facts(self.world)
        else:
            found = _facts(self.world, self.world.replicas[subject])
        for name, wanted in step.options.items():
            assert name in found, f"{subject} has no {name}"
            assert found[name] == wanted, f"{subject} has {name}={found[name]}, not {wanted}"


def make_world(script: Script) -> World:
    """The world that a script's header describes."""
    header, policy = script.header, script.policy
    lag: LagPolicy = TimeLag()
    if "lag-records" in policy:
        lag = RecordLag(int(policy["lag-records"]))
    policies = Policies(
        strict_min_isr=policy.get("strict", "yes") == "yes",
        answer_watermark=AnswerWatermark(policy.get("answer", "post")),
        lag=lag,
        truncate_by=TruncateBy(policy.get("truncate", "leader-epoch")),
        joins_at_epoch_start=policy.get("joins-at", "epoch-start") == "epoch-start",
        counts_joining=policy.get("counts-joining", "yes") == "yes",
    )
    rules = Rules(
        min_in_sync=int(header.get("min-in-sync", "1")),
        has_eligible=policy.get("eligible", "no") == "yes",
        allows_unclean=policy.get("unclean", "no") == "yes",
        writes_directly=policy.get("isr-writes", "controller") == "direct",
    )
    return World(
        header["replicas"].replace(" ", ""),
        spare=header.get("spare", "").replace(" ", ""),
        in_sync=header.get("in-sync", "").replace(" ", ""),
        policies=policies,
        rules=rules,
        lag_max_ms=parse_ms(header.get("lag-max", "30s")),
        segment_bytes=int(header.get("segment-bytes", 1 << 20)),
    )


# -- Verbs -----------------------------------------------------------------------------------


def _write(step: Step) -> Write:
    return Write(
        acks=step.options.get("acks", "all"),
        timeout_ms=step.option_ms("timeout"),
        producer_id=step.option_int("producer", -1),
        producer_epoch=step.option_int("epoch", 0 if "producer" in step.options else -1),
        sequence=step.option_int("seq", -1),
        is_transactional=step.has("transactional"),
        loses_reply=step.has("lose-reply"),
    )


def _produce(world: World, step: Step) -> None:
    flags = ("transactional", "lose-reply")
    values = [value for word in step.words[1:] if word not in flags for value in _spread(word)]
    world.produce(step.words[0], values, _write(step))


def _fetch(world: World, step: Step) -> None:
    modes = [word for word in step.words[1:] if word != "one-batch"]
    world.fetch(step.words[0], mode=modes[0] if modes else "", one_batch=step.has("one-batch"))


def _marker(world: World, step: Step) -> None:
    world.write_marker(
        step.words[0],
        step.words[1],
        _write(step),
        step.option_int("coordinator", 0),
        step.option_int("version", 0),
    )


def _cut_power(world: World, step: Step) -> None:
    keep = step.options.get("keep")
    world.cut_power(step.words[0], None if keep is None else int(keep))


def _elect(world: World, step: Step) -> None:
    epoch = step.options.get("epoch")
    world.elect(
        step.words[0],
        None if epoch is None else int(epoch),
        step.options.get("isr", ""),
        step.has("unclean"),
    )


_VERBS: dict[str, Callable[[World, Step], None]] = {
    "produce": _produce,
    "marker": _marker,
    "fetch": _fetch,
    "deliver": lambda world, step: world.deliver(step.words[0]),
    "expire-fetch": lambda world, step: world.expire_parked(step.words[0]),
    "start": lambda world, step: world.start(step.words[0]),
    "kill": lambda world, step: world.kill(step.words[0]),
    "power-cut": _cut_power,
    "stop": lambda world, step: world.stop(step.words[0]),
    "wipe": lambda world, step: world.wipe(step.words[0]),
    "announce-shutdown": lambda world, step: world.announce_shutdown(step.words[0]),
    "cut": lambda world, step: world.cut(step.words[0]),
    "heal": lambda world, step: world.heal(step.words[0], silent=step.has("silent")),
    "tell": lambda world, step: world.tell(step.words[0]),
    "expire": lambda world, step: world.expire(step.words[0]),
    "controller": lambda world, _: world.run_controller(),
    "elect": _elect,
    "assign": lambda world, step: world.reassign("".join(step.words)),
    "min-in-sync": lambda world, step: world.set_min_in_sync(int(step.words[0])),
    "alter": lambda world, step: world.alter(step.words[0], hold_reply=step.has("hold-reply")),
    "reply": lambda world, step: world.reply_alter(step.words[0]),
    "delete-records": lambda world, step: world.delete_records(step.words[0], int(step.words[1])),
    "wait": lambda world, step: world.wait(parse_ms(step.words[0])),
}


# -- What can be expected --------------------------------------------------------------------


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
    for value in (v for word in values for v in _spread(word)):
        assert value in world.oracle.ever, f"{value} was never committed"
        assert value not in _leader_values(world), f"the leader has {value}"


def _kept(world: World, values: tuple[str, ...]) -> None:
    for value in (v for word in values for v in _spread(word)):
        assert value in world.oracle.ever, f"{value} was never committed"
        assert value in _leader_values(world), f"the leader does not have {value}"


def _acked(world: World, values: tuple[str, ...]) -> None:
    for value, _, offset in (word.partition("@") for word in values):
        for name in _spread(value):
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


def _facts(world: World, replica: Replica) -> dict[str, str]:
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
        "log": ",".join(_gather([entry.value for entry in replica.entries()])),
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


# -- Words -----------------------------------------------------------------------------------


def show(replica: Replica) -> str:
    """One replica in one line; see the module."""
    if not replica.is_running:
        return f"{replica.name}  down"
    log, leader = replica.log, replica.leader
    entries = replica.entries()
    below = _gather([e.value for e in entries if e.offset < log.high_watermark])
    above = _gather([e.value for e in entries if e.offset >= log.high_watermark])
    records = " ".join([*below, "|", *above]) if above else " ".join(below)
    epochs = " ".join(f"{epoch}:{start}" for epoch, start in log.leader_epochs.entries)
    start = f" from {log.log_start_offset}" if log.log_start_offset else ""
    line = (
        f"{replica.name}{'*' if leader else ' '} {log.log_end_offset}/{log.high_watermark} "
        f"[{records}]{start} epochs{{{epochs}}}"
    )
    if replica.is_cut:
        line += " cut off"
    if leader is None:
        return line
    remote = " ".join(f"{name_of(p.broker_id)}={p.log_end_offset}" for p in _sorted(replica))
    change = ""
    if isinstance(leader.in_sync, Expanding):
        change = f"+{name_of(leader.in_sync.joining)}"
    elif isinstance(leader.in_sync, Shrinking):
        change = f"-{names_of(leader.in_sync.leaving)}"
    return f"{line} sync {names_of(leader.in_sync.members)}{change} rem {remote}".rstrip()


def _sorted(replica: Replica) -> list[Progress]:
    assert replica.leader is not None
    return sorted(replica.leader.progress.values(), key=lambda p: p.broker_id)


_ACKNOWLEDGED = re.compile(r"^(\w+) is acknowledged at (\d+)$")


def _merge(events: list[str]) -> list[str]:
    """Several acknowledgements in a row as one line."""
    merged: list[str] = []
    values: list[str] = []
    first = last = ""
    for event in [*events, ""]:
        match = _ACKNOWLEDGED.match(event)
        if match is not None:
            first, last = first or match[2], match[2]
            values.append(match[1])
            continue
        if len(values) > 1:
            merged.append(f"{' '.join(_gather(values))} are acknowledged at {first} to {last}")
        elif values:
            merged.append(f"{values[0]} is acknowledged at {first}")
        values, first = [], ""
        merged.append(event)
    return merged[:-1]


_NUMBERED = re.compile(r"^([a-z]+)(\d+)$")
_RANGE = re.compile(r"^([a-z]+)(\d+)\.\.([a-z]+)(\d+)$")


def _spread(word: str) -> list[str]:
    """`m0..m3` is m0 m1 m2 m3."""
    match = _RANGE.match(word)
    if match is None:
        return [word]
    return [f"{match[1]}{number}" for number in range(int(match[2]), int(match[4]) + 1)]


def _gather(values: list[str]) -> list[str]:
    """The reverse of `_spread`, for runs of four and more."""
    gathered: list[str] = []
    index = 0
    while index < len(values):
        length = _run_length(values[index:])
        if length >= 4:
            gathered.append(f"{values[index]}..{values[index + length - 1]}")
        else:
            length = 1
            gathered.append(values[index])
        index += length
    return gathered


def _run_length(values: list[str]) -> int:
    match = _NUMBERED.match(values[0])
    if match is None:
        return 1
    length = 1
    while length < len(values) and values[length] == f"{match[1]}{int(match[2]) + length}":
        length += 1
    return length


__all__ = ["Player", "Unexpected", "make_world", "play", "show"]
