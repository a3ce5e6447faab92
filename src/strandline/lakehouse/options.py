"""Options of a Spark source or sink: names in any case, values that are text, and clear refusals.

Spark hands over options in lower case. This file knows how a value of each kind is read and what to
say about a name that is none; which names there are is known in `source` and `sink`.

Options that begin with `kafka.` are Kafka's client settings, as in Spark's own connector. Those
that have a meaning here are used, those that only tune Java's client are taken and do nothing, and
those without which the result would be another are refused.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, TypeVar

from strandline.client.security.config import ClientConfig, is_about_security
from strandline.client.security.settings import Security
from strandline.client.settings import parse_addresses
from strandline.errors import InvalidSetting

T = TypeVar("T")

_DURATION: Final = re.compile(r"(\d+)\s*([a-z]*)")
_UNIT_MS: Final = {
    "": 1,
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}
_SECURE_PREFIX: Final = "kafka."


class Options:
    """The options that were given. Each getter raises `InvalidSetting` about a value it refuses."""

    def __init__(self, given: Mapping[str, str], *, known: Iterable[str], what: str) -> None:
        """Refuse unknown names. `what` completes a sentence: "is not an option of the ..."."""
        self._names = {name.lower(): name for name in known}
        self._values = {name.lower(): value for name, value in given.items()}
        self._what = what
        config = {
            name.removeprefix(_SECURE_PREFIX): value
            for name, value in self._values.items()
            if name.startswith(_SECURE_PREFIX) and is_about_security(name[len(_SECURE_PREFIX) :])
        }
        self.security: Security = ClientConfig(config).security
        """What the options say of TLS and SASL, under Kafka's names with the prefix."""
        for name in self._values:
            if name not in self._names and name.removeprefix(_SECURE_PREFIX) not in config:
                raise self._unknown(name)

    def text(self, name: str) -> str | None:
        """The value, without white space around it; None if it was not given."""
        value = self._values.get(name.lower())
        return None if value is None else value.strip()

    def flag(self, name: str, default: bool) -> bool:
        """`true` or `false`."""
        return self.one_of(name, {"true": True, "false": False}, default)

    def one_of(self, name: str, choices: Mapping[str, T], default: T) -> T:
        """One of some words, in any case."""
        value = self.text(name)
        if value is None:
            return default
        if value.lower() not in choices:
            raise self.refused(name, f"is {' or '.join(choices)}")
        return choices[value.lower()]

    def number(self, name: str, *, at_least: int = 1) -> int | None:
        """A whole number."""
        value = self.text(name)
        if value is None:
            return None
        if not re.fullmatch(r"\d{1,18}", value) or int(value) < at_least:
            raise self.refused(name, f"is a whole number, {at_least} at least")
        return int(value)

    def duration_ms(self, name: str, default_ms: int) -> int:
        """A duration such as `15m`, `30s` or `1000` (milliseconds), as Spark reads it."""
        value = self.text(name)
        if value is None:
            return default_ms
        match = _DURATION.fullmatch(value.lower())
        if match is None or match[2] not in _UNIT_MS:
            raise self.refused(name, "is a duration such as 500ms, 30s, 15m or 1h")
        return int(match[1]) * _UNIT_MS[match[2]]

    def json_object(self, name: str, example: str) -> Mapping[str, Any] | None:
        """A JSON object."""
        value = self.text(name)
        if value is None:
            return None
        try:
            read = json.loads(value)
        except ValueError:
            read = None
        if not isinstance(read, dict):
            raise self.refused(name, f"is a JSON object such as {example}")
        return read

    def bootstrap(self) -> str:
        """The brokers' addresses, with or without the prefix of Kafka's settings."""
        with_prefix, plain = "kafka.bootstrap.servers", "bootstrap.servers"
        value = self.text(with_prefix) or self.text(plain)
        if value is None:
            raise InvalidSetting(
                with_prefix,
                f"The option {with_prefix} is missing: it names brokers as host:port,host:port.",
            )
        parse_addresses(value)
        return value

    def refused(self, name: str, expectation: str) -> InvalidSetting:
        """The error for a value; `expectation` says what the option is."""
        return InvalidSetting(
            name, f"The option {name} {expectation}, not '{self._values[name.lower()]}'."
        )

    def given(self, names: Collection[str]) -> list[str]:
        """Which of these were given."""
        return [name for name in names if name.lower() in self._values]

    def _unknown(self, name: str) -> InvalidSetting:
        near = difflib.get_close_matches(name, self._names, n=1, cutoff=0.6)
        hint = f"; did you mean {self._names[near[0]]}?" if near else "."
        return InvalidSetting(name, f"{name} is not an option of the {self._what}{hint}")
