"""`strandline sim play`: what is printed, how it ends, and what is said about a wrong file."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import DEADLINE_S

SCENARIOS = Path(__file__).parents[1] / "scenarios"
LOSES = "high-watermark-truncation-loses-a-record"
X3 = str(SCENARIOS / f"{LOSES}.txt")
OLD = ("--truncate-by", "high-watermark")

Run = Callable[..., Any]


def test_the_trace_is_printed_and_then_the_verdict(alone: Run) -> None:
    ended = alone("sim", "play", X3, *OLD)
    trace = (SCENARIOS / f"{LOSES}.truncate=high-watermark.trace").read_text()
    assert ended.code == 0
    assert ended.out.startswith(f"{trace}\nPlayed with truncate=high-watermark.\n")
    verdict = ended.out.removeprefix(trace)
    assert (
        "\nI-23 is broken. A leader has every committed record.\n    B leads in epoch 1," in verdict
    )
    assert verdict.endswith("Everything went as the file says.\n")
    assert ended.err == ""


def test_without_a_rule_the_file_decides(alone: Run) -> None:
    ended = alone("sim", "play", X3)
    assert ended.code == 0
    assert ended.out.startswith((SCENARIOS / f"{LOSES}.trace").read_text())
    assert ended.out.endswith(
        "Played with truncate=leader-epoch.\n"
        "No invariant was broken.\n"
        "Everything went as the file says.\n"
    )


def test_quiet_prints_only_the_verdict(alone: Run) -> None:
    ended = alone("sim", "play", X3, *OLD, "--quiet")
    assert ended.out.startswith("Played with truncate=high-watermark.")
    assert "produce A" not in ended.out


def test_json(alone: Run) -> None:
    found = alone("sim", "play", X3, *OLD, "--json").json
    trace = (SCENARIOS / f"{LOSES}.truncate=high-watermark.trace").read_text()
    assert found["trace"] == trace.splitlines()
    assert found["as_expected"] is True
    assert list(found["broken"]) == found["expected"] == ["I-22", "I-23", "I-25"]
    assert found["policy"]["truncate"] == "high-watermark"
    assert found["unmet"] == []


def test_any_rule_can_be_exchanged(alone: Run) -> None:
    ended = alone("sim", "play", "x-8", "--policy", "counts-joining=no")
    assert ended.code == 0
    assert "Played with counts-joining=no." in ended.out
    assert "I-14 is broken." in ended.out


def test_a_scenario_is_found_by_its_name_and_by_its_number(alone: Run) -> None:
    by_name, by_number = (alone("sim", "play", name, "-q") for name in (LOSES, "x-3"))
    assert by_name.code == by_number.code == 0
    assert by_name.out == by_number.out


def test_the_list_has_all_worlds_in_groups(alone: Run) -> None:
    told = alone("sim", "play", "--list").out
    assert "truncation: What a replica cuts off its log" in told
    assert f"  {LOSES}  (x-3)\n" in told
    assert "  cluster-leader-dies\n" in told
    found = alone("sim", "play", "--list", "--json").json
    assert {"name": LOSES, "aliases": ["x-3"], "group": "truncation"}.items() <= next(
        each for each in found if each["name"] == LOSES
    ).items()


@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("*.txt")), ids=lambda path: path.stem)
def test_every_scenario_goes_as_it_says(path: Path, alone: Run) -> None:
    assert alone("sim", "play", str(path), "-q").code == 0


# -- What does not go as the file says --------------------------------------------------------


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str], str]:
    def write(text: str) -> str:
        path = tmp_path / "mine.txt"
        path.write_text(text)
        return str(path)

    return write


HEADER = "title: Mine\nreplicas: A B\n"


def test_an_expectation_that_is_not_met(alone: Run, written: Callable[[str], str]) -> None:
    ended = alone("sim", "play", written(f"{HEADER}\nproduce A m0\nexpect A hw=1\nfetch B\n"))
    assert ended.code == 1
    assert "    ! not met: A has hw=0, not 1\n" in ended.out
    assert ended.out.endswith(
        "Not met: mine, line 5: A has hw=0, not 1\n"
        "No invariant was broken.\n"
        "It did not go as the file says.\n"
    )


def test_a_violation_that_the_file_does_not_name(alone: Run, tmp_path: Path) -> None:
    path = tmp_path / "undeclared.txt"
    path.write_text(Path(X3).read_text().replace("I-22 I-23 I-25", "I-22 I-23"))
    ended = alone("sim", "play", str(path), *OLD)
    assert ended.code == 1
    assert ended.out.endswith("The file does not say that I-25 would be broken.\n")


def test_a_violation_that_does_not_come(alone: Run, written: Callable[[str], str]) -> None:
    ended = alone("sim", "play", written(f"{HEADER}violates: I-23\n\nfetch B\n"), "-q")
    assert ended.code == 1
    assert ended.out.endswith("The file says that I-23 would be broken, too.\n")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (f"{HEADER}\nfly B\n", "Error: mine, line 4: There is no verb 'fly'."),
        (f"{HEADER}\nfetch C\n", "Error: mine, line 4: There is no replica 'C'; there are A, B."),
        (f"{HEADER}mood: good\n", "Error: mine, line 3: The header has no 'mood'."),
        ("title: Mine\nworld: sea\n", "Error: mine is of a world that there is not: 'sea'."),
        ("", "Error: mine has no title."),
        ("world: cluster\nseed: 1\n\nat 5s\n", "Error: mine, line 4: 'at' is followed by a time"),
        (
            "world: cluster\nseed: 1\n\nat 5s kill 1\nat 1s fly 1\n",
            "Error: mine, line 5: There is no verb fly.",
        ),
    ],
)
def test_a_wrong_script_is_a_sentence_with_the_line(
    text: str, sentence: str, alone: Run, written: Callable[[str], str]
) -> None:
    ended = alone("sim", "play", written(text), "-q")
    assert ended.code == 2
    assert ended.err.startswith(sentence)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("/nowhere/x.txt",), "There is no scenario '/nowhere/x.txt'"),
        (("high-watermark-truncation-looses-a-record",), f"Did you mean '{LOSES}'?"),
        ((), "--list shows those that come along."),
        ((X3, "--truncate-by", "luck"), "'luck' is not one of"),
        ((X3, "--policy", "truncate"), "--policy takes NAME=VALUE, not 'truncate'."),
        ((X3, "--policy", "mood=good"), "There is no rule 'mood'"),
        ((X3, *OLD, "--policy", "truncate=leader-epoch"), "either --truncate-by or --policy"),
        ((str(SCENARIOS),), "neither by name nor as a file"),
    ],
)
def test_a_wrong_command_line_is_a_sentence(
    arguments: tuple[str, ...], sentence: str, alone: Run
) -> None:
    ended = alone("sim", "play", *arguments)
    assert ended.code == 2
    assert sentence in " ".join(ended.err.split())


def test_a_cluster_has_no_policy(alone: Run, written: Callable[[str], str]) -> None:
    ended = alone("sim", "play", written("world: cluster\nseed: 1\n"), *OLD)
    assert ended.code == 2
    assert "has no policy to choose" in ended.err


def test_a_file_that_is_no_text(alone: Run, tmp_path: Path) -> None:
    path = tmp_path / "picture.txt"
    path.write_bytes(b"\xff\xfe\x00")
    ended = alone("sim", "play", str(path))
    assert (ended.code, ended.err) == (2, "Error: picture.txt is not a text file.\n")


# -- Terminals and pipes ----------------------------------------------------------------------


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "strandline.cli", "sim", "play", *arguments]


def test_there_are_colours_on_a_terminal_only(alone: Run) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command(X3, *OLD, "-q"), stdout=theirs)
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 4096):
            shown += chunk
    except OSError:
        pass  # the other side of the terminal is closed
    os.close(ours)
    assert process.wait(timeout=DEADLINE_S) == 0
    assert b"\x1b[31m" in shown
    assert b"\x1b[32m" in shown
    assert "\x1b" not in alone("sim", "play", X3, *OLD).out


def test_a_reader_may_go_away() -> None:
    process = subprocess.Popen(command(X3), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    _, err = process.communicate(timeout=DEADLINE_S)
    assert err == b""
