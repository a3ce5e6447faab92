"""What values a setting may have beyond its kind.

Each rule says in `text` what it allows (Kafka's own notation where it is a range or a choice) and
answers `problem(value)` with the end of a sentence when a value breaks it. Rules know no setting
by name. Plain classes instead of data classes: start-up time counts, and there are few.
"""

from __future__ import annotations

import re
from typing import Final, Protocol

from strandline.config.values import Value


class Rule(Protocol):
    """A rule for values of one or more settings."""

    @property
    def text(self) -> str:
        """What is allowed; empty when there is nothing to say."""

    def problem(self, value: Value) -> str | None:
        """Why `value` is refused, to complete "<name> is <value>: it ...", or None."""


class Anything:
    """No rule beyond the kind."""

    text = ""

    def problem(self, value: Value) -> None:
        """Nothing is refused."""


class Range:
    """A number between two bounds, both included; `None` leaves a side open."""

    def __init__(self, low: float | None = None, high: float | None = None) -> None:
        self.low = low
        self.high = high
        parts = [str(bound) for bound in (low, "...", high) if bound is not None]
        if high is None:
            parts = [str(low), "..."]
        self.text = f"[{','.join(parts)}]"

    def problem(self, value: Value) -> str | None:
        if not isinstance(value, int | float):
            return "must be set"
        if self.low is not None and value < self.low:
            return f"must be at least {self.low}"
        if self.high is not None and value > self.high:
            return f"must be at most {self.high}"
        return None


class GzipLevel:
    """1 to 9, or -1 for the library's default."""

    text = "[1,...,9] or -1"

    def problem(self, value: Value) -> str | None:
        if isinstance(value, int) and (value == -1 or 1 <= value <= 9):
            return None
        return "must be from 1 to 9, or -1"


class ShareOffsetReset:
    """Where a share group starts: at either end of the log, or some time ago."""

    text = "[latest, earliest, by_duration:PnDTnHnMn.nS]"

    def problem(self, value: Value) -> str | None:
        if value in ("latest", "earliest") or share_reset_ms(str(value)) is not None:
            return None
        return "must be latest, earliest, or by_duration: with a duration such as PT1H30M"


_DURATION: Final = re.compile(
    r"by_duration:P(?:(\d{1,9})D)?(?:T(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,9})(?:\.(\d{1,9}))?S)?)?",
    re.ASCII,
)


def share_reset_ms(text: str) -> int | None:
    """How many milliseconds ago `by_duration:...` means; None for anything else."""
    found = _DURATION.fullmatch(text)
    if found is None or text.endswith(("P", "T")):
        return None
    days, hours, minutes, seconds, part = (each or "0" for each in found.groups())
    whole = ((int(days) * 24 + int(hours)) * 60 + int(minutes)) * 60 + int(seconds)
    return whole * 1000 + int(float(f"0.{part}") * 1000)


class OneOf:
    """One of a few words."""

    def __init__(self, *words: str, any_case: bool = False) -> None:
        self.words = words
        self.any_case = any_case
        self.text = f"{'(case insensitive) ' if any_case else ''}[{', '.join(words)}]"

    def problem(self, value: Value) -> str | None:
        word = value.upper() if self.any_case and isinstance(value, str) else value
        return None if word in self.words else f"must be one of {', '.join(self.words)}"


class ListOf:
    """A list without empty items; duplicates are dropped when it is read."""

    def __init__(self, *words: str, empty: bool = True, text: str | None = None) -> None:
        self.words = words
        self.empty = empty
        self.text = f"[{', '.join(words)}]" if text is None and words else text or ""

    def problem(self, value: Value) -> str | None:
        if not isinstance(value, tuple):
            return None
        if not value and not self.empty:
            return "must have at least one item"
        if "" in value:
            return "must not have empty items"
        if self.words and any(item not in self.words for item in value):
            return f"may only have the items {', '.join(self.words)}"
        return None


class NonEmptyText:
    """Any text but the empty one; not being set is fine."""

    text = "non-empty string"

    def problem(self, value: Value) -> str | None:
        return "must not be empty" if value == "" else None


class NonNullText:
    """Any text; here only so that the documentation says what Kafka's says."""

    text = "non-null string"

    def problem(self, value: Value) -> str | None:
        return "must be set" if value is None else None


class QuorumAddresses:
    """Controller addresses of KRaft: checked by Kafka only for being parseable."""

    text = "non-empty list"

    def problem(self, value: Value) -> str | None:
        return "must not have empty items" if isinstance(value, tuple) and "" in value else None


class ThrottledReplicas:
    """`partition:broker` pairs, or `*` for all replicas."""

    text = "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
    _PAIR: Final = re.compile(r"([0-9]+:[0-9]+)?")

    def problem(self, value: Value) -> str | None:
        if not isinstance(value, tuple) or value == ("*",):
            return None
        if all(self._PAIR.fullmatch(item) for item in value):
            return None
        return "must be * or a list of partition:broker pairs"


ANYTHING: Final = Anything()


def at_least(low: float) -> Range:
    return Range(low)


def between(low: float, high: float) -> Range:
    return Range(low, high)
