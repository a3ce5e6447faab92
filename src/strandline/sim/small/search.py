"""Breadth first through all states, until everything is seen or something is broken.

Of every state only a fingerprint is kept, and that of the state from which it was reached; the way
to a broken invariant, which is a shortest one, is found by going it again. Two states with the same
fingerprint would be taken for one; with 64 bits that is likely for billions of states only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from strandline.errors import InvariantViolated
from strandline.sim.small.invariants import Invariants
from strandline.sim.small.moves import Broken, Label, Move, Moves
from strandline.sim.small.rules import Bounds, ChosenLag, Rules
from strandline.sim.small.symmetry import Symmetry
from strandline.sim.small.values import World

Told: TypeAlias = Callable[[int, int], None]
"""Hears, after each level, how many states were seen and how deep they are."""


@dataclass(frozen=True, slots=True)
class Step:
    """One move on the way to something broken, and the state after it in words."""

    label: Label
    state: str

    def __str__(self) -> str:
        return f"{' '.join(map(str, self.label)):24} {self.state}"


@dataclass(frozen=True, slots=True)
class Searched:
    """What a search has seen. With `broken`, `path` is a shortest way to it."""

    states: int
    moves: int
    depth: int
    is_complete: bool
    """Whether there is nothing more to see within the bounds."""
    broken: tuple[Broken, ...] = ()
    path: tuple[Step, ...] = ()


class Search:
    """One search, from the first state on."""

    def __init__(self, bounds: Bounds, rules: Rules, lag: ChosenLag) -> None:
        self._moves = Moves(bounds, rules, lag)
        self._invariants = Invariants(bounds, self._moves.table)
        self._symmetry = Symmetry(self._moves.table)
        self._came_from: dict[int, int] = {}
        self._made = 0

    def run(self, *, states_max: int | None = None, told: Told | None = None) -> Searched:
        """Search until the end, or a violation, or that many states."""
        first = self._symmetry.canonical(self._moves.first())
        self._came_from[hash(first)] = hash(first)
        level, depth = [first], 0
        while level:
            if told is not None:
                told(len(self._came_from), depth)
            if states_max is not None and len(self._came_from) >= states_max:
                return self._searched(depth, is_complete=False)
            following: list[World] = []
            for world in level:
                broken = self._look_behind(world, following)
                if broken:
                    return self._searched(depth + 1, is_complete=False, broken=broken)
            level = following
            depth += bool(level)
        return self._searched(depth, is_complete=True)

    def _look_behind(self, world: World, following: list[World]) -> tuple[Move, World] | None:
        """Make all moves from a state; returns one that breaks something."""
        came_from, settled = self._came_from, self._moves.settled
        canonical, invariants = self._symmetry.canonical, self._invariants.broken
        mark = hash(world)
        for move in self._moves.next(world):
            self._made += 1
            after = canonical(settled(move.world))
            key = hash(after)
            is_new = key not in came_from
            if is_new:
                came_from[key] = mark
                following.append(after)
            if move.broken or (is_new and invariants(after)):
                return move, world
        return None

    def _searched(
        self, depth: int, *, is_complete: bool, broken: tuple[Move, World] | None = None
    ) -> Searched:
        if broken is None:
            return Searched(len(self._came_from), self._made, depth, is_complete)
        move, before = broken
        after = self._symmetry.canonical(self._moves.settled(move.world))
        found = move.broken or self._invariants.broken(after)
        return Searched(
            len(self._came_from),
            self._made,
            depth,
            is_complete,
            found,
            (*self._path(before), Step(move.label, self._moves.show(move.world))),
        )

    def _path(self, world: World) -> tuple[Step, ...]:
        """The way from the first state to this one, with the names that the brokers had then."""
        marks = [hash(world)]
        while (former := self._came_from[marks[-1]]) != marks[-1]:
            marks.append(former)
        marks.reverse()
        at = self._symmetry.canonical(self._moves.first())
        steps: list[Step] = []
        for mark in marks[1:]:
            for move in self._moves.next(at):
                after = self._symmetry.canonical(self._moves.settled(move.world))
                if hash(after) == mark:
                    break
            else:
                raise InvariantViolated("A state cannot be reached any more.")
            steps.append(Step(move.label, self._moves.show(move.world)))
            at = after
        return tuple(steps)
