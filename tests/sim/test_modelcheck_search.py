"""The search of the small core: what it sees, and that its short cuts leave nothing out."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from random import Random

import pytest

from strandline.replication.policies import Policies
from tests.sim.modelcheck.mutants import exhaust
from tests.sim.modelcheck.rules import Bounds, ChosenLag, Rules
from tests.sim.modelcheck.search import Found, Search
from tests.sim.modelcheck.values import World

QUIET = Bounds(records=2, epochs=2, crashes=0, losses=0, expiries=0)
DYING = Bounds(records=1, epochs=2, crashes=1, losses=1, expiries=0, replicas=2, min_in_sync=2)
PAIR = Bounds(
    replicas=2, records=1, epochs=2, crashes=1, losses=0, expiries=0, delayed=1, min_in_sync=1
)


def search_for(bounds: Bounds, *, reduces: bool = True) -> Search:
    lag = ChosenLag()
    return Search(bounds, Rules(policies=Policies(lag=lag)), lag, reduces=reduces)


def states(search: Search) -> set[World]:
    seen: set[World] = set()
    for level in search.levels():
        assert not isinstance(level, Found)
        seen.update(level.worlds)
    return seen


@pytest.mark.parametrize(
    ("bounds", "states_min"),
    [
        (QUIET, 40_000),
        (DYING, 2_000),
        (PAIR, 9_000),
        (replace(DYING, unclean=True, crashes=2, losses=2), 10_000),
    ],
    ids=["quiet", "dying", "pair", "unclean"],
)
def test_nothing_is_broken_within_the_bounds(bounds: Bounds, states_min: int) -> None:
    heard: list[tuple[int, int]] = []
    seen = exhaust(bounds=bounds, told=lambda count, depth: heard.append((count, depth)))
    assert seen.broken == ()
    assert seen.path == ()
    assert seen.is_complete
    assert heard[0] == (1, 0)
    assert heard[-1] == (seen.states, seen.depth)
    assert seen.moves > seen.states >= states_min


def test_a_search_can_be_given_up() -> None:
    seen = exhaust(bounds=QUIET, states_max=1000)
    assert not seen.is_complete
    assert 1000 <= seen.states < 5000
    assert seen.broken == ()


@pytest.mark.parametrize(
    "bounds",
    [
        Bounds(replicas=2, records=2, epochs=3, crashes=0, losses=0, expiries=0, min_in_sync=1),
        Bounds(replicas=2, records=1, epochs=3, crashes=1, losses=1, expiries=0, min_in_sync=2),
        Bounds(records=1, epochs=2, crashes=0, losses=0, expiries=0),
    ],
    ids=["quiet", "dying", "three"],
)
def test_what_makes_no_difference_when_it_happens_leaves_no_state_out(bounds: Bounds) -> None:
    """Every state of the whole search, once it has settled, is one of the reduced search."""
    search = search_for(bounds)
    reduced = states(search)
    whole = search_for(bounds, reduces=False)
    seen = states(whole)
    table = search.moves.table

    def known(world: World) -> World:
        """The state in the numbers of the other search."""
        numbers = (table.number(whole.moves.table.all[number]) for number in world.replicas)
        return world._replace(replicas=tuple(numbers))

    assert len(seen) > len(reduced)
    assert {search.representative(known(world)) for world in seen} <= reduced


def test_names_make_no_difference() -> None:
    """A state and the same with other names have the same representative, and so do their moves."""
    bounds = replace(QUIET, crashes=1, expiries=1, delayed=1)
    search = search_for(bounds)
    random = Random(1)
    moves, symmetry = search.moves, search.symmetry
    for _ in range(30):
        world = moves.first()
        for _ in range(random.randrange(40)):
            following = [move for move in moves.next(world) if not move.broken]
            if not following:
                break
            world = random.choice(following).world
        expected = search.representative(world)
        after = {search.representative(move.world) for move in moves.next(world)}
        for order in permutations(range(3)):
            renamed = symmetry.in_order(world, order)
            assert search.representative(renamed) == expected
            assert {search.representative(move.world) for move in moves.next(renamed)} == after


def test_a_search_sees_the_same_every_time() -> None:
    runs = [
        [level.worlds for level in search_for(DYING).levels() if not isinstance(level, Found)]
        for _ in range(2)
    ]
    assert runs[0] == runs[1]
