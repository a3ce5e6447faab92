"""Breadth first through all states, until everything is seen or something is broken.

Of every state only a fingerprint is kept, and that of the state from which it was reached; the way
to a broken invariant, which is a shortest one, is found by going it again. Two states with the same
fingerprint would be taken for one; with 64 bits that is likely for billions of states only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from strandline.errors import InvariantViolated
from tests.sim.modelcheck.invariants import Invariants
from tests.sim.modelcheck.moves import Broken, Label, Move, Moves
from tests.sim.modelcheck.rules import Bounds, ChosenLag, Rules
from tests.sim.modelcheck.showing import show
from tests.sim.modelcheck.symmetry import Symmetry
from tests.sim.modelcheck.values import World

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


@dataclass(frozen=True, slots=True)
class Level:
    """All states that are so many moves away from the first one, and not fewer."""

    depth: int
    worlds: list[World]


@dataclass(frozen=True, slots=True)
class Found:
    """A move that breaks something, or leads to a state in which something is broken."""

    move: Move
    before: World
    broken: tuple[Broken, ...]


class Search:
    """One search, from the first state on."""

    def __init__(
        self, bounds: Bounds, rules: Rules, lag: ChosenLag, *, reduces: bool = True
    ) -> None:
        """`lag` is the policy in `rules`. `reduces`: whether moves that make no difference when
        they happen are made at once (see `Moves.settled`)."""
        self.moves = Moves(bounds, rules, lag)
        self.symmetry = Symmetry(self.moves.table)
        self._invariants = Invariants(bounds, self.moves.table)
        self._reduces = reduces
        self._came_from: dict[int, int] = {}
        self._made = 0

    def run(self, *, states_max: int | None = None, told: Told | None = None) -> Searched:
        """Search until the end, or a violation, or that many states."""
        depth = 0
        for level in self.levels():
            if isinstance(level, Found):
                return self._searched(depth + 1, found=level)
            depth = level.depth
            if told is not None:
                told(len(self._came_from), depth)
            if states_max is not None and len(self._came_from) >= states_max:
                return self._searched(depth)
        return self._searched(depth, is_complete=True)

    def levels(self) -> Iterator[Level | Found]:
        """The states, by their distance from the first one; ends with the first violation."""
        first = self.representative(self.moves.first())
        self._came_from = {hash(first): hash(first)}
        level = Level(0, [first])
        while level.worlds:
            yield level
            following: list[World] = []
            for world in level.worlds:
                found = self._look_behind(world, following)
                if found is not None:
                    yield found
                    return
            level = Level(level.depth + 1, following)

    def representative(self, world: World) -> World:
        """The one state that stands for this one and all that mean the same."""
        return self.symmetry.canonical(self.moves.settled(world) if self._reduces else world)

    def _look_behind(self, world: World, following: list[World]) -> Found | None:
        """Make all moves from a state, until one breaks something."""
        came_from, representative = self._came_from, self.representative
        mark = hash(world)
        for move in self.moves.next(world):
            self._made += 1
            after = representative(move.world)
            key = hash(after)
            broken = move.broken
            if key not in came_from:
                came_from[key] = mark
                following.append(after)
                broken += self._invariants.broken(after)
            if broken:
                return Found(move, world, broken)
        return None

    def _searched(
        self, depth: int, *, is_complete: bool = False, found: Found | None = None
    ) -> Searched:
        seen = len(self._came_from)
        if found is None:
            return Searched(seen, self._made, depth, is_complete)
        path, broken = self._path(found)
        return Searched(seen, self._made, depth, is_complete, broken, path)

    def _path(self, found: Found) -> tuple[tuple[Step, ...], tuple[Broken, ...]]:
        """The way from the first state to what is broken, with the same names all along."""
        marks = [hash(self.representative(found.move.world)), hash(found.before)]
        while (former := self._came_from[marks[-1]]) != marks[-1]:
            marks.append(former)
        marks.reverse()
        at = self.moves.first()
        steps: list[Step] = []
        broken: tuple[Broken, ...] = ()
        for place, mark in enumerate(marks[1:], start=2):
            is_last = place == len(marks)
            move = self._move_to(at, mark, found.move if is_last else None)
            steps.append(Step(move.label, show(move.world, self.moves.table)))
            at = self.moves.settled(move.world) if self._reduces else move.world
            broken = move.broken + self._invariants.broken(at)
        return tuple(steps), broken

    def _move_to(self, at: World, mark: int, last: Move | None) -> Move:
        for move in self.moves.next(at):
            is_it = hash(self.representative(move.world)) == mark
            if is_it and (last is None or bool(move.broken) == bool(last.broken)):
                return move
        raise InvariantViolated("A state that was reached cannot be reached again.")
