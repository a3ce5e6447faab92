"""Situations that are made for one rule: without it they go wrong, with it they do not.

Random seeds come to them rarely. Each plan in `without/` names a rule; a few rules share one.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from strandline.sim.run import run
from strandline.sim.scenarios.script import parse_script
from strandline.sim.text import PlanScript, read_plan
from tests.sim.mutants import MUTANTS
from tests.sim.mutants.running import run_without

PLANS = sorted(Path(__file__).with_name("without").glob("*.txt"))
SEEDS = 4
"""Times within a situation are drawn, so not every seed hits the moment."""

ALSO = {
    "a_late_proposal": (
        "name-broker-epochs",
        "withdraw-what-is-open",
        "members-are-eligible",
    ),
    "deleted_and_elected": ("follow-the-log-start",),
    "compacted_all_the_time": (
        "compact-what-is-committed",
        "remember-last-batches",
        "swaps-are-durable",
    ),
    "a_hole_in_a_batch": ("check-what-is-recovered",),
    "the_last_one_standing": ("remember-eligible-leaders",),
    "transactions_of_two_kinds": (
        "abort-what-is-open",
        "verify-the-first-batch",
        "mark-all-partitions",
        "offsets-with-the-marker",
        "stop-at-open-transactions",
        "tell-what-is-aborted",
    ),
    "a_token_that_ended": ("keep-tokens-before-telling", "remove-tokens-before-telling"),
    "an_intruder": ("ask-before-reading", "brokers-need-cluster-action"),
    "decided_alone": ("finish-what-is-decided", "decide-when-all-is-loaded"),
}


def read(path: Path) -> PlanScript:
    return read_plan(parse_script(path.name, path.read_text(encoding="utf-8")))


def pairs() -> list[tuple[Path, str]]:
    return [
        (path, rule)
        for path in PLANS
        for rule in (read(path).without or "", *ALSO.get(path.stem, ()))
    ]


@pytest.mark.parametrize(("path", "rule"), pairs(), ids=lambda value: getattr(value, "stem", value))
def test_without_the_rule_it_goes_wrong(path: Path, rule: str) -> None:
    script = read(path)
    expected = {*script.violates, *MUTANTS[rule].expected}
    first = script.plan.options.seed
    for seed in range(first, first + SEEDS):
        plan = replace(script.plan, options=replace(script.plan.options, seed=seed))
        broken = run_without(rule, plan, stop_at_violation=True).violations
        if {violation.invariant for violation in broken} & expected:
            return
    pytest.fail(f"None of {SEEDS} seeds has missed {rule}.")


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_with_all_rules_it_goes_well(path: Path) -> None:
    assert not run(read(path).plan).violations


def test_every_plan_names_a_rule() -> None:
    assert PLANS
    assert {rule for _, rule in pairs()} <= MUTANTS.keys()
