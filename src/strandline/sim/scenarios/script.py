"""The text form of a scenario: a header of `name: value` lines, then one action per line.

    title: The loss that truncation by high watermark allows
    replicas: A B                  the assignment; the first one leads epoch 0
    policy: truncate=high-watermark
    violates: I-23                 invariants that this scenario is meant to break

    produce A m0 acks=all          # a verb, its words, its options; comments go into the trace
    fetch B lose-reply
    expect A leo=1 hw=0 rem.B=0

This file knows lines, words and options. What the verbs do stands in `player`. Words after the verb
with `=` are options; times are written `500ms`, `30s`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

_HEADER = re.compile(r"^([a-z-]+):\s*(.*)$")
_TIME = re.compile(r"^(\d+)(ms|s)$")


class BadScript(Exception):
    """A line that cannot be understood."""


@dataclass(frozen=True, slots=True)
class Step:
    """One action; without a verb it is a comment or an empty line, kept for the trace."""

    line: int
    text: str
    verb: str = ""
    words: tuple[str, ...] = ()
    options: dict[str, str] = field(default_factory=dict)

    def option_ms(self, name: str) -> int | None:
        """A time given as an option."""
        return parse_ms(self.options[name]) if name in self.options else None

    def option_int(self, name: str, default: int) -> int:
        """A number given as an option."""
        return int(self.options.get(name, default))

    def has(self, word: str) -> bool:
        """Whether a bare word such as `lose-reply` is there."""
        return word in self.words


@dataclass(frozen=True, slots=True)
class Script:
    """A parsed scenario."""

    name: str
    header: dict[str, str]
    steps: tuple[Step, ...]

    @property
    def policy(self) -> dict[str, str]:
        """The exchangeable rules that this scenario is played under."""
        return dict(_option(word) for word in self.header.get("policy", "").split())

    @property
    def violates(self) -> frozenset[str]:
        """The invariants that it must break."""
        return frozenset(self.header.get("violates", "").split())


def parse_ms(text: str) -> int:
    """`500ms` and `30s` in milliseconds."""
    match = _TIME.match(text)
    if match is None:
        raise BadScript(f"{text!r} is not a time such as 500ms or 30s.")
    return int(match[1]) * (1 if match[2] == "ms" else 1000)


def load_script(path: Path) -> Script:
    """Parse the scenario in a file."""
    return parse_script(path.stem, path.read_text())


def parse_script(name: str, text: str) -> Script:
    """Parse a scenario. Raises `BadScript` with the number of the line."""
    header: dict[str, str] = {}
    steps: list[Step] = []
    in_header = True
    for number, line in enumerate(text.splitlines(), start=1):
        match = _HEADER.match(line) if in_header else None
        if match is not None:
            header[match[1]] = match[2]
            continue
        in_header = False
        try:
            steps.append(_step(number, line))
        except BadScript as error:
            raise BadScript(f"{name}, line {number}: {error}") from error
    if "title" not in header or "replicas" not in header:
        raise BadScript(f"{name} has no title or no replicas.")
    return Script(name, header, tuple(steps))


def _step(number: int, line: str) -> Step:
    code = line.split("#", 1)[0].strip()
    if not code:
        return Step(number, line.strip())
    verb, *rest = code.split()
    options = dict(_option(word) for word in rest if "=" in word)
    words = tuple(word for word in rest if "=" not in word)
    return Step(number, " ".join(line.split()), verb, words, options)


def _option(word: str) -> tuple[str, str]:
    name, _, value = word.partition("=")
    if not name:
        raise BadScript(f"{word!r} has no name before its value.")
    return name, value
