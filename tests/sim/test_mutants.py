"""Every rule can be switched off and on again, and leaving one out is noticed."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from strandline.sim.checkers.invariants import BUG, INVARIANTS
from strandline.sim.options import draw_plan
from tests.sim.mutants import MUTANTS, Mutant, UnknownMutant, mutated
from tests.sim.mutants.mutant import nothing, patch, patch_all, together
from tests.sim.mutants.running import run_without

RULES = list(MUTANTS.values())


def code() -> Iterator[tuple[str, str, Any]]:
    """All that a patch could have replaced: what modules and classes of the brokers hold."""
    for name, module in sorted(sys.modules.items()):
        if not name.startswith("strandline.") or name.startswith("strandline.sim"):
            continue
        for attribute, value in list(vars(module).items()):
            if attribute.startswith("__"):
                continue
            yield name, attribute, value
            if isinstance(value, type) and value.__module__ == name:
                for member, inner in list(vars(value).items()):
                    yield f"{name}.{attribute}", member, inner


def snapshot() -> dict[tuple[str, str], int]:
    return {(place, name): id(value) for place, name, value in code()}


def test_switching_a_rule_off_and_on_again_leaves_no_trace() -> None:
    before = snapshot()
    for mutant in RULES:
        with mutated(mutant.name):
            during = snapshot()
            assert during != before, mutant.name
        assert snapshot() == before, mutant.name


def test_a_rule_is_on_again_after_an_error() -> None:
    before = snapshot()
    with pytest.raises(ZeroDivisionError), mutated(RULES[0].name):
        raise ZeroDivisionError
    assert snapshot() == before


def test_nothing_is_switched_off_without_a_name() -> None:
    before = snapshot()
    with mutated(None):
        assert snapshot() == before


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
