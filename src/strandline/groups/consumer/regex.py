"""Patterns for topics, resolved by the broker and matched against whole names.

Many patterns and many topics take long together, and other clients are served by the same loop. So
matching goes on in steps, each of which does as much as takes some milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from strandline.errors import ProtocolError
from strandline.protocol.regex import Regex, compile_regex

# What work costs, in the time that RE2 takes at most for one instruction of a pattern's program at
# one character of a name (1.4 to 7 ns were measured).
_STEP: Final = 1_000_000
_MATCH: Final = 200
"""To call the library at all."""
_NAME: Final = 200
"""To see whether a topic may be seen."""
_COMPILED: Final = 100
"""To compile one instruction."""
_TAKEN: Final = 500
"""To store one topic that is matched."""


def check_pattern(pattern: str) -> None:
    """Refuse a pattern that cannot be used. Raises `ProtocolError`."""
    _compiled(pattern)


class Matching:
    """The names that each pattern matches, found step by step."""

    def __init__(
        self, patterns: Iterable[str], names: Iterable[str], may_see: Callable[[str], bool]
    ) -> None:
        """Of the names only those count that `may_see` lets through."""
        self._work = self._match(list(patterns), list(names), may_see)
        self._found: dict[str, frozenset[str]] = {}
        self.is_done = False
        """Whether every pattern has been matched with every name."""

    def go_on(self) -> dict[str, frozenset[str]]:
        """Take a step; returns the patterns that are done with it, and what they match. A pattern
        that cannot be used matches nothing: it was stored by a broker whose library is another."""
        spent = 0
        for cost in self._work:
            spent += cost
            if spent >= _STEP:
                break
        else:
            self.is_done = True
        found, self._found = self._found, {}
        return found

    def _match(
        self, patterns: list[str], names: list[str], may_see: Callable[[str], bool]
    ) -> Iterator[int]:
        """Yields what each piece of work has cost."""
        seen: list[str] = []
        for name in names:
            if may_see(name):
                seen.append(name)
            yield _NAME
        for pattern in patterns:
            matched: list[str] = []
            try:
                compiled = _compiled(pattern)
            except ProtocolError:
                self._found[pattern] = frozenset()
                yield _MATCH
                continue
            size = compiled.programsize
            yield _COMPILED * size
            for name in seen:
                cost = _MATCH + size * len(name)
                if compiled.fullmatch(name):
                    matched.append(name)
                    cost += _TAKEN
                yield cost
            self._found[pattern] = frozenset(matched)


def _compiled(pattern: str) -> Regex:
    return compile_regex(pattern, "SubscribedTopicRegex")
