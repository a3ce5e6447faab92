"""The scenarios that come along, as pages list and show them; a server and a browser tab do."""

from __future__ import annotations

from functools import cache
from typing import Any

from strandline.sim.scenarios.documents import document
from strandline.sim.scenarios.library import GROUPS, find, name_of_known, scripts, text_of
from strandline.sim.scenarios.script import REPLICAS, BadScript

Json = dict[str, Any]


def listing() -> list[Json]:
    """What comes along, by group: the group's sentence, and names, aliases and titles."""
    return [
        {
            "group": group,
            "about": about,
            "scenarios": [
                {"name": name, "aliases": list(script.aliases), "title": script.title}
                for name, script in scripts().items()
                if script.world == REPLICAS and script.header["group"] == group
            ],
        }
        for group, about in GROUPS.items()
    ]


@cache
def played(name: str) -> Json:
    """The document of a scenario that comes along. Raises `BadScript`."""
    if name_of_known(name) is None:
        raise BadScript(f"There is no scenario '{name}'.")
    found = find(name)
    return {**document(found), "text": text_of(found.name)}
