"""Patterns for topics, resolved by the broker and matched against whole names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from strandline.errors import ProtocolError
from strandline.protocol.regex import Regex, compile_regex


def check_pattern(pattern: str) -> None:
    """Refuse a pattern that cannot be used. Raises `ProtocolError`."""
    _compiled(pattern)


def matching(patterns: Iterable[str], names: Iterable[str]) -> Mapping[str, frozenset[str]]:
    """The names that each pattern matches. A pattern that cannot be used matches nothing: it was
    stored by a broker whose library is another one."""
    every_name = list(names)
    found: dict[str, frozenset[str]] = {}
    for pattern in patterns:
        try:
            compiled = _compiled(pattern)
        except ProtocolError:
            found[pattern] = frozenset()
            continue
        found[pattern] = frozenset(name for name in every_name if compiled.fullmatch(name))
    return found


def _compiled(pattern: str) -> Regex:
    return compile_regex(pattern, "SubscribedTopicRegex")
