"""Breadth first through all states, until everything is seen or something is broken.

Of every state only a fingerprint is kept, and that of the state from which it was reached; the way
to a broken invariant, which is a shortest one, is found by going it again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from strandline.errors import InvariantViolated
from strandline.sim.small.invariants import Invariants
from strandline.sim.small.moves import Broken, Label, Moves
from strandline.sim.small.rules import Bounds, ChosenLag, Rules
from strandline.sim.small.symmetry import Symmetry
from strandline.sim.small.values import World


@dataclass(frozen=True, slots=True)
class Found:
    """Something broken, and the shortest way to it."""

    broken: tuple[Broken, ...]
    path: tuple[Label, ...]


@dataclass(frozen=True, slots=True)
class Searched:
    """What a search has seen."""

    states: int
    moves: int
    depth: int
    is_complete: bool
    found: Found | None


def search(bounds: Bounds, rules: Rules, lag: ChosenLag, *, states_max: int = 10**9, told: Callable[[int,int],None]|None=None) -> Searched:
    moves = Moves(bounds, rules, lag)
    invariants = Invariants(bounds, moves.table)
    symmetry = Symmetry(moves.table)
    first = symmetry.canonical(moves.first())
    came_from = {hash(first): 0}
    level = [first]
    depth = made = 0
    while level:
        following = []
        for world in level:
            mark = hash(world)
            for move in moves.next(world):
                made += 1
                after = symmetry.canonical(moves.settled(move.world))
                key = hash(after)
                if move.broken:
                    came_from.setdefault(key, mark)
                    return Searched(len(came_from), made, depth + 1, False, Found(move.broken, (str(move.label),)))
                if key in came_from:
                    continue
                came_from[key] = mark
                broken = invariants.broken(after)
                if broken:
                    return Searched(len(came_from), made, depth + 1, False, Found(broken, (str(move.label),)))
                following.append(after)
        if told: told(len(came_from), depth)
        if len(came_from) > states_max:
            return Searched(len(came_from), made, depth, False, None)
        level = following
        depth += 1
    return Searched(len(came_from), made, depth, True, None)
