"""`ssl.principal.mapping.rules`: from the name in a certificate to that of a principal (KIP-371).

    RULE:^CN=(.*?),OU=Clients.*$/$1/L, RULE:^.*UID=(\\w+).*$/$1/, DEFAULT

The first rule whose pattern the whole name matches decides: its replacement, in which `$1` is the
first group, perhaps in lower (L) or upper (U) case. DEFAULT is the name as it is; no rules at all
mean the same. A name that no rule matches has no principal: the client is refused, as in Kafka.
Patterns are Python's regular expressions, which are Java's for what is usual.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from strandline.errors import InvalidSetting

_DEFAULT: Final = "DEFAULT"
_RULE: Final = re.compile(
    r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,|$)"
)
_GROUP: Final = re.compile(r"\$(\d+)")


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: re.Pattern[str]
    replacement: str
    """As Python writes it."""
    case: str

    def apply(self, name: str) -> str | None:
        if self.pattern.fullmatch(name) is None:
            return None
        result = self.pattern.sub(self.replacement, name, count=1)
        return {"L": result.lower(), "U": result.upper()}.get(self.case, result)


class PrincipalRules:
    """The rules in their text form. Raises `InvalidSetting` about the setting `name`."""

    def __init__(self, text: str, name: str = "ssl.principal.mapping.rules") -> None:
        self._setting = name
        self._rules: list[_Rule] = []
        text = text.rstrip() or _DEFAULT
        position = 0
        while position < len(text):
            match = _RULE.match(text, position)
            if match is None:
                raise InvalidSetting(
                    name,
                    f"{name} cannot be read at '{text[position : position + 40]}': rules are "
                    "DEFAULT or RULE:PATTERN/REPLACEMENT/ with L or U behind it, separated by "
                    "commas.",
                )
            self._rules.append(_rule(name, match))
            position = match.end()

    def name_of(self, distinguished_name: str) -> str:
        """The name of the principal. Raises `ValueError` if no rule matches."""
        for rule in self._rules:
            name = rule.apply(distinguished_name)
            if name is not None:
                return name
        raise ValueError(
            f"No rule of {self._setting} matches the certificate's name {distinguished_name!r}."
        )


def _rule(name: str, match: re.Match[str]) -> _Rule:
    if match[1] == _DEFAULT:
        return _Rule(re.compile(".*", re.DOTALL), r"\g<0>", "")
    try:
        pattern = re.compile(match[2])
    except re.error as error:
        raise InvalidSetting(
            name, f"{name} has the pattern '{match[2]}', which is none: {error}."
        ) from error
    wanted = [int(each) for each in _GROUP.findall(match[3])]
    if any(each > pattern.groups for each in wanted):
        raise InvalidSetting(
            name, f"{name} has the replacement '{match[3]}' with a group that there is not."
        )
    literal = match[3].replace("\\", r"\\")
    return _Rule(pattern, _GROUP.sub(r"\\g<\1>", literal), match[4])
