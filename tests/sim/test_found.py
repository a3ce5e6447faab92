"""Runs in which an invariant was broken once, made short: all is well in them now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from strandline.sharing.partition import SharePartition
from strandline.sharing.values import Acquired
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


def test_a_share_group_that_is_stuck_is_not_given_time_for_what_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    acquire = SharePartition.acquire
    answers = iter(range(40))

    def acquires_for_a_while(partition: SharePartition, *args: Any, **more: Any) -> list[Acquired]:
        return [] if next(answers, None) is None else acquire(partition, *args, **more)

    monkeypatch.setattr(SharePartition, "acquire", acquires_for_a_while)
    verdict = play(FOUND / "a_share_group_has_much_left.txt")
    assert [each.invariant for each in verdict.violations] == ["I-59"]
