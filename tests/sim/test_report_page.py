"""docs/simulator.md names everything that a scenario can say."""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path

import pytest

from strandline.sim import text
from strandline.sim.clients import ADMIN_VERBS
from strandline.sim.faults.catalogue import as_table
from strandline.sim.faults.moments import MOMENTS
from strandline.sim.faults.nemesis import VERBS as FAULTS
from strandline.sim.scenarios import expectations, verbs
from strandline.sim.scenarios.player import HEADER, play
from strandline.sim.scenarios.policy import VALUES
from strandline.sim.scenarios.script import parse_script
from strandline.sim.sometimes import STATES
from strandline.sim.sweep import SEEDS_FOR_ALL_STATES
from strandline.sim.text import read_plan
from tests.sim.mutants import MUTANTS

PATH = Path(__file__).parents[2] / "docs" / "simulator.md"
PAGE = PATH.read_text()
REWRITE = os.environ.get("STRANDLINE_REWRITE_TRACES") == "1"
HEAD = "| action | what it does |\n|---|---|\n"


def test_every_fault_is_there_with_its_options() -> None:
    """`STRANDLINE_REWRITE_TRACES=1` writes the table anew."""
    rows = []
    for verb in FAULTS.values():
        usage = f"{verb.name} {verb.usage}".strip().replace("|", r"\|")
        rows.append(f"| `{usage}` | {' '.join((verb.act.__doc__ or '').split())} |")
    before, after = PAGE.split("#### Faults\n")
    introduction, table = after.split(HEAD, 1)
    old, rest = table.split("\n\n", 1)
    if REWRITE:
        new = "\n".join(rows)
        PATH.write_text(f"{before}#### Faults\n{introduction}{HEAD}{new}\n\n{rest}")
        return
    assert old.splitlines() == rows


@pytest.mark.parametrize(
    "word",
    [
        *(f"`{name}" for name in sorted(ADMIN_VERBS)),
        *(f"`{name}" for name in verbs.VERBS),
        *(f"`{name}`" for name in HEADER),
        *(f"`{name}`" for name in VALUES),
        *(f"`expect {name}" for name in expectations._CLAIMS),
        *(f"| `{name}` |" for name in text._READERS),
        *(f"`{name}`" for name in MOMENTS),
    ],
)
def test_every_word_is_there(word: str) -> None:
    assert word in PAGE


def test_every_option_of_a_verb_of_replicas_is_there() -> None:
    for name, verb in verbs.VERBS.items():
        start = re.compile(rf"\| `{name}[ `]")
        row = next(line for line in PAGE.splitlines() if start.match(line))
        for word in (*verb.flags, *verb.options):
            assert word in row, f"{name} {word}"


def examples() -> list[str]:
    """The scenarios on the page that begin with a title."""
    blocks = re.findall(r"(?:^(?:    .*)?\n)+", PAGE, flags=re.MULTILINE)
    plain = ["\n".join(line[4:] for line in block.splitlines()).strip() for block in blocks]
    return [block for block in plain if block.startswith("title:")]


def test_the_examples_can_be_played() -> None:
    small, large = examples()
    assert "expect A leo=1 hw=1" in play(parse_script("small", small))
    assert read_plan(parse_script("large", large)).plan.clients


def test_the_catalogue_of_faults_is_there() -> None:
    assert as_table() in PAGE


def test_the_number_of_states_is_that_of_the_code() -> None:
    (found,) = re.findall(r"^    Reached \d+ of (\d+) states:", PAGE, flags=re.MULTILINE)
    assert int(found) == len(STATES)
    (seeds,) = re.findall(r"a sweep of (\d+) seeds or more fails", PAGE)
    assert int(seeds) == SEEDS_FOR_ALL_STATES


def test_every_rule_has_a_row_with_its_sentence() -> None:
    rows = rule_rows()
    assert {name: sentence for name, sentence, *_ in rows} == {
        name: mutant.sentence for name, mutant in MUTANTS.items()
    }
    assert len(rows) == len(MUTANTS)
    for name, _, noticed, *_ in rows:
        expected = MUTANTS[name].expected
        assert noticed.startswith("nothing: another rule") == (not expected), name


def test_the_numbers_of_rules_are_those_of_the_table() -> None:
    """How many are noticed, and by what, is said once more in words."""
    kinds = Counter(kind_of(noticed) for _, _, noticed, *_ in rule_rows())
    text = " ".join(PAGE.split("### Mutation table")[1].split("####")[0].split())
    for words in (
        f"{len(MUTANTS)} rules.",
        f"{kinds['seeds']} are noticed by random seeds",
        f"{kinds['plan']} more by a plan",
        f"{kinds['search']} more by the exhaustive search",
        f"{kinds['unit tests']} only by unit tests",
        f"{kinds['nothing']} cannot be noticed in a run",
    ):
        assert words in text


def rule_rows() -> list[tuple[str, ...]]:
    """The rows of the mutation table: rule, sentence, what noticed, seeds, remarks."""
    table = PAGE.split("### Mutation table")[1].split("How the table was made")[0]
    lines = [line for line in table.splitlines() if line.startswith("| `")]
    rows = [tuple(cell.strip() for cell in line.strip("|").split(" | ")) for line in lines]
    return [(name.strip("`"), *rest) for name, *rest in rows]


def kind_of(noticed: str) -> str:
    """What noticed that a rule was left out."""
    for start, kind in (
        ("I-", "seeds"),
        ("BUG", "seeds"),
        ("in a plan made for it", "plan"),
        ("the exhaustive search", "search"),
        ("unit tests only", "unit tests"),
        ("nothing", "nothing"),
    ):
        if noticed.startswith(start):
            return kind
    raise AssertionError(noticed)
