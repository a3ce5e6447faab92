"""`sasl.jaas.config`: the one line in which Kafka's Java clients are given credentials.

    org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="p";

This file reads the line. It must not know what the options mean. Errors never repeat the line,
since it has a password in it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from strandline.errors import InvalidSetting

NAME: Final = "sasl.jaas.config"
_MODULES: Final = {
    "org.apache.kafka.common.security.plain.PlainLoginModule": ("PLAIN",),
    "org.apache.kafka.common.security.scram.ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule": ("OAUTHBEARER",),
}
_HEAD: Final = re.compile(r"\s*([\w.]+)\s+(required|requisite|sufficient|optional)\b", re.ASCII)
_OPTION: Final = re.compile(
    r"""\s*([\w.-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))"""
)
_END: Final = re.compile(r"\s*;\s*")


@dataclass(frozen=True, slots=True)
class Login:
    """A login module's options, and the mechanisms that it is for."""

    mechanisms: tuple[str, ...]
    options: Mapping[str, str] = field(repr=False)


def parse_jaas(line: str) -> Login:
    """Read the line. Raises `InvalidSetting`."""
    head = _HEAD.match(line)
    if head is None:
        raise _refused('is LOGIN-MODULE required NAME="VALUE" ...; with a semicolon at its end')
    mechanisms = _MODULES.get(head[1])
    if mechanisms is None:
        known = ", ".join(name.rpartition(".")[2] for name in _MODULES)
        raise _refused(f"names the login module {head[1]}; those that are known are {known}")
    options: dict[str, str] = {}
    position = head.end()
    while option := _OPTION.match(line, position):
        quoted = option[2] if option[2] is not None else option[3]
        options[option[1]] = option[4] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        position = option.end()
    end = _END.match(line, position)
    if end is None or end.end() != len(line):
        raise _refused(
            f'cannot be read behind its {len(options)} options: NAME="VALUE", and a semicolon '
            "at the end"
        )
    return Login(mechanisms, options)


def _refused(what: str) -> InvalidSetting:
    return InvalidSetting(NAME, f"{NAME} {what}.")
