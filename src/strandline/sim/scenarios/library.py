"""The scenarios that come along: the classical accidents of replication, and what prevents them.

They are text files in `scripts/`, named for what happens in them and put into groups. Their headers
also name the number that the specification gives them (`alias: x-3`), by which they are found too.
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

GROUPS: Final[Mapping[str, str]] = {
    "commit": "When a record is committed, and which replica learns of it when.",
    "election": "Which replica may lead, and what a former leader can still do.",
    "truncation": "What a replica cuts off its log before it follows another leader.",
    "membership": "Which replicas are in sync, and for which ones a leader waits.",
    "deletion": "Where a log starts after records were deleted, and how followers go along.",
    "transactions": "What idempotent and transactional producers can rely on when something fails.",
}
"""The groups in the order of reading, with a sentence on each."""


@cache
def scripts() -> Mapping[str, Script]:
    """The scenarios that come along, by name: group by group, first those of the specification."""
    found = {}
    for entry in files(__package__).joinpath("scripts").iterdir():
        if entry.name.endswith(SUFFIX):
            name = entry.name.removesuffix(SUFFIX)
            found[name] = parse_script(name, entry.read_text())
    return {name: found[name] for name in sorted(found, key=lambda name: _place(found[name]))}


@cache
def text_of(name: str) -> str:
    """The script of a scenario that comes along."""
    return files(__package__).joinpath("scripts", f"{name}{SUFFIX}").read_text()


@cache
def aliases() -> Mapping[str, str]:
    """The other names of scenarios, each with the name that it stands for."""
    return {alias: name for name, script in scripts().items() for alias in script.aliases}


def name_of_known(name: str) -> str | None:
    """The name of a scenario that comes along, from its name or an alias in any case."""
    name = aliases().get(name.lower(), name.lower())
    return name if name in scripts() else None


def find(name_or_path: str) -> Script:
    """The scenario of that name, or in that file. Raises `BadScript` with the nearest name."""
    name = name_of_known(name_or_path)
    if name is not None:
        return scripts()[name]
    path = Path(name_or_path)
    if path.is_file():
        try:
            return load_script(path)
        except OSError as error:
            raise BadScript(f"{path} cannot be read: {error.strerror}.") from error
    near = get_close_matches(name_or_path.lower(), [*scripts(), *aliases()], n=1)
    hint = f" Did you mean '{near[0]}'?" if near else " 'strandline play --list' shows them."
    raise BadScript(f"There is no scenario '{name_or_path}', neither by name nor as a file.{hint}")


def _place(script: Script) -> tuple[object, ...]:
    group = script.header.get("group", "")
    first = next(iter(script.aliases), script.name)
    return ([*GROUPS, group].index(group), not first.startswith("x-"), _natural(first))


def _natural(name: str) -> tuple[tuple[int, int, str], ...]:
    return tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in name.split("-"))
