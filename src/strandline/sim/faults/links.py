"""Faults of the network: cuts in one or both directions, clogging, resets, damage, slowness.

Everything is done to directed pairs of ends. A cut loses nothing that TCP would bring later: it
holds what is sent, until the connection is given up. A clog holds and then delivers in a burst.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import product
from typing import Final

from strandline.sim.faults.scene import Scene, Skipped
from strandline.sim.faults.targets import End, ends
from strandline.sim.faults.verb import Verb
from strandline.sim.plan import Action
from strandline.types import BrokerId

_FOR_US: Final = 2_000_000

Pair = tuple[End, End]


def cut_link(scene: Scene, action: Action) -> None:
    """Nothing passes between two ends."""
    cut(scene, both_ways(*_two(scene, action)), _for(action))


def cut_one_way(scene: Scene, action: Action) -> None:
    """Nothing passes from the first to the second; what the second sends arrives."""
    cut(scene, _pairs(*_two(scene, action)), _for(action))


def isolate(scene: Scene, action: Action) -> None:
    """One broker is cut off from all others, and as wanted from the store and from clients."""
    mine = ends(scene, action.word(0))
    _cut_off(scene, action, mine, both_ways(mine, _others(scene, mine)))


def partition(scene: Scene, action: Action) -> None:
    """Some brokers on one side, the others on the other; perhaps in one direction only."""
    mine = ends(scene, action.word(0))
    others = _others(scene, mine)
    one_way = action.options.get("one-way", "no")
    match one_way:
        case "out":
            pairs = _pairs(mine, others)
        case "in":
            pairs = _pairs(others, mine)
        case _:
            pairs = both_ways(mine, others)
    _cut_off(scene, action, mine, pairs)


def ring(scene: Scene, action: Action) -> None:
    """Every broker reaches its two neighbours only: all see a majority, each another one."""
    brokers = list(scene.world.machines)
    count = len(brokers)
    if count < 4:
        raise Skipped("with fewer than four brokers a ring cuts nothing")
    far = [
        (brokers[a], brokers[b])
        for a in range(count)
        for b in range(count)
        if a != b and (a - b) % count not in (1, count - 1)
    ]
    cut(scene, far, _for(action))


def clog(scene: Scene, action: Action) -> None:
    """What is sent arrives later, all at once."""
    _clog(scene, _around(scene, action), _for(action))


def swizzle(scene: Scene, action: Action) -> None:
    """Clog some brokers one after the other, and release them in another order."""
    random = scene.random(action)
    brokers = list(scene.world.machines)
    chosen = random.sample(brokers, random.randint(1, len(brokers)))
    for_us, step_us = _for(action), action.time_us("step", 100_000)
    order = random.sample(range(len(chosen)), len(chosen))
    for turn, broker_id in enumerate(chosen):
        pairs = both_ways([broker_id], _others(scene, [broker_id]))
        held_us = for_us + (order[turn] - turn) * step_us
        scene.later(
            turn * step_us,
            partial(_clog, scene, pairs, max(held_us, step_us)),
        )


def reset(scene: Scene, action: Action) -> None:
    """All connections between two ends break, also in the middle of a frame."""
    for a, b in _once(_around(scene, action)):
        scene.world.network.reset(a, b)


def flip(scene: Scene, action: Action) -> None:
    """The next frame from the first to the second arrives damaged."""
    where = action.options.get("where", "records")
    for a, b in _pairs(*_two(scene, action)):
        scene.world.network.flip(a, b, where)


def stall(scene: Scene, action: Action) -> None:
    """The second does not read what the first sends to it: buffers fill up."""
    network = scene.world.network
    _each(
        scene, "stall", _pairs(*_two(scene, action)), network.stall, network.unstall, _for(action)
    )


def slow_link(scene: Scene, action: Action) -> None:
    """Everything takes `factor` times as long."""
    network, factor = scene.world.network, action.number("factor", 20)
    for a, b in _around(scene, action):
        scene.hold(
            ("slow", a, b),
            partial(network.slow, a, b, factor),
            partial(network.slow, a, b, 1),
            _for(action),
        )


def clog_all(scene: Scene, for_us: int) -> None:
    """Clog all links between brokers."""
    brokers = list(scene.world.machines)
    _clog(scene, _pairs(brokers, brokers), for_us)


def _for(action: Action) -> int:
    return action.time_us("for", _FOR_US)


def _two(scene: Scene, action: Action) -> tuple[list[End], list[End]]:
    return ends(scene, action.word(0)), ends(scene, action.word(1))


def _others(scene: Scene, mine: Iterable[End]) -> list[End]:
    return [each for each in scene.world.machines if each not in set(mine)]


def _pairs(some: Iterable[End], others: Iterable[End]) -> list[Pair]:
    return [(a, b) for a, b in product(some, others) if a != b]


def both_ways(some: Iterable[End], others: Iterable[End]) -> list[Pair]:
    """Every pair of one of these and one of those, in both directions."""
    some, others = list(some), list(others)
    return list(dict.fromkeys((*_pairs(some, others), *_pairs(others, some))))


def _around(scene: Scene, action: Action) -> list[Pair]:
    """Between two words; with one word only, between it and all other brokers."""
    if len(action.words) > 1:
        return both_ways(*_two(scene, action))
    mine = ends(scene, action.word(0))
    return both_ways(mine, _others(scene, mine))


def _once(pairs: Iterable[Pair]) -> Iterator[Pair]:
    seen: list[Pair] = []
    for a, b in pairs:
        if (b, a) not in seen:
            seen.append((a, b))
            yield a, b


def _cut_off(scene: Scene, action: Action, mine: list[End], pairs: list[Pair]) -> None:
    if action.options.get("clients", "no") == "yes":
        pairs = [*pairs, *both_ways(mine, scene.client_names)]
    cut(scene, pairs, _for(action))
    if action.options.get("store", "no") == "yes":
        for each in mine:
            if isinstance(each, int):
                cut_store(scene, BrokerId(each), _for(action))


def cut_store(scene: Scene, broker_id: BrokerId, for_us: int) -> None:
    """Cut a broker off from the metadata store."""
    store = scene.world.store
    scene.hold(
        ("store", broker_id), lambda: store.cut(broker_id), lambda: store.heal(broker_id), for_us
    )


def cut(scene: Scene, pairs: Iterable[Pair], for_us: int) -> None:
    """Let nothing pass between these."""
    network = scene.world.network
    _each(scene, "cut", pairs, network.cut, network.mend, for_us)


def _clog(scene: Scene, pairs: Iterable[Pair], for_us: int) -> None:
    network = scene.world.network
    _each(scene, "clog", pairs, network.clog, network.unclog, for_us)


def _each(
    scene: Scene,
    what: str,
    pairs: Iterable[Pair],
    apply: Callable[[End, End], None],
    undo: Callable[[End, End], None],
    for_us: int,
) -> None:
    for a, b in pairs:
        scene.hold((what, a, b), partial(apply, a, b), partial(undo, a, b), for_us)


VERBS: Final = (
    Verb("cut", cut_link, "END END [for=]"),
    Verb("cut-one-way", cut_one_way, "FROM TO [for=]"),
    Verb("isolate", isolate, "BROKER [store=yes] [clients=yes] [for=]"),
    Verb(
        "partition",
        partition,
        "BROKER,BROKER [one-way=in|out] [store=yes] [clients=yes] [for=]",
    ),
    Verb("ring", ring, "[for=]"),
    Verb("clog", clog, "END [END] [for=]"),
    Verb("stall", stall, "FROM TO [for=]"),
    Verb("swizzle", swizzle, "[for=] [step=]"),
    Verb("reset", reset, "END [END]"),
    Verb("flip", flip, "FROM TO [where=records|size]"),
    Verb("slow-link", slow_link, "END [END] [factor=] [for=]"),
)
