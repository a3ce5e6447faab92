"""The text form of scenarios: a header of `name: value` lines, then one action per line.

    title: Truncation by high watermark loses a committed record
    group: truncation                                what it is about; see `library`
    alias: x-3                                       other names by which it is found
    replicas: A B
    policy: truncate=leader-epoch|high-watermark     the first unless another is named
    violates when truncate=high-watermark: I-23      invariants that it is meant to break

    produce A m0 acks=all          # a verb, its words, its options
    expect B log=m0 when truncate=high-watermark
    when truncate=leader-epoch:
        # Indented lines belong to the condition above them, comments too.
        expect B log=m0,m1

Two worlds read this form. `world: replicas` is the small one, whose verbs stand in `verbs`; plans
of the whole cluster (`world: cluster`) are read by `strandline.sim.text`. This file knows lines,
words, options, conditions and times, and no verb. Words with `=` are options; times are written
`40us`, `500ms`, `30s`, `2min`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from strandline.errors import StrandlineError

REPLICAS: Final = "replicas"
CLUSTER: Final = "cluster"

REPEATABLE: Final = ("settings", "knobs", "violates")
"""Names that a header may have several times."""

_HEADER = re.compile(r"^([a-z][a-z-]*)(?:\s+when\s+([^:]*))?:(?:\s+(.*))?$")
_TIME = re.compile(r"^(\d+)(us|ms|s|min)$")
_UNITS_US: Final = {"us": 1, "ms": 1_000, "s": 1_000_000, "min": 60_000_000}

Conditions = Mapping[str, str]
"""Names of rules and the values, separated by `|`, under which something holds."""


class BadScript(StrandlineError):
    """Something in a scenario that cannot be understood, or cannot be done when it is its turn."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the header."""

    line: int
    name: str
    value: str
    when: Conditions = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Step:
    """One action; without a verb it is a comment or an empty line, kept for the trace."""

    line: int
    text: str
    verb: str = ""
    words: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    when: Conditions = field(default_factory=dict)

    def option_ms(self, name: str) -> int | None:
        """A time given as an option."""
        return parse_ms(self.options[name]) if name in self.options else None

    def option_int(self, name: str, default: int) -> int:
        """A number given as an option."""
        return parse_int(self.options[name]) if name in self.options else default

    def has(self, word: str) -> bool:
        """Whether a bare word such as `lose-reply` is there."""
        return word in self.words


@dataclass(frozen=True, slots=True)
class Script:
    """A parsed scenario."""

    name: str
    entries: tuple[Entry, ...]
    steps: tuple[Step, ...]

    @property
    def header(self) -> dict[str, str]:
        """The header's values that hold always; of those given several times the last one."""
        return {entry.name: entry.value for entry in self.entries if not entry.when}

    @property
    def world(self) -> str:
        """Who plays it: `replicas` or `cluster`."""
        return self.header.get("world", REPLICAS)

    @property
    def title(self) -> str:
        """What it is about."""
        return self.header.get("title", self.name)

    @property
    def aliases(self) -> tuple[str, ...]:
        """Other names by which it is found."""
        return tuple(self.header.get("alias", "").split())

    @property
    def offered(self) -> dict[str, tuple[str, ...]]:
        """The exchangeable rules that the header names, each with all values it is written for."""
        return {n: tuple(v.split("|")) for n, v in self._policy.items()}

    @property
    def policy(self) -> dict[str, str]:
        """The rules that it is played under unless the caller names others."""
        return {name: values[0] for name, values in self.offered.items()}

    @property
    def violates(self) -> frozenset[str]:
        """The invariants that it must break under its own policy."""
        return self.violates_under(self.policy)

    def violates_under(self, policy: Mapping[str, str]) -> frozenset[str]:
        """The invariants that it must break under another policy."""
        return frozenset(
            number
            for entry in self.entries
            if entry.name == "violates" and holds(entry.when, policy)
            for number in entry.value.split()
        )

    @property
    def _policy(self) -> dict[str, str]:
        return dict(_option(word) for word in self.header.get("policy", "").split())

    def where(self, line: int) -> str:
        """How a line is named to people."""
        return f"{self.name}, line {line}"


def holds(conditions: Conditions, policy: Mapping[str, str]) -> bool:
    """Whether each of the conditions is met by a policy that says everything."""
    return all(policy.get(name) in values.split("|") for name, values in conditions.items())


