"""`strandline sim`: which options go together, and what one run and many print."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from strandline.cli import sim_run, sim_sweep
from strandline.cli.sim_progress import ProgressBar
from strandline.replication.leader import Leader
from strandline.sim.checkers.violations import Violation
from strandline.sim.clients.producer import Producer
from strandline.sim.options import draw_plan
from strandline.sim.plan import Plan
from strandline.sim.sometimes import STATES
from strandline.sim.sweep import SeedResult, SweepResult
from strandline.sim.text import parse_plan
from strandline.types import Offset
from strandline.version import VERSION

Run = Callable[..., Any]


def test_without_anything_it_explains_itself(alone: Run) -> None:
    ended = alone("sim")
    assert ended.code == 0
    for word in ("--seed N", "--seeds COUNT", "--shrink", "play"):
        assert word in ended.out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--profile", "safe"), "Which seed?"),
        (("--seed", "-1"), "'--seed': -1 is not in the range"),
        (("--seed", "x"), "'--seed'"),
        (("--seed", "1", "--seeds", "2"), "--seeds does not go with --seed."),
        (("--seed", "1", "--jobs", "2"), "--jobs does not go with --seed."),
        (("--seed", "1", "--from", "2"), "--from does not go with --seed."),
        (("--seed", "1", "--twice"), "--twice does not go with --seed."),
        (("--seed", "1", "--minutes", "2"), "--minutes goes with --shrink or several seeds."),
        (("--seed", "1", "--plan", "--shrink"), "Say either --plan or --shrink."),
        (("--seed", "1", "--plan", "--json"), "Say either --plan or --json."),
        (("--seed", "1", "--out", "x"), "--out goes with --shrink or --plan."),
        (("--seed", "1", "--profile", "wild"), "'wild' is not one of"),
        (("--seeds", "0"), "'--seeds': 0 is not in the range"),
        (("--seeds", "1", "--jobs", "0"), "'--jobs': 0 is not in the range"),
        (("--seeds", "1", "--minutes", "0"), "'--minutes'"),
        (("--seeds", "1", "--shrink"), "--shrink does not go with several seeds."),
        (("--seeds", "1", "--verbose"), "--verbose does not go with several seeds."),
        (("--seed", "1", "play"), "Options of a run do not go with 'play'."),
        (("fly",), "fly"),
    ],
)
def test_a_wrong_command_line_is_a_sentence_that_names_the_option(
    arguments: tuple[str, ...], sentence: str, alone: Run
) -> None:
    ended = alone("sim", *arguments)
    assert ended.code == 2
    assert sentence in " ".join(ended.err.split())


def test_the_simulator_is_not_imported_before_it_is_needed() -> None:
    code = (
        "import sys\nfrom strandline.cli.main import cli\n"
        "cli(['sim', '--help'], standalone_mode=False)\n"
        "assert not [name for name in sys.modules if name.startswith('strandline.sim')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=240)


# -- One run ----------------------------------------------------------------------------------

QUIET = """\
title: Nothing happens
world: cluster
seed: 5
settings: zookeeper.session.timeout.ms=1000 replica.lag.time.max.ms=1000
phases: safety=1s
topic t partitions=1 replication=3
client producer p1 topic=t acks=all every=50ms
"""


@pytest.fixture
def quiet_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeds stand for a small plan in which nothing goes wrong."""

    def draw(seed: int, profile: str | None = None) -> Plan:
        plan = parse_plan(QUIET)
        options = replace(plan.options, seed=seed, profile=profile or "safe")
        return replace(plan, options=options)

    monkeypatch.setattr(sim_run, "draw_plan", draw)


@pytest.mark.usefixtures("quiet_plan")
def test_one_seed_prints_the_options_the_verdict_and_a_line_per_replica(alone: Run) -> None:
    ended = alone("sim", "--seed", "5")
    assert ended.code == 0, ended.out
    assert ended.out.startswith(
        "seed: 5\nprofile: safe\n"
        "settings: zookeeper.session.timeout.ms=1000 replica.lag.time.max.ms=1000\n"
    )
    for phase in ("building", "safety", "liveness", "end"):
        assert f"\n{phase:10} until " in ended.out
    assert "\nNo invariant was broken.\n" in ended.out
    assert len([line for line in ended.out.splitlines() if line.startswith("t-0 ")]) == 3
    assert " states: " in ended.out
    assert " events and " in ended.out
    assert "Again:" not in ended.out


