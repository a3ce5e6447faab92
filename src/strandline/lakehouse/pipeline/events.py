"""The events of a run of a table, in the order in which they happen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from strandline.lakehouse.pipeline.lag import Lag
from strandline.lakehouse.tables.identity import OffsetRange


@dataclass(frozen=True, slots=True)
class Started:
    """A run begins: the first, or again after trouble."""

    partitions: int
    committed: int
    """Offsets that the table has already."""
    lag: Lag | None


@dataclass(frozen=True, slots=True)
class Committed:
    """A batch is in the table."""

    sequence: int
    version: int
    rows: int
    late_rows: int
    dead_letters: int
    ranges: tuple[OffsetRange, ...]
    lost: tuple[OffsetRange, ...]
    seconds: float
    """From the batch's start to the end of its commit."""
    lag: Lag | None = None
    """After the commit; None if the cluster could not be asked."""
    dropped: int = 0
    """Records for which the table's transform gave no row."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A sentence about something that a person should know and need not mend."""

    sentence: str


@dataclass(frozen=True, slots=True)
class Stopped:
    """The run has ended as it was meant to."""

    commits: int
    rows: int
    lag: Lag | None
    dead_letters: int = 0
    dead_share: float = 0.0
    """The greatest share that dead letters had of the records of one commit."""
    is_too_dead: bool = False
    """Whether that is more than the run's options take for normal."""


Event: TypeAlias = Started | Committed | Notice | Stopped
