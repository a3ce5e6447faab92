"""The test of the test: each safety rule is left out, and some invariant must notice.

For each rule seeds are run without it until one breaks an invariant. What a seed breaks with all
rules in place, too, proves nothing and does not count; nor does a failure of the simulator itself.
A rule that no seed misses is watched too weakly, never put to the test, or not needed.

This file knows the order of things and the table; the runs are in `strandline.sim.sweep`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

from strandline.sim.sweep import HARNESS, SeedResult, run_seed, sweep
from tests.sim.mutants import MUTANTS, Mutant
from tests.sim.mutants.running import run_seed_without


class Row(NamedTuple):
    """What came of leaving out one rule."""

    rule: str
    sentence: str
    expected: tuple[str, ...]
    """The invariants that should notice."""
    caught_by: tuple[str, ...]
    """Those that noticed, in the first seed that broke any."""
    seed: int | None
    seeds_needed: int
    """How many seeds were run until then; all, if none noticed."""
    remark: str = ""
    """Why no run can notice, for a rule of which that is known."""

    @property
    def is_caught(self) -> bool:
        """Whether anything noticed."""
        return self.seed is not None

    @property
    def is_in_order(self) -> bool:
        """Whether something noticed, or nothing can."""
        return self.is_caught or not self.expected


def mutation_table(
    seeds: Sequence[int],
    *,
    jobs: int = 1,
    rules: Iterable[str] | None = None,
    told: Callable[[Row], None] = lambda _: None,
    stop: Callable[[], bool] = lambda: False,
) -> list[Row]:
    """A row for each rule, in their order; `told` hears of each as it is ready."""
    rows = []
    healthy = _Healthy()
    for name in MUTANTS if rules is None else rules:
        if stop():
            break
        row = _row(MUTANTS[name], seeds, jobs, healthy, stop)
        rows.append(row)
        told(row)
    return rows


def _row(
    mutant: Mutant, seeds: Sequence[int], jobs: int, healthy: _Healthy, stop: Callable[[], bool]
) -> Row:
    caught: dict[int, tuple[str, ...]] = {}

    def told(result: SeedResult) -> None:
        broken = dict.fromkeys(violation.invariant for violation in result.violations)
        new = tuple(name for name in broken if name not in healthy.broken_by(result.seed))
        if new:
            caught[result.seed] = new

    # Seeds are begun in their order, and those that were begun are run to their end: so the
    # smallest that is caught is the first one, whatever the number of processes.
    result = sweep(
        seeds,
        jobs=jobs,
        runner=partial(run_seed_without, mutant.name),
        told=lambda each: None if each.is_good else told(each),
        stop=lambda: bool(caught) or stop(),
    )
    seed = min(caught, default=None)
    return Row(
        mutant.name,
        mutant.sentence,
        mutant.expected,
        () if seed is None else caught[seed],
        seed,
        result.seeds if seed is None else seeds.index(seed) + 1,
        mutant.remark,
    )


class _Healthy:
    """What seeds break with all rules in place; asked only for those that break something."""

    def __init__(self) -> None:
        self._known: dict[int, frozenset[str]] = {}

    def broken_by(self, seed: int) -> frozenset[str]:
        """The invariants, and that which stands for a failure of the simulator itself."""
        if seed not in self._known:
            violations = run_seed(seed).violations
            self._known[seed] = frozenset({HARNESS, *(each.invariant for each in violations)})
        return self._known[seed]