@pytest.mark.usefixtures("quiet_plan")
def test_the_same_seed_prints_the_same_but_for_the_time_that_it_took(alone: Run) -> None:
    def lines() -> list[str]:
        shown = alone("sim", "--seed", "5", "--verbose").out.splitlines()
        return [line for line in shown if " s of CPU" not in line]

    first = lines()
    assert first == lines()
    assert any(line.startswith("Trace ") for line in first)
    assert any(line.endswith(": safety is over") for line in first)


@pytest.mark.usefixtures("quiet_plan")
def test_one_seed_as_json(alone: Run) -> None:
    found = alone("sim", "--seed", "5", "--profile", "beyond", "--json").json
    assert (found["seed"], found["profile"], found["violations"]) == (5, "beyond", [])
    assert found["events"] > 100
    assert found["simulated_us"] > 1_000_000
    assert [phase["name"] for phase in found["phases"]][:2] == ["building", "safety"]
    assert {row["broker"] for row in found["replicas"]} == {1, 2, 3}
    assert parse_plan(found["plan"]).options.profile == "beyond"


def test_a_plan_is_printed_or_written_and_can_be_played(alone: Run, tmp_path: Path) -> None:
    shown = alone("sim", "--seed", "5", "--plan").out
    assert parse_plan(shown) == draw_plan(5)
    path = tmp_path / "plan.txt"
    ended = alone("sim", "--seed", "5", "--plan", "--out", str(path))
    assert (ended.code, ended.out, path.read_text()) == (0, "", shown)


def test_a_file_that_cannot_be_written_is_a_sentence(alone: Run, tmp_path: Path) -> None:
    ended = alone("sim", "--seed", "5", "--plan", "--out", str(tmp_path))
    assert ended.code == 2
    assert "is a directory" in ended.err


# -- A run that goes wrong --------------------------------------------------------------------


@pytest.fixture
def commits_alone(monkeypatch: pytest.MonkeyPatch, quiet_plan: None) -> None:
    """Leaders that call everything committed at once."""

    def next_high_watermark(
        leader: Leader, mark: Offset, end: Offset, *_: object, **__: object
    ) -> Offset:
        return end

    monkeypatch.setattr(Leader, "next_high_watermark", next_high_watermark)


@pytest.mark.usefixtures("commits_alone")
def test_a_failure_says_everything_that_is_needed_to_repeat_it(alone: Run) -> None:
    ended = alone("sim", "--seed", "5", "--profile", "safe")
    assert ended.code == 1
    assert "I-14 is broken. Every member of the in-sync set has all that any leader" in ended.out
    assert "\nThe last events:\n" in ended.out
    assert "seed 5." in ended.out
    assert ended.out.endswith(
        "Again:   strandline sim --seed 5 --profile safe\n"
        "Shorter: strandline sim --seed 5 --profile safe --shrink\n"
    )


@pytest.mark.usefixtures("commits_alone")
def test_a_failure_is_shrunk_to_a_scenario_that_fails(alone: Run, tmp_path: Path) -> None:
    path = tmp_path / "failing.txt"
    ended = alone("sim", "--seed", "5", "--shrink", "--out", str(path))
    assert ended.code == 1
    text = path.read_text()
    assert len(text.splitlines()) < 20
    assert "title: Seed 5 breaks I-14\n" in text
    assert f"Play it: strandline sim play {path}\n" in ended.err
    again = alone("sim", "play", str(path), "--quiet")
    assert again.code == 1
    assert "I-14 is broken." in again.out


@pytest.fixture
def found_by_a_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client finds something while faults go on; it counts only when the run is judged."""
    true_start = Producer.start

    def start(self: Producer) -> None:
        true_start(self)
        self.found("I-47", "nothing is as it should be")

    monkeypatch.setattr(Producer, "start", start)


@pytest.mark.usefixtures("quiet_plan", "found_by_a_client")
def test_what_a_client_has_found_is_shrunk_too(alone: Run) -> None:
    ended = alone("sim", "--seed", "5", "--shrink")
    assert ended.code == 1
    assert "title: Seed 5 breaks I-47\n" in ended.out


@pytest.mark.usefixtures("commits_alone", "found_by_a_client")
def test_what_is_seen_at_once_is_shrunk_rather_than_what_a_client_saw_before(alone: Run) -> None:
    ended = alone("sim", "--seed", "5", "--shrink")
    assert ended.code == 1
    assert "title: Seed 5 breaks I-14\n" in ended.out


@pytest.mark.usefixtures("quiet_plan")
def test_where_nothing_fails_there_is_nothing_to_shrink(alone: Run) -> None:
    ended = alone("sim", "--seed", "5", "--shrink")
    assert (ended.code, ended.out) == (0, "")
    assert ended.err == "Seed 5 breaks no invariant: there is nothing to shrink.\n"


# -- Many runs --------------------------------------------------------------------------------


@pytest.fixture
def no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep whose seeds are made up: every tenth one fails."""

    def fake(seeds: Iterable[int], *, told: Callable[[SeedResult], None], **_: Any) -> SweepResult:
        result = SweepResult(wall_s=2.0, compared=3)
        for seed in islice(seeds, 100):
            broken = (Violation("I-14", f"seed {seed} lacks something", 5),)
            each = SeedResult(
                seed,
                "safe",
                broken if seed % 10 == 7 else (),
                {"leader changes": 1, "topic deleted": 0, "twin": int(seed == 3)},
                events=1_000,
                simulated_us=20_000_000,
                cpu_s=0.1,
            )
            result.add(each)
            told(each)
        return result

    monkeypatch.setattr(sim_sweep, "sweep", fake)


