"""Java's properties file format, in which Kafka's `server.properties` is written.

    # comment            ! comment
    name = value         name: value       name value
    name = one,\\         a backslash before the line end continues the line;
           two           white space at the start of the next line does not count
    name = \\u0041\\t      escapes in names and values: \\t \\n \\r \\f \\uXXXX, else the character

Theory: lines first (comments and continuations), then one split per logical line, then escapes.
This file knows no setting. Text is UTF-8 here; Java reads Latin-1, which differs only for
characters that Kafka's settings do not need.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from strandline.errors import InvalidSetting

_BLANKS: Final = " \t\f"
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_HEX_DIGITS: Final = 4


def parse_properties(text: str) -> dict[str, str]:
    """Names and values; of several lines with one name, the last one counts."""
    return dict(_split(line) for line in _logical_lines(text))


def _logical_lines(text: str) -> Iterator[str]:
    continued = ""
    for raw in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        line = raw.lstrip(_BLANKS)
        if not continued and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2 == 1:
            continued += line[:-1]
            continue
        yield continued + line
        continued = ""
    if continued:
        yield continued


def _split(line: str) -> tuple[str, str]:
    """Split at the first `=`, `:` or blank that no backslash protects."""
    position = 0
    while position < len(line) and line[position] not in f"=:{_BLANKS}":
        position += 2 if line[position] == "\\" else 1
    value = line[position:].lstrip(_BLANKS)
    if value[:1] in ("=", ":"):
        value = value[1:].lstrip(_BLANKS)
    return _unescape(line[:position]), _unescape(value)


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    parts: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character != "\\":
            parts.append(character)
            continue
        escaped = text[position : position + 1]
        position += 1
        if escaped == "u":
            parts.append(_unicode(text[position : position + _HEX_DIGITS]))
            position += _HEX_DIGITS
        else:
            parts.append(_ESCAPES.get(escaped, escaped))
    return _join_surrogates("".join(parts))


def _unicode(digits: str) -> str:
    if len(digits) != _HEX_DIGITS or any(d not in "0123456789abcdefABCDEF" for d in digits):
        raise InvalidSetting(
            "",
            f"The properties file has '\\u{digits}'; \\u is followed by four hexadecimal digits.",
        )
    return chr(int(digits, 16))


def _join_surrogates(text: str) -> str:
    """Java escapes characters beyond 16 bits as two `\\u` halves; Python has them as one."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
