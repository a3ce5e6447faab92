"""Compiled loops over records, each with a pure-Python twin that gives the same answers.

Whoever wants a kernel asks `compiled(name)` and takes the twin if there is none: because there was
no C compiler where the package was built, or because `STRANDLINE_PURE_PYTHON=1` says so, which is
how the tests compare the two. Nothing here knows topics, files or Arrow.
"""

from __future__ import annotations

import os
from importlib import import_module
from types import ModuleType


def compiled(name: str) -> ModuleType | None:
    """The kernel module of that name (`decode`, `compact`), or None if the twin is to be used."""
    if os.environ.get("STRANDLINE_PURE_PYTHON") == "1":
        return None
    try:
        return import_module(f"{__name__}.{name}")
    except ModuleNotFoundError:
        return None