@pytest.mark.usefixtures("no_processes")
def test_many_seeds_give_a_summary(alone: Run) -> None:
    ended = alone("sim", "--seeds", "100", "--from", "1", "--profile", "safe")
    assert ended.code == 1
    lines = ended.out.splitlines()
    assert lines[0] == "Seed 7: I-14 seed 7 lacks something"
    assert lines[10:] == [
        "100 seeds from 1 on, in 2.0 s with 1 process; 3 of them twice, to compare the traces.",
        "I-14 is broken by 10 seeds. "
        "Every member of the in-sync set has all that any leader calls committed.",
        "    7 17 27 37 47 57 67 77 87 97",
        "2 of 3 states were reached.",
        "In few seeds: twin 1",
        "Not reached: topic deleted",
        "100,000 events and 2,000.0 simulated seconds in 10.00 s of CPU: 10,000 events/s, "
        "200 simulated s/s.",
        f"Strandline {VERSION}.",
        "Again:   strandline sim --seed 7 --profile safe",
        "Shorter: strandline sim --seed 7 --profile safe --shrink",
    ]


@pytest.mark.usefixtures("no_processes")
def test_many_seeds_as_json(alone: Run) -> None:
    ended = alone("sim", "--seeds", "8", "--json")
    assert ended.code == 1
    assert ended.json["bad"] == {"I-14": [7]}
    assert ended.json["never_reached"] == ["topic deleted"]
    assert (ended.json["seeds"], ended.json["events"]) == (8, 8_000)


@pytest.mark.usefixtures("no_processes")
def test_good_seeds_end_with_0(alone: Run) -> None:
    ended = alone("sim", "--seeds", "5")
    assert ended.code == 0
    assert "No invariant was broken." in ended.out
    assert "Again" not in ended.out


def test_a_state_that_enough_seeds_never_reach_ends_with_1(
    alone: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    counters = dict.fromkeys(STATES, 1) | {"fault twin": 0, "topic deleted": 0}

    def fake(seeds: Iterable[int], **_: Any) -> SweepResult:
        result = SweepResult()
        for seed in seeds:
            result.add(SeedResult(seed, "safe", counters=counters))
        return result

    monkeypatch.setattr(sim_sweep, "sweep", fake)
    ended = alone("sim", "--seeds", "500")
    assert ended.code == 1
    assert (
        "500 seeds have not reached 2 states: topic deleted, fault twin. 500 seeds or more must "
        "reach all of them, since what is never reached is not tested."
    ) in ended.out
    assert sorted(alone("sim", "--seeds", "500", "--json").json["missed"]) == [
        "fault twin",
        "topic deleted",
    ]
    assert alone("sim", "--seeds", "499").code == 0


def test_a_real_sweep_with_processes() -> None:
    ended = subprocess.run(
        [
            sys.executable,
            "-m",
            "strandline.cli",
            "sim",
            "--seeds",
            "2",
            "--jobs",
            "2",
            "--twice",
            "--json",
        ],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    found = json.loads(ended.stdout)
    assert found["seeds"] == 2
    assert found["compared"] == 2
    assert found["events"] > 100
    assert ended.returncode == bool(found["bad"])


# -- Progress ---------------------------------------------------------------------------------


def test_the_bar_says_how_far_it_is() -> None:
    bar = ProgressBar(10, "seeds")
    assert bar.text().startswith(f"[{'-' * 30}] 0 of 10 seeds, 0 s left")
    for _ in range(5):
        bar.advance(", 1 failed")
    assert bar.text().startswith(f"[{'#' * 15}{'-' * 15}] 5 of 10 seeds, ")
    assert bar.text().endswith("s left, 1 failed")
    endless = ProgressBar(None, "seeds")
    endless.advance()
    assert endless.text() == "1 seeds in 0 s"
