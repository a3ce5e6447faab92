"""Runs without a rule: one plan, or one seed in whatever process."""

from __future__ import annotations

from functools import partial
from typing import Any

from strandline.sim.plan import Plan
from strandline.sim.run import run
from strandline.sim.sweep import SeedResult, run_seed
from strandline.sim.verdict import Verdict
from tests.sim.mutants import mutated


def run_without(rule: str | None, plan: Plan, **options: Any) -> Verdict:
    """Run a plan without a rule; `options` as for `run`."""
    with mutated(rule):
        return run(plan, **options)


def run_seed_without(rule: str, seed: int, profile: str | None = None) -> SeedResult:
    """Run a seed without a rule; the plan is drawn with all of them."""
    return run_seed(seed, profile, partial(run_without, rule))
