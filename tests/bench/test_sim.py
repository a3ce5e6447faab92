"""The bench of the simulator: what samples come to, and that it measures what it says."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bench import sim
from bench.sim import Figures, Sample, page
from strandline.sim.options import draw_plan

GOOD = Sample(
    seed=7,
    events=30_000,
    simulated_s=60.0,
    checked_s=2.0,
    unchecked_s=1.0,
    is_good=True,
    is_same=True,
)


def test_rates_are_totals_over_totals() -> None:
    slow = replace(GOOD, seed=8, events=10_000, simulated_s=20.0, checked_s=3.0, unchecked_s=1.5)
    figures = Figures.of([GOOD, slow])
    assert figures.events == 40_000
    assert figures.events_per_second == 8_000
    assert figures.unchecked_events_per_second == 16_000
    assert figures.simulated_per_second == 16
    assert figures.seeds_per_second == 0.4
    assert figures.checkers_share == 0.5
    assert figures.seed_cpu_s_median == 2.5
    assert figures.seed_cpu_s_max == 3.0
    text = page(figures, [GOOD, slow])
    assert "| checked events/s | 8,000 |" in text
    assert "checked events/s on one core: 8,000, goal >= 10000: missed" in text
    assert text.splitlines()[-2:] == [sim.line_of(slow), sim.line_of(GOOD)]


def test_goals_that_are_met_say_so() -> None:
    figures = Figures.of([replace(GOOD, simulated_s=100.0)])
    text = page(figures, [GOOD])
    assert "simulated seconds per second: 50, goal >= 50: met" in text
    assert "15,000, goal >= 10000: met" in text


def test_what_went_wrong_is_said_and_is_the_exit_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for sample, words in (
        (replace(GOOD, is_good=False), "An invariant was broken in seed 7."),
        (replace(GOOD, is_same=False), "The checkers changed what happens in seed 7."),
        (GOOD, None),
    ):
        monkeypatch.setattr(sim, "measure", lambda *_, sample=sample: iter([sample]))
        assert sim.main(["--json", str(tmp_path / "out.json")]) == (words is not None)
        printed = capsys.readouterr().out
        assert words is None or words in printed
    (sample,) = json.loads((tmp_path / "out.json").read_text())["samples"]
    assert sample["seed"] == 7


def test_a_seed_is_measured_with_and_without_checkers() -> None:
    times = iter((0.0, 3.0, 10.0, 14.0))
    (sample,) = sim.measure([draw_plan(1)], clock=lambda: next(times))
    assert (sample.checked_s, sample.unchecked_s) == (3.0, 4.0)
    assert sample.events > 1000
    assert sample.simulated_s > 1
    assert sample.is_same


@pytest.mark.parametrize("seeds", ["0", "-1", "many"])
def test_no_seeds_make_no_sense(seeds: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        sim.main([f"--seeds={seeds}"])
    assert "is not a number of seeds" in capsys.readouterr().err


def test_a_plan_is_measured_instead_of_seeds(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    plan = tmp_path / "plan.txt"
    text = Path("bench/default-timers.txt").read_text()
    plan.write_text(text.replace("safety=600s", "safety=5s").split("at 60s")[0])
    assert sim.main(["--plan", str(plan)]) == 0
    assert "| seeds | 1 |" in capsys.readouterr().out
