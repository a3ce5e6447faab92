"""Plays a scenario: each line to the world, and a trace of what came of it.

    produce A m0 m1 [acks=all|1|0] [timeout=10s] [producer=7 epoch=0 seq=0] [transactional]
            [lose-reply]      each word is a batch, `a+b` one of two records, `m0..m4` five batches
    marker A commit|abort producer=7 epoch=0 [coordinator=0] [version=2]
    fetch B [one-batch] [lose-request|lose-reply|hold-reply|damage-reply|park]
    deliver B                 the held reply arrives
    expire-fetch B            the parked fetch has waited long enough
    kill B, power-cut B [keep=OFFSET], stop B, wipe B, start B
    cut A, expire A, heal A [silent], tell A          off the network, off the store, and back
    announce-shutdown A
    controller                it looks at who is registered, and decides
    elect B [epoch=1] [isr=AB] [unclean]              a state as the script wants it
    alter A [hold-reply], reply A                     the leader's proposal, and its answer
    assign D E F              another set of replicas
    min-in-sync 2
    delete-records A 3
    wait 30s
    expect ...                see `expectations`

This file knows the verbs and the header; what they mean is the world's business.
"""

from __future__ import annotations

from collections.abc import Callable

from strandline.replication.policies import (
    AnswerWatermark,
    LagPolicy,
    Policies,
    RecordLag,
    TimeLag,
    TruncateBy,
)
from strandline.sim.scenarios.controller import Rules
from strandline.sim.scenarios.expectations import check_expectation
from strandline.sim.scenarios.messages import Write
from strandline.sim.scenarios.script import BadScript, Script, Step, parse_ms
from strandline.sim.scenarios.words import merge, show, spread
from strandline.sim.scenarios.world import World


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
                check_expectation(self.world, step)
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
        self._lines.extend(f"    > {event}" for event in merge(self.world.events))
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
    values = [value for word in step.words[1:] if word not in flags for value in spread(word)]
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