# -- Numbers and times -----------------------------------------------------------------------


def parse_us(text: str) -> int:
    """`40us`, `500ms`, `30s` and `2min` in microseconds."""
    match = _TIME.match(text)
    if match is None:
        raise BadScript(f"'{text}' is not a time such as 500ms or 30s.")
    return int(match[1]) * _UNITS_US[match[2]]


def parse_ms(text: str) -> int:
    """`500ms`, `30s` and `2min` in milliseconds."""
    milliseconds, rest = divmod(parse_us(text), 1_000)
    if rest:
        raise BadScript(f"'{text}' is not a whole number of milliseconds.")
    return milliseconds


def format_us(time_us: int) -> str:
    """The shortest way to write a time, as `parse_us` reads it; minutes are written in seconds."""
    for unit in ("s", "ms"):
        if time_us % _UNITS_US[unit] == 0:
            return f"{time_us // _UNITS_US[unit]}{unit}"
    return f"{time_us}us"


def parse_int(text: str) -> int:
    """A whole number."""
    try:
        return int(text)
    except ValueError:
        raise BadScript(f"'{text}' is not a whole number.") from None


# -- Reading ---------------------------------------------------------------------------------


def load_script(path: Path) -> Script:
    """Parse the scenario in a file. Raises `BadScript`, and `OSError` if it cannot be read."""
    try:
        text = path.read_text()
    except UnicodeDecodeError:
        raise BadScript(f"{path.name} is not a text file.") from None
    return parse_script(path.stem, text)


def parse_script(name: str, text: str) -> Script:
    """Parse a scenario. Raises `BadScript` with the number of the line."""
    lines = list(enumerate(text.splitlines(), start=1))
    entries: list[Entry] = []
    rest = 0
    for number, line in lines:
        entry = _entry(name, number, line)
        if entry is None and not line.startswith("#"):
            break
        rest += 1
        if entry is not None:
            entries.append(entry)
    for index, entry in enumerate(entries):
        if entry.name not in REPEATABLE and entry.name in {e.name for e in entries[:index]}:
            raise BadScript(f"{name}, line {entry.line}: '{entry.name}' is there twice.")
    return Script(name, tuple(entries), tuple(_steps(name, lines[rest:])))


def _entry(name: str, number: int, line: str) -> Entry | None:
    match = _HEADER.match(line)
    if match is None or match[1] == "when":
        return None
    value = match[3] or ""
    if match[1] != "title":
        value = value.split("#", 1)[0]
    try:
        when = _conditions(match[2].split()) if match[2] is not None else {}
    except BadScript as error:
        raise BadScript(f"{name}, line {number}: {error}") from error
    return Entry(number, match[1], value.strip(), when)


def _steps(name: str, lines: list[tuple[int, str]]) -> Iterator[Step]:
    block: Conditions = {}
    blanks: list[Step] = []
    for number, line in lines:
        if not line.strip():
            blanks.append(Step(number, ""))
            continue
        code = line.split("#", 1)[0].strip()
        try:
            if not line[0].isspace():
                block = {}
            # Blank lines belong to a condition if what follows them does.
            yield from (replace(blank, when=block) for blank in blanks)
            blanks = []
            if not block and code.startswith("when ") and code.endswith(":"):
                block = _conditions(code[:-1].split()[1:])
                continue
            step = _step(number, line, code)
            yield replace(step, when={**block, **step.when}) if block else step
        except BadScript as error:
            raise BadScript(f"{name}, line {number}: {error}") from error
    yield from blanks


def _step(number: int, line: str, code: str) -> Step:
    if not code:
        return Step(number, line.strip())
    verb, *rest = code.split()
    text = " ".join(line.split())
    when: Conditions = {}
    if "when" in rest:
        at = rest.index("when")
        when = _conditions(rest[at + 1 :])
        rest = rest[:at]
        text = " ".join([verb, *rest])
    options = dict(_option(word) for word in rest if "=" in word)
    words = tuple(word for word in rest if "=" not in word)
    return Step(number, text, verb, words, options, when)


def _conditions(words: list[str]) -> Conditions:
    if not words or not all("=" in word for word in words):
        raise BadScript("'when' is followed by rules such as truncate=high-watermark.")
    return dict(_option(word) for word in words)


def _option(word: str) -> tuple[str, str]:
    name, _, value = word.partition("=")
    if not name:
        raise BadScript(f"'{word}' has no name before its value.")
    return name, value
