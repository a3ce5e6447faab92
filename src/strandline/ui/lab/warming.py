"""What of the package the page in a browser needs: found once, when the page is made.

The page has no file of the package, only the memory of an interpreter that has imported it
(`snapshot.mjs`): what is imported or read late would not be there. So what functions import when
they are called is looked for in their sources. This file knows modules and their sources, and no
page.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from strandline.sim.scenarios.library import scripts, text_of

_PACKAGE: Final = "strandline"
_ENTRY: Final = "strandline.ui.lab.answers"


def read_all() -> None:
    """Read the files that answers are made from; they are remembered."""
    for name in scripts():
        text_of(name)


def needed() -> list[str]:
    """The names of all modules of the package that answers may need."""
    import_module(_ENTRY)
    seen: set[str] = set()
    while new := {name for name in sys.modules if name.partition(".")[0] == _PACKAGE} - seen:
        seen |= new
        for name in new:
            for late in _late_imports(name):
                import_module(late)
    return sorted(seen)


def _late_imports(name: str) -> Iterator[str]:
    """The modules that functions of a module import, as far as they are here."""
    file = sys.modules[name].__file__
    if file is None or not file.endswith(".py"):
        return
    tree = ast.parse(Path(file).read_text())
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for each in ast.walk(function):
                if isinstance(each, ast.ImportFrom) and each.module is not None:
                    names = [each.module, *(f"{each.module}.{part.name}" for part in each.names)]
                    yield from filter(_is_here, names)


def _is_here(name: str) -> bool:
    if name.partition(".")[0] != _PACKAGE:
        return False
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # of a part that no browser runs, or a name in a module
        return False
