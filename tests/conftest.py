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
    "lakehouse",
    "faults",
    "machines",
    "upgrade",
    "java",
    "ui",
    "clients",
    "zookeeper",
)
"""Directories whose tests take long, one by one or in a group: at the end they would be waited for
by processes with nothing left to do. With `--no-loadscope-reorder`; else large groups are first."""

_ONE_BY_ONE = ("faults", "machines")
"""Directories whose tests take long and share nothing."""


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
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests of a file together: each process that has some of them makes its fixtures."""
    for item in items:
        file, directory = _place(item.path)
        if directory not in _ONE_BY_ONE and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(file))
    items.sort(key=_rank)


def _rank(item: pytest.Item) -> int:
    _, directory = _place(item.path)
    names = _LONGEST_FIRST
    return names.index(directory) if directory in names else len(names)


@cache
def _place(path: Path) -> tuple[str, str]:
    """A file's path below this folder, and the first part of it."""
    file = path.relative_to(HERE)
    return file.as_posix(), file.parts[0]
