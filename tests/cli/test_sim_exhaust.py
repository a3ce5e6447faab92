"""`strandline sim exhaust`: everything that a small cluster can do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Run = Callable[..., Any]
SMALL = ("--replicas", "2", "--records", "1", "--crashes", "0", "--losses", "0", "--expiries", "0")
TWO_EPOCHS = (*SMALL, "--epochs", "2")


def test_everything_is_searched_and_nothing_can_break(alone: Run) -> None:
    ended = alone("sim", "exhaust", *TWO_EPOCHS)
    assert ended.code == 0
    assert ended.out.endswith(" deep: that is everything, and nothing can break.\n")


def test_more_is_searched_in_a_larger_world(alone: Run) -> None:
    small = alone("sim", "exhaust", *SMALL, "--epochs", "1", "--json").json
    large = alone("sim", "exhaust", *TWO_EPOCHS, "--json").json
    assert small["complete"] is large["complete"] is True
    assert small["states"] < large["states"]


def test_a_search_can_be_limited(alone: Run) -> None:
    ended = alone("sim", "exhaust", *TWO_EPOCHS, "--states", "10")
    assert ended.code == 0
    assert ended.out.endswith(" deep: nothing broke so far, but there is more.\n")


RULE = ("--without", "mark-never-back")


@pytest.fixture
def broken(alone: Run) -> Any:
    """A search without a rule that this small world misses."""
    return alone("sim", "exhaust", *TWO_EPOCHS, *RULE)


def test_without_a_rule_there_is_a_way_to_break_something(broken: Any) -> None:
    assert broken.code == 1
    lines = broken.out.splitlines()
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
def test_a_wrong_command_line_is_a_sentence(
    arguments: tuple[str, ...], sentence: str, alone: Run
) -> None:
    ended = alone("sim", "exhaust", *arguments)
    assert ended.code == 2
    assert sentence in " ".join(ended.err.split())
