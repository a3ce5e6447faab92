"""Functions in a process of their own, for what can only be seen of a whole process.

Descriptors, threads and memory are a process's, and in that of the tests other things live: the
clusters that tests share open and close files in threads of their own. A test that looks at all of
a process lets what it looks at run here.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parents[1]


def run_alone(function: Callable[..., None], *arguments: str) -> None:
    """Call a function of a test module with these words, in a new interpreter.

    Warnings are errors there, too. Raises AssertionError with what it printed if it failed.
    """
    ended = subprocess.run(
        [
            *(sys.executable, "-W", "error", "-m", "tests.alone"),
            *(function.__module__, function.__qualname__, *arguments),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "src")))},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    assert ended.returncode == 0, f"{function.__qualname__} failed alone:\n{ended.stdout}"


def main() -> None:
    """`python -m tests.alone MODULE FUNCTION [WORD ...]`."""
    module, name, *words = sys.argv[1:]
    getattr(import_module(module), name)(*words)


if __name__ == "__main__":
    main()
