"""What a setting is.

Theory: names, kinds, defaults, limits and update modes are Kafka's (a contract test compares them
with Kafka's own definitions); `service` is ours and says what becomes of a value here. This file
knows no setting by name: the rows are in `settings.txt`, and `definition` has them all.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from strandline.config.allowed import Rule
from strandline.config.values import Kind, Value


class Importance(Enum):
    """How likely it is that an operator needs to change the setting, in Kafka's judgement."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class Service(Enum):
    """What Strandline does with a value."""

    SERVED = "served"
    """The value has its effect."""
    NO_EFFECT = "accepted, no effect"
    """The value is checked and shown, and a warning says that nothing follows from it."""
    REFUSED = "refused"
    """Only the default is accepted: to ignore another value would be unsafe or misleading."""


class Update(Enum):
    """When a broker setting can change. The texts are Kafka's."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"
    """For one broker or for all of them."""


class Synonym(NamedTuple):
    """A broker setting that gives a topic setting its default, in another unit maybe."""

    name: str
    factor: int = 1


class Setting(NamedTuple):
    """One setting. A named tuple because hundreds are made at start-up."""

    name: str
    kind: Kind
    default: Value
    importance: Importance
    allowed: Rule
    service: Service
    doc: str
    update: Update = Update.READ_ONLY
    synonyms: tuple[Synonym, ...] = ()
    """For a topic setting: the broker settings behind it, strongest first."""
    internal: bool = False
    """For tests and experts: not shown unless it was set."""
    deviation: str = ""
    """Why the default or its meaning is not Kafka's; empty for nearly all."""
    dynamic_only: bool = False
    """Cannot be in a properties file."""

    @property
    def attribute(self) -> str:
        """The name of the value in `BrokerConfig` or `TopicConfig`."""
        return self.name.replace(".", "_").replace("-", "_")

    @property
    def is_sensitive(self) -> bool:
        return self.kind is Kind.PASSWORD

    @property
    def is_dynamic(self) -> bool:
        return self.update is not Update.READ_ONLY
