"""Every scenario goes as its script says, and its trace is the one beside it.

`STRANDLINE_REWRITE_TRACES=1` writes the traces anew; a change of one is to be read, not accepted.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.scenarios.player import play
from tests.scenarios.script import load_script

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
