"""`python -m tests.sim.modelcheck`: everything that a small cluster can do."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.sim.modelcheck.command import modelcheck

SMALL = ("--replicas", "2", "--records", "1", "--crashes", "0", "--losses", "0", "--expiries", "0")
TWO_EPOCHS = (*SMALL, "--epochs", "2")


def check(*arguments: str) -> Result:
    """The command, in this process."""
    return CliRunner().invoke(modelcheck, arguments)


def test_it_runs_from_a_checkout() -> None:
    """Of this command and of that which leaves out rules."""
    for module in ("tests.sim.modelcheck", "tests.sim.mutants"):
        ended = subprocess.run(
            [sys.executable, "-m", module, "--help"],
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            timeout=240,
            check=True,
        )
        assert ended.stdout.startswith(f"Usage: python -m {module} [OPTIONS]")


def test_everything_is_searched_and_nothing_can_break() -> None:
    ended = check(*TWO_EPOCHS)
    assert ended.exit_code == 0
    assert ended.stdout.endswith(" deep: that is everything, and nothing can break.\n")


def test_more_is_searched_in_a_larger_world() -> None:
    small = json.loads(check(*SMALL, "--epochs", "1", "--json").stdout)
    large = json.loads(check(*TWO_EPOCHS, "--json").stdout)
    assert small["complete"] is large["complete"] is True
    assert small["states"] < large["states"]


def test_a_search_can_be_limited() -> None:
    ended = check(*TWO_EPOCHS, "--states", "10")
    assert ended.exit_code == 0
    assert ended.stdout.endswith(" deep: nothing broke so far, but there is more.\n")


RULE = ("--without", "mark-never-back")


@pytest.fixture
def broken() -> Result:
    """A search without a rule that this small world misses."""
    return check(*TWO_EPOCHS, *RULE)


def test_without_a_rule_there_is_a_way_to_break_something(broken: Result) -> None:
    assert broken.exit_code == 1
    lines = broken.stdout.splitlines()
    assert lines[-1].endswith("; this is a shortest way.")
    assert any(" is broken. " in line for line in lines)
    assert lines[0].startswith("  ")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--replicas", "0"), "'--replicas': 0 is not in the range"),
        (("--states", "0"), "'--states': 0 is not in the range"),
        (("--without", "sense"), "--without: There is no rule 'sense'; there are "),
        (("--mutants", "--json"), "--mutants goes with --states only."),
    ],
)
def test_a_wrong_command_line_is_a_sentence(arguments: tuple[str, ...], sentence: str) -> None:
    ended = check(*arguments)
    assert ended.exit_code == 2
    assert sentence in " ".join(ended.stderr.split())
