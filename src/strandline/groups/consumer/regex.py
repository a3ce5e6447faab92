"""Patterns for topics, resolved by the broker: those of RE2, matched against whole names.

RE2 takes time that is linear in what it reads, whatever the pattern is, and its memory is bounded:
a client's pattern cannot hold up the broker. The library is an extra of this package; without it
every pattern is refused with a sentence that says what to install.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from strandline.errors import ErrorCode, ProtocolError

NO_LIBRARY: Final = (
    "Subscribing by a pattern needs RE2 on the broker: install strandline[regex] there."
)
_MEMORY_MAX: Final = 1 << 20
_LENGTH_MAX: Final = 4_096
"""Of a pattern, in characters."""


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


def _compiled(pattern: str) -> Any:
    try:
        import re2
    except ImportError:
        raise ProtocolError(ErrorCode.INVALID_REGULAR_EXPRESSION, NO_LIBRARY) from None
    if len(pattern) > _LENGTH_MAX:
        raise ProtocolError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex has {len(pattern)} characters; at most {_LENGTH_MAX} may be.",
        )
    options = re2.Options()
    options.max_mem = _MEMORY_MAX
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except (re2.error, UnicodeError) as error:
        reason = error.args[0] if error.args else error
        if isinstance(reason, bytes):
            reason = reason.decode(errors="replace")
        raise ProtocolError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {reason}.",
        ) from error
