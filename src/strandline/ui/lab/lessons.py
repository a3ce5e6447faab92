"""The lessons: one structure for all languages, and how a step of one is a script.

    begin     the header of a new script; without it a step goes on with the last one
    do        lines that are played before the reader acts
    claims    what the step's text says, as expectations: a test plays every lesson and asks them
    until     what the reader has to bring about: `expect` (an expectation), `seen` (words of an
              event) or `did` (a line)
    answer    lines that bring it about, for readers who want to be shown

The texts stand beside it, a file for each language. The page plays lessons (`lessons.js`); this
file reads them for tests.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

Json = dict[str, Any]

FOLDER: Final = Path(__file__).parents[1] / "static" / "lessons"
LANGUAGES: Final = ("en", "zh")


class Moment(NamedTuple):
    """A step of a lesson: the script before the reader acts, and behind a right answer."""

    lesson: str
    number: int
    step: Json
    before: str
    after: str


def structure() -> list[Json]:
    """The lessons in their order."""
    found: list[Json] = json.loads((FOLDER / "lessons.json").read_text())["lessons"]
    return found


def texts(language: str) -> Json:
    """What a reader of a language is told, by lesson."""
    found: Json = json.loads((FOLDER / f"{language}.json").read_text())
    return found


def moments() -> Iterator[Moment]:
    """All steps of all lessons, as readers meet them who are shown every answer."""
    for lesson in structure():
        script = ""
        for number, step in enumerate(lesson["steps"]):
            if "begin" in step:
                script = step["begin"] + "\n"
            before = script + "".join(f"{line}\n" for line in step.get("do", ()))
            script = before + "".join(f"{line}\n" for line in step.get("answer", ()))
            yield Moment(lesson["name"], number, step, before, script)
