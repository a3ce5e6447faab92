"""Limits inside of brokers that are small for the time of one run."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

from strandline.node import rolling_task
from strandline.sim.knobs import KNOBS, turned
from strandline.sim.options import draw_plan
from strandline.sim.plan import ClientSpec, Options, Plan, TopicSpec
from strandline.sim.run import run
from strandline.sim.scenarios.script import BadScript
from strandline.sim.text import parse_plan
from strandline.storage import batch_scan, recovery


@pytest.mark.parametrize("knob", KNOBS)
def test_every_knob_makes_a_limit_smaller(knob: str) -> None:
    path, _, name = knob.rpartition(".")
    there = getattr(import_module(f"strandline.{path}"), name)
    assert isinstance(there, int)
    assert all(0 < value < there for value in KNOBS[knob])


def test_a_knob_is_turned_wherever_it_was_imported_and_back() -> None:
    def sizes() -> tuple[int, int]:
        imported = vars(recovery)["SCAN_CHUNK_BYTES"]
        return batch_scan.SCAN_CHUNK_BYTES, imported

    former = sizes()
    with turned({"storage.batch_scan.SCAN_CHUNK_BYTES": 62}):
        assert sizes() == (62, 62)
    assert sizes() == former


def test_nothing_of_brokers_is_imported_while_a_knob_is_turned() -> None:
    """It would keep the small value for the runs behind it. In a process of its own, where nothing
    is imported yet but the simulator."""
    script = """
import sys
from strandline.sim.knobs import KNOBS, turned
from strandline.sim.options import draw_plan
from strandline.sim.run import run
with turned({"node.rolling_task.SYNCS_PER_TURN": 1}):
    before = {name for name in sys.modules if name.startswith("strandline.node.")}
    run(draw_plan(3))
    after = {name for name in sys.modules if name.startswith("strandline.node.")}
assert len(before) > 100 and after == before, sorted(after - before)
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_run_has_the_knobs_of_its_plan_and_leaves_none_behind() -> None:
    seen: list[int] = []
    knobs = {name: values[0] for name, values in KNOBS.items()}
    options = Options(seed=3, topics=(TopicSpec("t"),), safety_us=1_000_000, knobs=knobs)
    plan = Plan(options, (ClientSpec("producer", "p1", {"topic": "t", "idempotent": "yes"}),))
    former = rolling_task.SYNCS_PER_TURN
    verdict = run(plan, on_end=lambda _: seen.append(rolling_task.SYNCS_PER_TURN))
    assert verdict.violations == ()
    assert seen == [1]
    assert former == rolling_task.SYNCS_PER_TURN


def test_some_seeds_turn_none_and_some_turn_all() -> None:
    counts = [len(draw_plan(seed).options.knobs) for seed in range(60)]
    assert 10 < counts.count(0) < 50
    assert counts.count(len(KNOBS)) > 3


def test_a_plan_names_knobs_that_there_are() -> None:
    text = "world: cluster\nseed: 1\nknobs: {}=1\n"
    name = "node.rolling_task.SYNCS_PER_TURN"
    assert parse_plan(text.format(name)).options.knobs == {name: 1}
    with pytest.raises(BadScript, match="is no knob"):
        parse_plan(text.format("node.rolling_task.NOTHING"))
