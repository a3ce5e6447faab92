"""Every rule can be switched off and on again, and leaving one out is noticed."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping

import pytest

from strandline.sim.checkers.invariants import BUG, INVARIANTS
from strandline.sim.options import draw_plan
from tests.sim.mutants import MUTANTS, Mutant, UnknownMutant, mutated
from tests.sim.mutants.mutant import nothing, patch, patch_all, together
from tests.sim.mutants.running import run_without

RULES = list(MUTANTS.values())


def namespaces() -> list[Mapping[str, object]]:
    """All in which a patch could replace something: modules of the brokers, and their classes."""
    modules = [
        module
        for name, module in list(sys.modules.items())
        if name.startswith("strandline.") and not name.startswith("strandline.sim")
    ]
    classes = [
        vars(value)
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == module.__name__
    ]
    return [*map(vars, modules), *classes]


def snapshot(places: Iterable[Mapping[str, object]]) -> list[tuple[object, ...]]:
    """The names in each, and which objects they stand for."""
    return [(*place, *map(id, place.values())) for place in places]


def test_switching_a_rule_off_and_on_again_leaves_no_trace() -> None:
    places = namespaces()
    before = snapshot(places)
    for mutant in RULES:
        with mutated(mutant.name):
            during = snapshot(places)
            assert during != before, mutant.name
        assert snapshot(places) == before, mutant.name


def test_a_rule_is_on_again_after_an_error() -> None:
    places = namespaces()
    before = snapshot(places)
    with pytest.raises(ZeroDivisionError), mutated(RULES[0].name):
        raise ZeroDivisionError
    assert snapshot(places) == before


def test_nothing_is_switched_off_without_a_name() -> None:
    places = namespaces()
    before = snapshot(places)
    with mutated(None):
        assert snapshot(places) == before


def test_an_unknown_rule_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(UnknownMutant, match=r"no rule 'sense'.*read-to-the-mark"), mutated("sense"):
        pass


@pytest.mark.parametrize("mutant", RULES, ids=[mutant.name for mutant in RULES])
def test_how_a_rule_is_described(mutant: Mutant) -> None:
    assert re.fullmatch(r"[a-z]+(-[a-z]+)+|idempotence|resign", mutant.name)
    assert re.fullmatch(r"[A-Za-z].*\.", mutant.sentence)
    assert set(mutant.expected) <= {*INVARIANTS} - {BUG}
    assert mutant.expected or mutant.remark, "if no run notices, it must be said why"


def test_names_are_not_given_twice() -> None:
    assert [mutant.name for mutant in MUTANTS.values()] == list(MUTANTS)
    assert len({mutant.sentence for mutant in RULES}) == len(RULES)


class Place:
    """Something to be patched."""

    one = 1
    two = 2

    @property
    def three(self) -> int:
        return 3


class OtherPlace:
    one = 1


def test_patches_are_put_back_as_they_were() -> None:
    three = Place.__dict__["three"]
    switch = together(
        patch(Place, one=10, three=property(nothing)), patch_all((Place, OtherPlace), one=11)
    )
    with switch():
        assert (Place.one, OtherPlace.one) == (11, 11)
        assert not Place().three
        assert Place.two == 2
    assert (Place.one, OtherPlace.one, Place().three) == (1, 1, 3)
    assert Place.__dict__["three"] is three


def test_what_is_not_there_cannot_be_patched() -> None:
    with pytest.raises(KeyError), patch(Place, four=4)():
        pass


NOTICED = {
    "wait-for-followers": 0,
    "epoch-entry-at-election": 0,
    "count-joining-replica": 0,
    "one-fetcher": 0,
    "eligible-below-the-minimum": 0,
    "trust-clean-restarts-only": 0,
    "read-to-the-mark": 0,
    "truncate-by-leader-epoch": 2,
    "keep-what-one-has-acknowledged": 4,
}
"""Rules that are missed soon, and by which seed. Plans are drawn anew when drawing changes: so a
rule may take the seeds up to that one, and two more."""


@pytest.mark.parametrize("name", NOTICED)
def test_a_rule_that_is_left_out_is_missed(name: str) -> None:
    for seed in range(NOTICED[name] + 3):
        broken = run_without(name, draw_plan(seed), stop_at_violation=True).violations
        if {violation.invariant for violation in broken} & set(MUTANTS[name].expected):
            return
    pytest.fail(f"Nothing has missed {name}.")
