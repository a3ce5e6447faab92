"""Replicas that move between the log directories of their brokers (F-71), often while these die.

Drawn from a stream of its own, for seeds whose brokers have several directories, and added to what
there is. A seed without faults stays without.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from strandline.sim.faults.draw import Draw, Drawn, Together, timed
from strandline.sim.plan import Action

_CHANCE: Final = 0.7
_TIMES_MAX: Final = 4
_BEGIN_US: Final = 300_000


def draw_log_moves(draw: Draw, actions: Sequence[Action]) -> tuple[Action, ...]:
    """The actions of a seed, and perhaps moves."""
    random, options = draw.random, draw.options
    if not actions or options.disks < 2 or random.random() >= _CHANCE:
        return tuple(actions)
    found = list(actions)
    for _ in range(random.randint(1, _TIMES_MAX)):
        at_us = random.randrange(_BEGIN_US, options.safety_us) // 1_000 * 1_000
        found += timed(at_us, _move(draw), end_us=options.safety_us)
    return tuple(sorted(found, key=lambda action: action.at_us))


def _move(draw: Draw) -> Together:
    random, options = draw.random, draw.options
    at, broker = draw.partition(), str(draw.number())
    ahead = {"dir": str(random.randint(1, max(1, options.disks - 1)))}
    moves: Together = ((0, Drawn("move-log", (at, broker), ahead)),)
    way = random.random()
    if way < 0.5:
        crash = {"operations": str(random.randint(1, 40)), "down": draw.time()}
        crash |= {"how": random.choice(("kill", "power")), "path": random.choice(("-future", at))}
        moves = ((0, Drawn("crash-in", (broker,), crash)), (1_000, moves[0][1]))
    elif way < 0.6:
        moves += ((random.randint(1, 20) * 1_000, Drawn("move-log", (at, broker), {"dir": "0"})),)
    elif way < 0.7:
        moves += ((random.randint(1, 50) * 1_000, Drawn("delete-records", (at, "high-watermark"))),)
    return moves
