"""What answers the page inside a browser, on this machine's Python: scripts as they grow."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import crc32c
import pytest
from click.testing import CliRunner

import strandline
from strandline.cli.main import cli
from strandline.ui.lab import building, pyodide
from strandline.ui.lab.answers import Answers

STAND_INS = Path(building.__file__).parent / "stand_ins"
HEADER = "title: t\nreplicas: A B C\nmin-in-sync: 2\nlag-max: 5s\n\n"
STEPS = ["produce A m0", "tick", "tick", "# a note", "kill A", "tick", "", "produce B m1", "tick"]


def played(answers: Answers, text: str) -> Any:
    return json.loads(answers.answer("/api/scenarios", json.dumps({"text": text})))


def said_without_kernels(program: str, *arguments: str) -> str:
    """What a program writes in a Python that has nothing of ours compiled."""
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        check=True,
        env={
            "PYTHONPATH": str(Path(strandline.__file__).parents[1]),
            "STRANDLINE_PURE_PYTHON": "1",
        },
    ).stdout


def test_a_script_that_grows_is_as_if_it_were_played_at_once() -> None:
    growing = Answers()
    for count in range(len(STEPS) + 1):
        text = HEADER + "".join(f"{each}\n" for each in STEPS[:count])
        assert played(growing, text) == played(Answers(), text)


def test_a_script_that_changes_or_shrinks_is_played_anew() -> None:
    answers = Answers()
    long = HEADER + "produce A m0\ntick\ntick\n"
    played(answers, long)
    for text in (HEADER + "produce A m0\n", HEADER + "produce A m1\ntick\ntick\n", "# x\n" + long):
        assert played(answers, text) == played(Answers(), text)


def test_after_a_line_that_cannot_be_played_the_script_goes_on() -> None:
    answers = Answers()
    played(answers, HEADER + "kill B\n")
    refused = played(answers, HEADER + "kill B\nkill B\n")
    assert refused == {"error": "script, line 7: B is not running."}
    assert "error" not in played(answers, HEADER + "kill B\nstart B\n")


def test_why_is_told_of_brokers_by_their_letters() -> None:
    (run,) = played(Answers(), HEADER + "kill B\nkill C\ntick\nproduce A m0\n")["runs"]
    (finding, *_) = run["why"]["brokers"]["A"]["findings"]
    assert finding["cause"].startswith("only 1 of 2 replicas that acks=all needs are in sync: B is")
    assert run["why"]["brokers"].keys() == {"A"}
    assert all(each["rule"] != "no-controller" for each in run["why"]["brokers"]["A"]["findings"])


def test_scenarios_are_listed_and_played() -> None:
    answers = Answers()
    groups = json.loads(answers.answer("/api/scenarios"))["groups"]
    assert [each["group"] for each in groups][:2] == ["commit", "election"]
    shown = json.loads(answers.answer("/api/scenarios/X-3"))
    assert shown["text"].startswith("title: A committed record")
    assert len(shown["runs"]) == 2
    assert "x-333" in json.loads(answers.answer("/api/scenarios/x-333"))["error"]
    assert "no cluster" in json.loads(answers.answer("/api/why"))["error"]
    assert "sim play" in played(answers, "title: t\nworld: cluster\nseed: 1\n")["error"]


# -- In place of what is compiled --------------------------------------------------------------


def test_the_checksum_is_that_of_the_package() -> None:
    namespace: dict[str, Any] = {}
    exec((STAND_INS / "crc32c.py").read_text(), namespace)
    for data in (b"", b"a", b"123456789", bytes(range(256)) * 3):
        assert namespace["crc32c"](memoryview(data)) == crc32c.crc32c(data)
        assert namespace["crc32c"](data, 7) == crc32c.crc32c(data, 7)


def test_scenarios_play_without_anything_compiled() -> None:
    """As in a browser: the same trace, with the stand-ins in front of the packages."""
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import crc32c, cramjam, xxhash\n"
        "from strandline.sim.scenarios.library import find\n"
        "from strandline.sim.scenarios.player import play\n"
        "assert all(sys.argv[1] in each.__file__ for each in (crc32c, cramjam, xxhash))\n"
        "sys.stdout.write(play(find('x-3')))\n"
    )
    folder = Path(__file__).parents[1] / "scenarios"
    said = said_without_kernels(program, str(STAND_INS))
    assert said == (folder / "high-watermark-truncation-loses-a-record.trace").read_text()


# -- Building ----------------------------------------------------------------------------------


def test_the_code_has_no_driver_in_it() -> None:
    names = {name for _, name in building._files()}
    assert {"crc32c.py", "strandline/ui/lab/answers.py", "strandline/node/node.py"} <= names
    assert not any(name.startswith(("strandline/broker/", "strandline/cli/")) for name in names)
    assert "strandline/ui/app.py" not in names


def test_what_is_played_imports_nothing_that_the_page_does_not_have() -> None:
    """The page is the memory of a Python that has imported what is told here, and has no file."""
    program = (
        "import sys\n"
        "from strandline.ui.lab.warming import needed\n"
        "known = set(needed())\n"
        "from strandline.ui.lab.answers import Answers\n"
        "from strandline.ui.lab.lessons import moments\n"
        "for moment in moments():\n"
        "    Answers().play(moment.after)\n"
        "late = {name for name in sys.modules if name.startswith('strandline.')} - known\n"
        "print(sorted(late - {'strandline.ui.lab.lessons', 'strandline.ui.lab.warming'}))\n"
    )
    assert said_without_kernels(program) == "[]\n"


def test_without_npm_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    ended = CliRunner().invoke(cli, ["learn", "--build", str(tmp_path / "page")])
    assert ended.exit_code == 1
    assert "needs 'npm', which comes with Node.js" in ended.output


def test_another_archive_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def fetched(place: Path) -> Path:
        archive = place / "pyodide.tgz"
        archive.write_bytes(b"something else")
        return archive

    monkeypatch.setattr(pyodide, "_fetched", fetched)
    with pytest.raises(pyodide.CannotBuild, match="is not the one"):
        pyodide.pyodide()
