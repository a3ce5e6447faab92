"""Every scenario goes as its script says, and its trace is the one beside it.

`STRANDLINE_REWRITE_TRACES=1` writes the traces anew; a change of one is to be read, not accepted.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from strandline.sim.scenarios.player import Unexpected, play
from strandline.sim.scenarios.script import BadScript, load_script, parse_script

FOLDER = Path(__file__).parent
SCRIPTS = sorted(FOLDER.glob("*.txt"))
REWRITE = os.environ.get("STRANDLINE_REWRITE_TRACES") == "1"


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    trace = play(load_script(path))
    golden = path.with_suffix(".trace")
    if REWRITE:
        golden.write_text(trace)
    assert trace == golden.read_text()


def test_every_trace_has_its_script() -> None:
    assert {path.stem for path in FOLDER.glob("*.trace")} == {path.stem for path in SCRIPTS}


HEADER = "title: t\nreplicas: A B\n"


@pytest.mark.parametrize(
    "text",
    [
        "replicas: A",
        "title: t",
        HEADER + "fetch B =1",
        HEADER + "wait 5",
        HEADER + "fly B",
    ],
)
def test_a_script_that_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(BadScript):
        play(parse_script("bad", text))


@pytest.mark.parametrize(
    "expectation",
    [
        "A leo=7",
        "A nonsense=1",
        "controller leader=B",
        "logs-equal A B",
        "diverged A B",
        "lost m0",
        "kept m0",
        "acked m0",
        "acked m1@3",
        "failed m0 NOT_LEADER_OR_FOLLOWER",
        "waiting m1",
        "low-watermark A 3",
    ],
)
def test_an_expectation_can_fail(expectation: str) -> None:
    script = f"{HEADER}\nfetch B\nproduce A m0\nproduce A m1 acks=1\nexpect {expectation}"
    with pytest.raises(Unexpected, match="line 7"):
        play(parse_script("failing", script))


def test_a_violation_that_does_not_happen_is_reported() -> None:
    with pytest.raises(Unexpected, match="breaks nothing"):
        play(parse_script("calm", f"{HEADER}violates: I-23\n\nproduce A m0"))
