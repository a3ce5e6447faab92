"""Ranges of message versions, written as Kafka's documentation writes them.

`"3+"` is version 3 and later, `"0-7"` is 0 to 7 inclusive, `"5"` only 5, `"none"` no version.
"""

from __future__ import annotations

from typing import Final, NamedTuple

NEWEST: Final = 0x7FFF
"""Versions travel as int16, so no version is above this one; the upper end of `"3+"`."""


class VersionRange(NamedTuple):
    """Versions from `lowest` to `highest`, both included. Empty when `lowest > highest`."""

    lowest: int
    highest: int

    def covers(self, version: int) -> bool:
        """Whether `version` lies in the range."""
        return self.lowest <= version <= self.highest

    @property
    def empty(self) -> bool:
        """Whether no version lies in the range."""
        return self.lowest > self.highest

    def overlap(self, other: VersionRange) -> VersionRange:
        """The versions that lie in both ranges."""
        return VersionRange(max(self.lowest, other.lowest), min(self.highest, other.highest))

    def __str__(self) -> str:
        if self.empty:
            return "none"
        if self.highest == NEWEST:
            return f"{self.lowest}+"
        return str(self.lowest) if self.lowest == self.highest else f"{self.lowest}-{self.highest}"


NO_VERSIONS: Final = VersionRange(0, -1)


def parse_versions(text: str) -> VersionRange:
    """Read `"3+"`, `"0-7"`, `"5"` or `"none"`. Raises ValueError for anything else."""
    if text == "none":
        return NO_VERSIONS
    if text.endswith("+"):
        return VersionRange(int(text[:-1]), NEWEST)
    lowest, dash, highest = text.partition("-")
    return VersionRange(int(lowest), int(highest) if dash else int(lowest))
