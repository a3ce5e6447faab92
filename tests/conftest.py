"""What all tests share: property tests draw the same examples in every run and have no deadline;
and how tests are dealt out to several processes (`-n 4 --dist loadgroup`)."""

from __future__ import annotations

import gc
from collections.abc import Generator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("strandline", derandomize=True, deadline=None)
settings.load_profile("strandline")

HERE = Path(__file__).parent
_LONGEST_FIRST = (
    "upgrade/test_rolling.py",
    "lakehouse",
    "faults",
    "machines",
    "upgrade",
    "java",
    "ui",
    "clients",
    "zookeeper",
)
"""Files and directories whose tests take long, one by one or in a group: at the end they would be
waited for by processes with nothing left to do. With `--no-loadscope-reorder`; else large groups
are first."""

_COLLECT_GARBAGE_AFTER = (50_000, 20, 100)
"""New objects until those that are new, those that outlived that, and all are looked at. With
Python's own (700, 10, 10) a simulated run takes a quarter longer; nothing here lives long."""

_ONE_BY_ONE = ("faults", "machines")
"""Directories whose tests take long and share nothing, but for those that take turns."""
_TAKES_TURNS = "kept"
"""The fixture of tests that share something large with the others of their file."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported and collected stays: looking for garbage there is a sixth of the time here,
    and would cost the tests as much each time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.set_threshold(*_COLLECT_GARBAGE_AFTER)
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests of a file together: each process that has some of them makes its fixtures."""
    for item in items:
        file, directory = _place(item.path)
        alone = directory in _ONE_BY_ONE and _TAKES_TURNS not in getattr(item, "fixturenames", ())
        if not alone and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(file))
    items.sort(key=_rank)


def _rank(item: pytest.Item) -> int:
    ranks = [_LONGEST_FIRST.index(each) for each in _place(item.path) if each in _LONGEST_FIRST]
    return min(ranks, default=len(_LONGEST_FIRST))


@cache
def _place(path: Path) -> tuple[str, str]:
    """A file's path below this folder, and the first part of it."""
    file = path.relative_to(HERE)
    return file.as_posix(), file.parts[0]
