"""Scenarios of whole clusters go as they say: no trace beside them, for every line of code that
changes a message would change it; but the same trace twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.sim.expectations import Expectations
from strandline.sim.scenarios.script import CLUSTER, load_script
from strandline.sim.text import read_plan
from tests.sim.mutants.running import run_without

SCRIPTS = [
    path
    for path in sorted(Path(__file__).parent.glob("*.txt"))
    if load_script(path).world == CLUSTER
]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    script = read_plan(load_script(path))
    traces = set()
    for _ in range(2):
        expectations = Expectations(script)
        verdict = run_without(
            script.without,
            script.plan,
            on_expect=expectations.at_its_time,
            on_end=expectations.at_the_end,
        )
        assert expectations.judge(verdict), (expectations.unmet, verdict.violations)
        traces.add(verdict.trace_hash)
    assert len(traces) == 1


def test_there_are_some() -> None:
    assert len(SCRIPTS) >= 2
