"""The table of rules that are left out: what counts as noticed, and from which seed on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest

from strandline.sim.checkers.violations import Violation
from strandline.sim.sweep import HARNESS, SeedResult, SweepResult
from tests.sim.mutants import MUTANTS, Mutant
from tests.sim.mutants import mutation_table as module
from tests.sim.mutants.mutation_table import Row, mutation_table

Breaks = dict[int, tuple[str, ...]]

WITH_ALL_RULES: Breaks = {3: ("I-49",), 4: ("I-49",)}
WITHOUT: dict[str, Breaks] = {
    "first": {3: ("I-49",), 5: ("I-14", "I-23"), 6: ("I-14",)},
    "second": {3: ("I-49", "I-46"), 5: ("I-46",)},
    "third": {3: ("I-49",), 7: (HARNESS,)},
}


def result_of(seed: int, breaks: Breaks) -> SeedResult:
    violations = tuple(Violation(name, "seen", 0) for name in breaks.get(seed, ()))
    return SeedResult(seed, "safe", violations)


@pytest.fixture(autouse=True)
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeds that break what the tables above say. Three of them are always under way."""

    def sweep(
        seeds: Iterable[int],
        *,
        runner: partial[SeedResult],
        told: Callable[[SeedResult], None],
        stop: Callable[[], bool],
        **_: Any,
    ) -> SweepResult:
        result = SweepResult()
        under_way: list[int] = []
        waiting = list(seeds)
        while under_way or (waiting and not stop()):
            while len(under_way) < 3 and waiting and not stop():
                under_way.append(waiting.pop(0))
            each = result_of(under_way.pop(), WITHOUT[runner.args[0]])
            result.add(each)
            told(each)
        return result

    monkeypatch.setattr(module, "sweep", sweep)
    monkeypatch.setattr(module, "run_seed", lambda seed: result_of(seed, WITH_ALL_RULES))
    for name in list(MUTANTS):
        monkeypatch.delitem(MUTANTS, name)
    for name in WITHOUT:
        mutant = Mutant(name, f"The {name} rule.", ("I-14",), nullcontext)
        monkeypatch.setitem(MUTANTS, name, mutant)


def test_a_rule_is_missed_when_something_breaks_that_holds_with_it() -> None:
    told: list[Row] = []
    rows = mutation_table(range(10), told=told.append)
    assert rows == told
    assert [(row.rule, row.caught_by, row.seed, row.seeds_needed) for row in rows] == [
        ("first", ("I-14", "I-23"), 5, 6),
        ("second", ("I-46",), 3, 4),
        ("third", (), None, 10),
    ]
    assert [row.is_caught for row in rows] == [True, True, False]


def test_only_some_rules() -> None:
    assert [row.rule for row in mutation_table(range(10), rules=["third", "first"])] == [
        "third",
        "first",
    ]


def test_it_can_be_stopped() -> None:
    rows: list[Row] = []
    mutation_table(range(10), told=rows.append, stop=lambda: bool(rows))
    assert [row.rule for row in rows] == ["first"]
