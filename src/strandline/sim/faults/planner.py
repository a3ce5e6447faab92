"""Which faults a seed has, how often, for how long: the drawn part of a plan.

Theory (swarm testing again): each seed first draws which kinds of faults it knows at all, then a
rate, then actions of these kinds at random times. One seed in eight has none: a cluster must also
be right when nothing is wrong, and what fails there is easy to understand. Killing and pausing are
nearly always among the kinds.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from strandline.sim.faults.draw import Draw
from strandline.sim.faults.kinds import DAMAGES, KINDS, starving
from strandline.sim.plan import Action, ClientSpec, Options

STARVING_ONE_OF: Final = 10
"""One of so many seeds has machines whose handles run out."""
CALM_ONE_OF: Final = 8
"""One of so many seeds has no faults and no changes."""

_BEGIN_US: Final = 300_000
_GAPS_US: Final = (200_000, 400_000, 700_000, 1_000_000, 1_500_000, 2_500_000, 4_000_000)


def draw_actions(
    options: Options, clients: Sequence[ClientSpec], random: Random
) -> tuple[Action, ...]:
    """The actions of a seed."""
    if random.randrange(CALM_ONE_OF) == 0:
        return ()
    draw = Draw(options, clients, random)
    kinds = [kind for kind in KINDS if random.random() < kind.chance and kind.is_for(options)]
    if not kinds:
        return ()
    gap_us = random.choice(_GAPS_US)
    weights = [kind.weight for kind in kinds]
    actions: list[Action] = []
    at_us = _BEGIN_US
    while True:
        at_us += 1_000 + int(random.expovariate(1 / gap_us))
        if at_us >= options.safety_us:
            return tuple(actions)
        drawn = random.choices(kinds, weights)[0].draw(draw)
        time_us = at_us // 1_000 * 1_000
        actions.append(Action(time_us, drawn.verb, drawn.words, dict(drawn.options)))


def draw_starving(
    options: Options, clients: Sequence[ClientSpec], random: Random
) -> tuple[Action, ...]:
    """The times at which machines have no handles; drawn by themselves, beside all other faults."""
    if random.randrange(STARVING_ONE_OF):
        return ()
    draw = Draw(options, clients, random)
    times = (random.randrange(_BEGIN_US, options.safety_us) for _ in range(random.randint(1, 6)))
    return tuple(
        Action(at_us // 1_000 * 1_000, drawn.verb, drawn.words, dict(drawn.options))
        for at_us in sorted(times)
        for drawn in (starving(draw),)
    )


def draw_damage(options: Options, clients: Sequence[ClientSpec], random: Random) -> Action:
    """One action that damages a disk."""
    drawn = random.choice(DAMAGES)(Draw(options, clients, random))
    at_us = random.randrange(_BEGIN_US, options.safety_us) // 1_000 * 1_000
    return Action(at_us, drawn.verb, drawn.words, dict(drawn.options))
