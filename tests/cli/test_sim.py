"""`strandline sim`: which options go together, and what one run and many print."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

Run = Callable[..., Any]


def test_without_anything_it_explains_itself(alone: Run) -> None:
    ended = alone("sim")
    assert ended.code == 0
    for word in ("--seed N", "--seeds COUNT", "--shrink", "play", "rules", "mutants", "exhaust"):
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
        (("--seed", "1", "--minutes", "2"), "--minutes goes with --shrink or several seeds."),
        (("--seed", "1", "--plan", "--shrink"), "Say either --plan or --shrink."),
        (("--seed", "1", "--plan", "--json"), "Say either --plan or --json."),
        (("--seed", "1", "--out", "x"), "--out goes with --shrink or --plan."),
        (("--seed", "1", "--profile", "wild"), "'wild' is not one of"),
        (("--seed", "1", "--without", "sense"), "--without: There is no rule 'sense'"),
        (("--seeds", "0"), "'--seeds': 0 is not in the range"),
        (("--seeds", "1", "--jobs", "0"), "'--jobs': 0 is not in the range"),
        (("--seeds", "1", "--minutes", "0"), "'--minutes'"),
        (("--seeds", "1", "--shrink"), "--shrink does not go with several seeds."),
        (("--seeds", "1", "--verbose"), "--verbose does not go with several seeds."),
        (("--seeds", "1", "--without", "sense"), "--without: There is no rule 'sense'"),
        (("--seed", "1", "rules"), "Options of a run do not go with 'rules'."),
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
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=30)
