"""Regular expressions of clients, which brokers match: those of RE2, as in Kafka.

RE2 takes time that is linear in what it reads, whatever the pattern is, and its memory is bounded:
a client's pattern cannot hold up the broker. The library is an extra of this package; without it
every pattern is refused with a sentence that says what to install.
"""

from __future__ import annotations

from typing import Final, Protocol

from strandline.errors import ErrorCode, ProtocolError

NO_LIBRARY: Final = "A pattern needs RE2 on the broker: install strandline[regex] there."
_MEMORY_MAX: Final = 1 << 20
_LENGTH_MAX: Final = 4_096
"""Of a pattern, in characters."""


class Regex(Protocol):
    """A regular expression that is ready for use."""

    @property
    def programsize(self) -> int:
        """How many instructions it has, each of which a character may cost."""

    def fullmatch(self, text: str, /) -> object | None:
        """What matches the whole text, or None."""


def compile_regex(pattern: str, field: str) -> Regex:
    """Compile the pattern that stands in this field of a request. Raises `ProtocolError`."""
    try:
        import re2
    except ImportError:
        raise ProtocolError(ErrorCode.INVALID_REGULAR_EXPRESSION, NO_LIBRARY) from None
    if len(pattern) > _LENGTH_MAX:
        raise ProtocolError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"{field} has {len(pattern)} characters; at most {_LENGTH_MAX} may be.",
        )
    options = re2.Options()
    options.max_mem = _MEMORY_MAX
    options.log_errors = False
    try:
        compiled: Regex = re2.compile(pattern, options)
    except (re2.error, UnicodeError) as error:
        reason = error.args[0] if error.args else error
        if isinstance(reason, bytes):
            reason = reason.decode(errors="replace")
        raise ProtocolError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"{field} `{pattern}` is not a valid regular expression: {reason}.",
        ) from error
    return compiled
