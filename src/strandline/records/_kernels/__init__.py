"""Compiled loops over records, each with a pure-Python twin that gives the same answers.

A module that has a kernel asks `compiled(name)` and takes the twin if there is none: because there
was no C compiler where the package was built, or because `STRANDLINE_PURE_PYTHON=1` says so, which
is how the tests compare the two. Nothing here knows topics, files or Arrow.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Final

KERNELS: Final = tuple(sorted(each.stem for each in Path(__file__).parent.glob("*.pyx")))
"""All there should be: their sources are installed, whether they could be compiled or not."""

_COSTS: Final = {
    "compact": "compaction takes 6 times as much of the processor",
    "produced": "checking what producers send, and finding records by their time, takes longer",
    "decode": "reading records into tables 5 to 45 times as much",
}
"""In place of the kernel; `python -m bench.decode` and `python -m bench.compaction` measure it."""


def compiled(name: str) -> ModuleType | None:
    """The kernel module of that name (`decode`, `compact`), or None if the twin is to be used."""
    if are_switched_off():
        return None
    try:
        return import_module(f"{__name__}.{name}")
    except ModuleNotFoundError:
        return None


def are_switched_off() -> bool:
    """Whether this process was told to do without."""
    return os.environ.get("STRANDLINE_PURE_PYTHON") == "1"


def missing() -> list[str]:
    """The kernels that were not built, or are switched off."""
    return list(KERNELS) if are_switched_off() else list(_not_built())


@cache
def _not_built() -> tuple[str, ...]:
    return tuple(name for name in KERNELS if find_spec(f"{__name__}.{name}") is None)


def sentence_about(names: Iterable[str], *, switched_off: bool = False) -> str:
    """What it costs that these are missing, and what to do."""
    costs = " and ".join(_COSTS.get(name, f"'{name}' is slower") for name in names)
    if switched_off:
        return f"STRANDLINE_PURE_PYTHON=1 switches the compiled kernels off: {costs}."
    return (
        f"There are no compiled kernels: {costs}. Install a C compiler and Python's headers "
        "(Debian: gcc libc6-dev python3-dev), and then Strandline again."
    )
