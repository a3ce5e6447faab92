"""`strandline play`: what pipes and terminals get, and what is said about wrong names."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from strandline.sim.scenarios.documents import document, frame_at, moments
from strandline.sim.scenarios.library import find, scripts
from strandline.sim.scenarios.script import REPLICAS, parse_script

Run = Callable[..., Any]

SCENARIOS = Path(__file__).parents[1] / "scenarios"
PATIENCE_S = 240.0


def test_every_scenario_comes_along() -> None:
    assert set(scripts()) == {path.stem for path in SCENARIOS.glob("*.txt")}


@pytest.mark.parametrize("name", [n for n, s in scripts().items() if s.world == REPLICAS])
def test_the_steps_of_a_document_are_those_of_the_trace(name: str) -> None:
    script = find(name)
    shown = document(script)
    for run in shown["runs"]:
        assert run["as_expected"]
        lines = [frame["line"] for frame in run["frames"]]
        assert lines == sorted(set(lines))
        texts = {step.line: step.text for step in script.steps}
        assert all(texts[f["line"]] == f["text"] for f in run["frames"] if f["line"])
    assert moments(shown)[0] == 0


def test_a_frame_says_what_each_replica_knows() -> None:
    """X-3 after the lost reply: the record is committed, and the follower does not know."""
    run = document(find("x-3"), [{"truncate": "leader-epoch"}])["runs"][0]
    (frame,) = [frame for frame in run["frames"] if frame["text"] == "fetch B lose-reply"]
    leader, follower = frame["replicas"]
    assert (leader["role"], leader["high_watermark"], leader["log_end"]) == ("leader", 2, 2)
    assert (follower["role"], follower["high_watermark"], follower["log_end"]) == ("follower", 1, 2)
    assert follower["records"] == [[0, 0, "m0"], [1, 0, "m1"]]
    assert leader["remote"] == {"B": 2}
    assert "m1 is acknowledged at 1" in frame["events"]


def test_the_same_line_twice_is_two_steps() -> None:
    script = parse_script("twice", "title: t\nreplicas: A B\n\nfetch B\nfetch B\n")
    (run,) = document(script)["runs"]
    assert [frame["line"] for frame in run["frames"]] == [0, 4, 5]


def test_a_step_of_one_rule_only_leaves_the_other_where_it_is() -> None:
    script = parse_script(
        "some",
        "title: t\nreplicas: A B\npolicy: strict=yes|no\n\n"
        "when strict=no:\n    fetch B\nwhen strict=yes:\n    fetch B\n",
    )
    strict, lax = document(script)["runs"]
    assert [frame["line"] for frame in strict["frames"]] == [0, 8]
    assert [frame["line"] for frame in lax["frames"]] == [0, 6]
    assert frame_at(strict, 6)["line"] == 0


def test_a_pipe_gets_both_rules_with_their_ends(alone: Run) -> None:
    ended = alone("play", "x-3")
    assert ended.code == 0
    new, old = ended.out.split("# played with truncate=high-watermark")
    assert "# played with truncate=leader-epoch" in new
    assert "No invariant was broken." in new
    assert "I-23 is broken" in old


def test_one_rule_may_be_chosen(alone: Run) -> None:
    ended = alone("play", "x-3", "--truncate-by", "leader-epoch")
    assert ended.code == 0
    assert "high-watermark" not in ended.out


def test_the_document_can_be_had(alone: Run) -> None:
    found = alone("play", "x-3", "--json").json
    assert (found["format"], found["version"]) == ("strandline-play", 1)
    assert [run["policy"] for run in found["runs"]] == [
        {"truncate": "leader-epoch"},
        {"truncate": "high-watermark"},
    ]


def test_a_script_of_ones_own_that_is_not_met_ends_with_1(alone: Run, tmp_path: Path) -> None:
    path = tmp_path / "own.txt"
    path.write_text("title: mine\nreplicas: A B\n\nproduce A m0\nexpect A hw=7\n")
    ended = alone("play", str(path))
    assert ended.code == 1
    assert "not met: " in ended.out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("x-33",), "Did you mean 'x-3'?"),
        (("nothing-like-it",), "'strandline play --list' shows them."),
        ((), "Which scenario? --list shows them."),
        (("cluster-leader-dies",), "'strandline sim play' shows such scenarios."),
        (("x-3", "--policy", "mood=good"), "There is no rule 'mood'"),
        (("x-3", "--truncate-by", "leader-epoch", "--policy", "truncate=leader-epoch"), "either"),
    ],
)
def test_what_cannot_be_played_is_refused(
    alone: Run, words: tuple[str, ...], sentence: str
) -> None:
    ended = alone("play", *words)
    assert ended.code == 2
    assert sentence in ended.err


def test_the_list_has_titles(alone: Run) -> None:
    told = alone("play", "--list").out
    assert "  high-watermark-truncation-loses-a-record  (x-3)\n      A committed" in told
    assert "cluster-" not in told  # those are of another world


class Terminal:
    """A person at a terminal: what is on it, and keys."""

    def __init__(self, master: int) -> None:
        self._master = master
        self._text = ""

    def wait_for(self, text: str) -> None:
        """Read until a text has come since the last key."""
        deadline = time.monotonic() + PATIENCE_S
        while text not in self._text:
            assert time.monotonic() < deadline, self._text
            if select.select([self._master], [], [], 1)[0]:
                self._text += os.read(self._master, 65_536).decode()

    def press(self, key: str) -> None:
        """Forget what was there and press a key."""
        self._text = ""
        os.write(self._master, key.encode())


@contextmanager
def terminal(*words: str) -> Iterator[tuple[Terminal, subprocess.Popen[bytes]]]:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 160, 0, 0))
    child = subprocess.Popen(
        [sys.executable, "-m", "strandline.cli", *words], stdin=slave, stdout=slave, stderr=slave
    )
    os.close(slave)
    try:
        yield Terminal(master), child
    finally:
        child.kill()
        child.wait()
        os.close(master)


def test_keys_go_forwards_and_backwards() -> None:
    last = len(moments(document(find("x-3")))) - 1
    with terminal("play", "x-3") as (person, child):
        person.wait_for(f"0 of {last}")
        person.press("\x1b[C")
        person.wait_for(f"1 of {last}")
        person.press("G")
        person.wait_for(f"{last} of {last}")
        person.press("p")
        person.wait_for(f"{last - 1} of {last}")
        person.press("g")
        person.wait_for(f"0 of {last}")
        person.press("q")
        assert child.wait(PATIENCE_S) == 0
