"""`python -m tests.sim.mutants`: what one run without a rule prints, and the table of all."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from strandline.cli.main import cli
from strandline.replication.leader import Leader
from strandline.sim.plan import Plan
from strandline.sim.text import parse_plan
from tests.sim.mutants import MUTANTS, command
from tests.sim.mutants.mutant import Mutant, patch
from tests.sim.mutants.mutation_table import Row

QUIET = """\
title: Nothing happens
world: cluster
seed: 5
settings: zookeeper.session.timeout.ms=1000 replica.lag.time.max.ms=1000
phases: safety=1s
topic t partitions=1 replication=3
client producer p1 topic=t acks=all every=50ms
"""


def run(*arguments: str) -> Result:
    """The command, in this process."""
    return CliRunner().invoke(command.mutants, arguments)


@pytest.fixture
def commits_alone(monkeypatch: pytest.MonkeyPatch) -> str:
    """A rule that is missed by a small plan, for which all seeds stand."""

    def draw(seed: int, profile: str | None = None) -> Plan:
        plan = parse_plan(QUIET)
        return replace(plan, options=replace(plan.options, seed=seed, profile=profile or "strict"))

    mutant = Mutant(
        "commits-alone",
        "A leader waits for those in sync.",
        ("I-14",),
        patch(Leader, next_high_watermark=lambda _leader, _mark, end, *_, **__: end),
    )
    monkeypatch.setattr(command, "draw_plan", draw)
    monkeypatch.setitem(MUTANTS, mutant.name, mutant)
    return mutant.name


def test_a_rule_that_is_left_out_gives_a_scenario_that_is_meant_to_fail(
    commits_alone: str, tmp_path: Path
) -> None:
    path = tmp_path / "mutant.txt"
    shrunk = run("run", commits_alone, "--seed", "5", "--shrink", "--out", str(path))
    assert shrunk.exit_code == 1
    assert f"Play it: python -m tests.sim.mutants play {path}\n" in shrunk.stderr
    text = path.read_text()
    assert text.startswith("# I-14: ")
    assert "title: Seed 5 breaks I-14\n" in text
    assert "without: commits-alone\n" in text
    assert re.search(r"^violates: .*I-14", text, re.MULTILINE)
    played = run("play", str(path), "--quiet")
    assert (played.exit_code, "I-14 is broken." in played.stdout) == (0, True)
    assert re.search(r"^commits-alone +I-14 +A leader waits", run("rules").stdout, re.MULTILINE)
    refused = CliRunner().invoke(cli, ["sim", "play", str(path)])
    assert refused.exit_code == 2
    assert "leaves out the rule 'commits-alone' of the brokers" in refused.stderr


def test_one_seed_says_how_it_is_run_again(commits_alone: str) -> None:
    ended = run("run", commits_alone, "--seed", "5")
    assert ended.exit_code == 1
    assert "I-14 is broken." in ended.stdout
    assert ended.stdout.endswith(
        "Again:   python -m tests.sim.mutants run commits-alone --seed 5\n"
        "Shorter: python -m tests.sim.mutants run commits-alone --seed 5 --shrink\n"
    )


def test_seeds_are_run_in_processes_without_the_rule() -> None:
    ended = run("run", "read-to-the-mark", "--seeds", "1")
    assert ended.exit_code == 1
    assert "Again:   python -m tests.sim.mutants run read-to-the-mark --seed 0\n" in ended.stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("run", "sense", "--seed", "1"), "There is no rule 'sense'; see"),
        (("run", "read-to-the-mark"), "Say --seed N or --seeds COUNT."),
        (("table", "--rule", "sense"), "'--rule': There is no rule 'sense'; see"),
        (("table", "--markdown", "--json"), "Say either --markdown or --json."),
    ],
)
def test_a_wrong_command_line_is_a_sentence(arguments: tuple[str, ...], sentence: str) -> None:
    ended = run(*arguments)
    assert ended.exit_code == 2
    assert sentence in " ".join(ended.stderr.split())


# -- The table --------------------------------------------------------------------------------


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table in which the last rule is not missed."""
    rows = [
        Row("one", "The first rule.", ("I-14",), ("I-14", "I-23"), 5, 6),
        Row("two", "The second rule.", ("I-46",), (), None, 200),
        Row("three", "The third rule.", (), (), None, 200, "Another rule is behind it."),
    ]

    def made_up(_: Any, *, told: Callable[[Row], None], **__: Any) -> list[Row]:
        for row in rows:
            told(row)
        return rows

    monkeypatch.setattr(command, "mutation_table", made_up)


@pytest.mark.usefixtures("table")
def test_the_mutation_table() -> None:
    ended = run("table", "--seeds", "200")
    assert (ended.exit_code, ended.stdout) == (
        1,
        "one: I-14 I-23 at seed 5, 6 seeds needed\n"
        "two: nothing noticed in 200 seeds\n"
        "three: no run can notice. Another rule is behind it.\n"
        "1 of 3 rules were missed.\n",
    )


@pytest.mark.usefixtures("table")
def test_the_mutation_table_for_a_page() -> None:
    ended = run("table", "--markdown")
    assert ended.stdout == (
        "| left out | the rule | noticed by | seeds needed |\n"
        "|---|---|---|---|\n"
        "| `one` | The first rule. | I-14, I-23 | 6 |\n"
        "| `two` | The second rule. | nothing | more than 200 |\n"
        "| `three` | The third rule. | Another rule is behind it. | no run |\n"
    )
    assert ended.exit_code == 1


@pytest.mark.usefixtures("table")
def test_the_mutation_table_as_json() -> None:
    assert [row["seed"] for row in json.loads(run("table", "--json").stdout)] == [5, None, None]


def test_the_rules_as_json() -> None:
    assert [each["rule"] for each in json.loads(run("rules", "--json").stdout)] == list(MUTANTS)
