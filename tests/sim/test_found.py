"""Runs in which an invariant was broken once, made short: all is well in them now."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.sim.run import run
from strandline.sim.scenarios.script import parse_script
from strandline.sim.text import read_plan
from strandline.sim.verdict import Verdict

FOUND = Path(__file__).with_name("found")


def play(path: Path) -> Verdict:
    return run(read_plan(parse_script(path.name, path.read_text(encoding="utf-8"))).plan)


@pytest.mark.parametrize("path", sorted(FOUND.glob("*.txt")), ids=lambda path: path.stem)
def test_all_is_well_in_what_went_wrong_once(path: Path) -> None:
    assert play(path).violations == ()


def test_what_has_rotted_reaches_its_reader() -> None:
    verdict = play(FOUND / "what_has_rotted_is_sent.txt")
    assert verdict.counters["client: damaged records"] > 0
