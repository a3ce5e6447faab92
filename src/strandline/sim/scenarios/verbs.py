"""What the lines of a scenario of replicas can say, and what each of them asks of the world.

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
    prefer B                  leadership moves to a member of the in-sync set
    alter A [hold-reply], reply A                     the leader's proposal, and its answer
    assign D E F              another set of replicas
    min-in-sync 2
    delete-records A 3
    wait 30s
    tick                      half a second in which brokers fetch, propose and elect by themselves
    pause B, resume B         the process stands still, and goes on
    consume A [from=0] [committed]      what a consumer can read there

This file knows the verbs, and when one makes no sense: a broker that runs cannot be started. What
they do is the world's business.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from strandline.sim.scenarios.reads import consume
from strandline.sim.scenarios.replica import Replica
from strandline.sim.scenarios.rounds import pause, resume, tick
from strandline.sim.scenarios.script import BadScript, Step, parse_int, parse_ms
from strandline.sim.scenarios.words import spread
from strandline.sim.scenarios.world import World
from strandline.sim.scenarios.writes import Write

MANY: Final = 1_000


class Verb(NamedTuple):
    """What a verb takes: words (a least and a most number), flags among them, options."""

    act: Callable[[World, Step], None]
    words: tuple[int, int] = (1, 1)
    flags: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


def carry_out(world: World, step: Step) -> None:
    """Do what a line says. Raises `BadScript` if that makes no sense, here or at all."""
    verb = VERBS.get(step.verb)
    if verb is None:
        raise BadScript(f"There is no verb '{step.verb}'.")
    words = _plain(step)
    least, most = verb.words
    if not least <= len(words) <= most:
        raise BadScript(f"'{step.verb}' has too {'few' if len(words) < least else 'many'} words.")
    for name in step.options:
        if name not in verb.options:
            raise BadScript(f"'{step.verb}' has no option '{name}'.")
    verb.act(world, step)


def _plain(step: Step) -> list[str]:
    """The words that are not flags of the verb."""
    return [word for word in step.words if word not in VERBS[step.verb].flags]


# -- What words stand for --------------------------------------------------------------------


def replica_of(world: World, name: str) -> Replica:
    """A replica by its letter."""
    if name not in world.replicas:
        raise BadScript(f"There is no replica '{name}'; there are {', '.join(world.replicas)}.")
    return world.replicas[name]


def _name(world: World, step: Step) -> str:
    return replica_of(world, _plain(step)[0]).name


def _running(world: World, step: Step) -> str:
    name = _name(world, step)
    if not world.replicas[name].is_running:
        raise BadScript(f"{name} is not running.")
    return name


def _down(world: World, step: Step) -> str:
    name = _name(world, step)
    if world.replicas[name].is_running:
        raise BadScript(f"{name} is running.")
    return name


def leading(world: World, name: str) -> str:
    """The name of a replica that must be a leader."""
    if replica_of(world, name).leader is None:
        raise BadScript(f"{name} does not lead.")
    return name


# -- The verbs -------------------------------------------------------------------------------


def _write(step: Step) -> Write:
    acks = step.options.get("acks", "all")
    if acks not in ("all", "1", "0"):
        raise BadScript(f"acks can be all, 1 or 0, not '{acks}'.")
    return Write(
        acks=acks,
        timeout_ms=step.option_ms("timeout"),
        producer_id=step.option_int("producer", -1),
        producer_epoch=step.option_int("epoch", 0 if "producer" in step.options else -1),
        sequence=step.option_int("seq", -1),
        is_transactional=step.has("transactional"),
        loses_reply=step.has("lose-reply"),
    )


def _produce(world: World, step: Step) -> None:
    values = [value for word in _plain(step)[1:] for value in spread(word)]
    world.produce(_name(world, step), values, _write(step))


def _marker(world: World, step: Step) -> None:
    kind = step.words[1]
    if kind not in ("commit", "abort"):
        raise BadScript(f"A marker is commit or abort, not '{kind}'.")
    coordinator, version = step.option_int("coordinator", 0), step.option_int("version", 0)
    world.write_marker(leading(world, step.words[0]), kind, _write(step), coordinator, version)


_MODES: Final = ("lose-request", "lose-reply", "hold-reply", "damage-reply", "park")


def _fetch(world: World, step: Step) -> None:
    modes = [word for word in step.words if word in _MODES]
    if len(modes) > 1:
        raise BadScript(f"A fetch cannot be '{modes[0]}' and '{modes[1]}'.")
    world.fetch(_name(world, step), mode="".join(modes), one_batch=step.has("one-batch"))


def _deliver(world: World, step: Step) -> None:
    name = _running(world, step)
    if not world.followers.has_held(name):
        raise BadScript(f"No reply to {name} is held back.")
    world.followers.deliver(name)


def _expire_fetch(world: World, step: Step) -> None:
    name = _name(world, step)
    if not world.followers.has_parked(name):
        raise BadScript(f"No fetch of {name} is parked.")
    world.followers.expire_parked(name)


def _stop(world: World, step: Step) -> None:
    name = _running(world, step)
    if world.replicas[name].is_paused:
        raise BadScript(f"{name} is paused, and would stop later.")
    if world.hears_nothing(name):
        raise BadScript(f"{name} is cut off from the store, and would wait for it.")
    world.stop(name)


def _cut_power(world: World, step: Step) -> None:
    name = _running(world, step)
    if not world.replicas[name].has_log:
        raise BadScript(f"{name} has no replica.")
    log = world.replicas[name].log
    keep = step.option_int("keep", log.recovery_point)
    if not 0 <= keep <= log.log_end_offset:
        raise BadScript(f"{name} has records below {log.log_end_offset}, it cannot keep {keep}.")
    world.cut_power(name, keep)


def _elect(world: World, step: Step) -> None:
    in_sync = step.options.get("isr", "")
    for name in (_name(world, step), *in_sync):
        if name not in world.state.replicas:
            raise BadScript(f"The partition is not assigned to {name}.")
    epoch = step.option_int("epoch", world.state.leader_epoch + 1)
    world.elect(_name(world, step), epoch, in_sync, step.has("unclean"))


def _assign(world: World, step: Step) -> None:
    world.reassign("".join(replica_of(world, name).name for word in step.words for name in word))


def _min_in_sync(world: World, step: Step) -> None:
    minimum = parse_int(step.words[0])
    if minimum < 1:
        raise BadScript("min-in-sync is at least 1.")
    world.set_min_in_sync(minimum)


def _reply(world: World, step: Step) -> None:
    name = _running(world, step)
    if not world.has_held_alter(name):
        raise BadScript(f"No answer of the controller to {name} is held back.")
    world.reply_alter(name)


def _delete_records(world: World, step: Step) -> None:
    name, offset = leading(world, step.words[0]), parse_int(step.words[1])
    mark = world.replicas[name].log.high_watermark
    if not 0 <= offset <= mark:
        raise BadScript(f"The high watermark of {name} is {mark}: it cannot delete to {offset}.")
    world.delete_records(name, offset)


def _alter(world: World, step: Step) -> None:
    world.alter(_name(world, step), hold_reply=step.has("hold-reply"))


def _pause(world: World, step: Step) -> None:
    name = _running(world, step)
    if world.replicas[name].is_paused:
        raise BadScript(f"{name} is paused.")
    pause(world, name)


def _resume(world: World, step: Step) -> None:
    name = _running(world, step)
    if not world.replicas[name].is_paused:
        raise BadScript(f"{name} is not paused.")
    resume(world, name)


def _consume(world: World, step: Step) -> None:
    offset = step.option_int("from", 0)
    if offset < 0:
        raise BadScript("'from' is an offset.")
    replica = replica_of(world, step.words[0])
    consume(replica, offset, is_committed=step.has("committed"), say=world.events.append)


def _heal(world: World, step: Step) -> None:
    world.heal(_name(world, step), silent=step.has("silent"))


_PRODUCER: Final = ("producer", "epoch")

VERBS: Final[dict[str, Verb]] = {
    "produce": Verb(
        _produce,
        (2, MANY),
        ("transactional", "lose-reply"),
        ("acks", "timeout", "seq", *_PRODUCER),
    ),
    "marker": Verb(_marker, (2, 2), (), ("coordinator", "version", *_PRODUCER)),
    "fetch": Verb(_fetch, (1, 1), (*_MODES, "one-batch")),
    "deliver": Verb(_deliver),
    "expire-fetch": Verb(_expire_fetch),
    "start": Verb(lambda world, step: world.start(_down(world, step))),
    "kill": Verb(lambda world, step: world.kill(_running(world, step))),
    "power-cut": Verb(_cut_power, options=("keep",)),
    "stop": Verb(_stop),
    "wipe": Verb(lambda world, step: world.wipe(_down(world, step))),
    "announce-shutdown": Verb(lambda world, step: world.announce_shutdown(_running(world, step))),
    "cut": Verb(lambda world, step: world.cut(_name(world, step))),
    "heal": Verb(_heal, flags=("silent",)),
    "tell": Verb(lambda world, step: world.tell(_name(world, step))),
    "expire": Verb(lambda world, step: world.expire(_name(world, step))),
    "controller": Verb(lambda world, _: world.run_controller(), (0, 0)),
    "elect": Verb(_elect, flags=("unclean",), options=("epoch", "isr")),
    "prefer": Verb(lambda world, step: world.prefer(_name(world, step))),
    "alter": Verb(_alter, flags=("hold-reply",)),
    "reply": Verb(_reply),
    "assign": Verb(_assign, (1, MANY)),
    "min-in-sync": Verb(_min_in_sync),
    "delete-records": Verb(_delete_records, (2, 2)),
    "pause": Verb(_pause),
    "resume": Verb(_resume),
    "consume": Verb(_consume, flags=("committed",), options=("from",)),
    "tick": Verb(lambda world, _: tick(world), (0, 0)),
    "wait": Verb(lambda world, step: world.wait(parse_ms(step.words[0]))),
}
