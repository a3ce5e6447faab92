"""A user's security settings as they were given, to be handed on: to clients, and to Spark.

Spark shows options of a query to people who may look at it. What goes there are references to
secrets where the user gave references; a secret that was given itself is hidden by
`spark.redaction.regex`, which the sessions of this package extend by `sasl.jaas.config`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from strandline.client.security.names import NAMES, SECRET_NAMES, is_refused, security_of
from strandline.client.security.secret import Secret
from strandline.client.security.settings import Security


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """See the module. Nothing given is a cluster without security."""

    given: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def security(self) -> Security:
        """The same as values. Raises `InvalidSetting`."""
        return security_of(self.given)

    def spark_options(self) -> dict[str, str]:
        """As options of this package's Spark source and sink."""
        return {f"kafka.{name}": value for name, value in self.given.items()}

    def java_options(self) -> dict[str, str]:
        """As options of Spark's own connector, whose Java client knows no references."""
        return {
            f"kafka.{name}": Secret(name, value).reveal() if name in SECRET_NAMES else value
            for name, value in self.given.items()
        }


UNSECURED: Final = ClientConfig()
"""Of a cluster that asks for nothing."""


def is_about_security(name: str) -> bool:
    """Whether a setting belongs into a `ClientConfig`, be it to be refused there."""
    return name in NAMES or is_refused(name)
