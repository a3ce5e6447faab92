"""Numbers of the specification that code, tests and documents cite are defined in docs/spec, once.

A citation is a number such as `I-14` or `X-1b` anywhere in a text, `r10` in the name of a test,
`x-3` in the name of a scenario, or a section: "specification, 1.5", "(1.3, 1.4)". A definition is a
heading or a table row of docs/spec that begins with the number.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import pytest

from strandline.sim.checkers.invariants import BUG, INVARIANTS
from strandline.sim.faults.catalogue import CATALOGUE

ROOT: Final = Path(__file__).parents[1]
SPEC: Final = ROOT / "docs" / "spec"
PACKAGE: Final = ROOT / "src" / "strandline"
CITING: Final = [
    path
    for room in ("src", "tests", "docs")
    for path in sorted((ROOT / room).rglob("*"))
    if path.suffix in {".py", ".pyx", ".md", ".txt", ".trace", ".java", ".js"}
    and path != Path(__file__)
    and "__pycache__" not in path.parts
]
MADE_UP: Final = {
    ("tests/cli/test_play.py", "X-33"),
    ("tests/sim/test_text_expectations.py", "I-99"),
    ("tests/ui/test_server.py", "X-99"),
}
"""Where a test needs a number that does not exist."""

NUMBER: Final = re.compile(r"(?<![\w-])([BCDFIRX])-(\d{1,2})(b?)(?!\w)")
SCENARIO: Final = re.compile(r"(?<![\w-])x-(\d{1,2})(b?)(?![\w])")
TEST: Final = re.compile(r"def (test_\w+)")
TEST_NUMBER: Final = re.compile(r"_(?:([bdfir])(\d\d)|([cx])(\d{1,2}))(b?)(?=_|$)")
SECTION: Final = r"[1-6]\.[1-9]"
SECTIONS: Final = rf"{SECTION}(?:(?:, | to | and |, and ){SECTION}\b)*"
CITED_SECTIONS: Final = (
    re.compile(rf"\b[Ss]pec(?:ification)?,? \(?({SECTIONS})"),
    re.compile(rf"\b[Ss]ections? ({SECTIONS})\b"),
    re.compile(rf"(?<=[a-z])(?<!Kafka) \(({SECTION}(?:, {SECTION})*)(?=\)|, steps|, [A-Z]+-)"),
)
LINE_BREAK: Final = re.compile(r"\s*\n\s*(?:#|//|\*|>)?\s*")
DEFINITION: Final = re.compile(
    rf"^(?:\| (?P<row>[BCDFIRX]-\d+b?) \||#+ (?P<heading>[BCDFIRX]-\d+b?|{SECTION})[: ])",
    re.MULTILINE,
)


def number(letter: str, digits: str, suffix: str) -> str:
    """One spelling for `X-2`, `x-02` and `_x2_`."""
    return f"{letter.upper()}-{int(digits)}{suffix}"


def cited_in(text: str) -> set[str]:
    """All numbers that a text cites."""
    text = LINE_BREAK.sub(" ", text)
    found = {number(*match) for match in NUMBER.findall(text)}
    found |= {number("x", *match) for match in SCENARIO.findall(text)}
    for name in TEST.findall(text):
        for letter, digits, short, few, suffix in TEST_NUMBER.findall(name):
            found.add(number(letter or short, digits or few, suffix))
    for cited in CITED_SECTIONS:
        for sections in cited.findall(text):
            found |= set(re.findall(SECTION, sections))
    return found


def defined_in(text: str) -> Iterator[str]:
    """All numbers that a page of the specification defines, each as often as it does."""
    for match in DEFINITION.finditer(text):
        name = match["row"] or match["heading"]
        family = NUMBER.fullmatch(name)
        yield name if family is None else number(*family.groups())


def defined() -> Counter[str]:
    return Counter(
        name for page in sorted(SPEC.glob("*.md")) for name in defined_in(page.read_text("utf-8"))
    )


def undefined(paths: Iterable[Path], known: Counter[str]) -> list[str]:
    """Each citation without a definition, with its file."""
    lost = []
    for path in paths:
        where = path.relative_to(ROOT).as_posix()
        made_up = {number(*NUMBER.findall(name)[0]) for file, name in MADE_UP if file == where}
        cited = cited_in(path.read_text("utf-8", errors="replace")) - made_up
        if path.parent.name in {"scripts", "scenarios"} and path.name.startswith("x-"):
            cited |= cited_in(path.stem)
        lost += [f"{where}: {name}" for name in sorted(cited - known.keys())]
    return lost


def test_every_citation_is_defined() -> None:
    assert undefined(CITING, defined()) == []


def test_every_number_is_defined_once() -> None:
    assert [name for name, times in defined().items() if times != 1] == []


def test_no_family_has_gaps() -> None:
    """A number that was skipped would be cited from memory, and mean nothing."""
    known = defined()
    sizes = {"B": 14, "C": 21, "D": 14, "F": 72, "I": 57, "R": 45, "X": 14}
    assert [
        name
        for letter, size in sizes.items()
        for name in (f"{letter}-{count}" for count in range(1, size + 1))
        if name not in known
    ] == []


def test_each_regression_has_a_test_that_carries_its_number() -> None:
    """Rows that say "none" are to become fewer."""
    names = {
        name
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for name in TEST.findall(path.read_text("utf-8"))
    }
    known = defined()
    lost, missing = [], []
    for line in (SPEC / "regressions.md").read_text("utf-8").splitlines():
        if line.startswith("| R-"):
            row, told = line.split("|")[1].strip(), line.split("|")[-2].strip(" `")
            assert number(*NUMBER.findall(row)[0]) in known
            if told == "none":
                missing.append(row)
            elif told != f"test_r{row[2:]}_" or not any(f"_r{row[2:]}_" in each for each in names):
                lost.append(row)
    assert lost == []
    assert missing == ["R-44"]


@pytest.mark.parametrize(
    "text",
    [
        "(I-99)",
        "as X-99 says",
        "played by x-99.txt",
        "def test_r99_nothing() -> None:",
        "def test_a_log_of_c99() -> None:",
        "see the specification, 6.6",
        "replication\n# specification (6.6)",
        "specification 1.2 to 6.6",
        "The numbers of section 6.6 there",
        "a rule of nothing (1.3, 6.6).",
    ],
)
def test_a_number_that_does_not_exist_is_noticed(text: str, tmp_path: Path) -> None:
    assert cited_in(text) - defined().keys()


def test_a_file_with_an_unknown_number_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    page = SPEC / "replication.md"
    assert undefined([page], Counter()) != []
    assert undefined([page], defined()) == []
    monkeypatch.setitem(globals(), "MADE_UP", set())
    where = "tests/sim/test_text_expectations.py"
    assert undefined([ROOT / where], defined()) == [f"{where}: I-99"]


def test_what_looks_like_a_number_is_none() -> None:
    text = "CRC-32C, UTF-8, KAFKA-1647, KIP-903, X-100, 2.5 s (2.5 to 5.5), Kafka (3.7), a-1b"
    assert cited_in(text) == set()


def test_a_second_definition_is_noticed() -> None:
    page = "### X-3: loss\n\n| I-14 | a |\n| I-14 | b |\n\n## 1.5 Rules\n\n### 1.5 Rules"
    assert Counter(defined_in(page)) == {"X-3": 1, "I-14": 2, "1.5": 2}


def test_invariants_are_those_that_the_simulator_checks() -> None:
    assert {name for name in defined() if name.startswith("I-")} == {
        number(*NUMBER.findall(name)[0]) for name in INVARIANTS if name != BUG
    }


def test_faults_are_those_that_the_simulator_makes() -> None:
    assert {name for name in defined() if name.startswith("F-")} == {
        number(*NUMBER.findall(row.fault)[0]) for row in CATALOGUE
    }


def test_an_invariant_names_the_files_that_check_it() -> None:
    """Each file exists and mentions the number, so that a move or a rename is noticed."""
    wrong = []
    for line in (SPEC / "invariants.md").read_text("utf-8").splitlines():
        if line.startswith("| I-"):
            name, where = line.split("|")[1].strip(), line.split("|")[-2]
            files = [PACKAGE / file for file in re.findall(r"`([^`]+)`", where)]
            assert files, line
            wrong += [
                f"{name}: {file.relative_to(PACKAGE)}"
                for file in files
                if not file.exists() or name not in file.read_text("utf-8")
            ]
    assert wrong == []
