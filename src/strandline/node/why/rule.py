"""What a rule of `why` is, and what it finds. Rules are values, which page and tests read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from strandline.errors import ErrorCode
from strandline.node.why.scene import Scene


class Scope(StrEnum):
    """What a rule looks at."""

    PARTITION = "partition"
    GROUP = "group"
    CLUSTER = "cluster"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that a rule has found, on this broker, now or in the past that it remembers."""

    about: str
    cause: str
    since_wall_ms: int | None = None
    evidence: tuple[str, ...] = ()
    remedy: str | None = None
    """Where it is more exact than the rule's."""
    is_over: bool = False
    """What was refused would not be refused any more: told only if the error is asked about."""


Examine: TypeAlias = Callable[[Scene], Iterable[Finding]]


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the table: what one sees, why, and what ends it."""

    name: str
    title: str
    scope: Scope
    codes: tuple[ErrorCode, ...]
    """With which a client is refused because of it."""
    cause: str
    remedy: str
    settings: tuple[str, ...]
    examine: Examine
