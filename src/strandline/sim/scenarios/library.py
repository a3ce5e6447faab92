"""The scenarios that come along: the classical accidents of replication, and what prevents them.

They are text files in `scripts/`, named as in the specification (`x-3`). This file knows where they
are and how one is found by its name or by its path.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Final

from strandline.sim.scenarios.script import BadScript, Script, load_script, parse_script

SUFFIX: Final = ".txt"


@cache
def scripts() -> Mapping[str, Script]:
    """The scenarios that come along, by name, in natural order (x-2 before x-10)."""
    found = {}
    for entry in files(__package__).joinpath("scripts").iterdir():
        if entry.name.endswith(SUFFIX):
            name = entry.name.removesuffix(SUFFIX)
            found[name] = parse_script(name, entry.read_text())
    return {name: found[name] for name in sorted(found, key=_natural)}


def find(name_or_path: str) -> Script:
    """The scenario of that name, or in that file. Raises `BadScript` with the nearest name."""
    known = scripts()
    if name_or_path.lower() in known:
        return known[name_or_path.lower()]
    path = Path(name_or_path)
    if path.is_file():
        try:
            return load_script(path)
        except OSError as error:
            raise BadScript(f"{path} cannot be read: {error.strerror}.") from error
    near = get_close_matches(name_or_path.lower(), known, n=1)
    hint = f" Did you mean '{near[0]}'?" if near else " 'strandline play --list' shows them."
    raise BadScript(f"There is no scenario '{name_or_path}', neither by name nor as a file.{hint}")


def _natural(name: str) -> tuple[tuple[int, int, str], ...]:
    return tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in name.split("-"))
