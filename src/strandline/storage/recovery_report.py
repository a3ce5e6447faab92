"""What loading a log found wrong and did about it, for the broker to tell people.

This file knows sentences' facts only. An empty report means that the disk was as expected.
"""

from __future__ import annotations

from dataclasses import dataclass

from strandline.types import Offset


@dataclass(frozen=True, slots=True)
class Cut:
    """Bytes that were given up, because they were no valid batches or stood behind such."""

    path: str
    offset: Offset
    """The log's end after the cut."""
    removed_bytes: int
    reason: str
    was_deleted: bool = False
    """Whether it had only what lies in front of the log's start, and is missed by no client."""

    def __str__(self) -> str:
        return (
            f"Cut {self.removed_bytes} bytes from {self.path}; the log now ends at offset "
            f"{self.offset}: {self.reason}"
        )


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """What happened while one log was loaded."""

    cuts: tuple[Cut, ...] = ()
    notes: tuple[str, ...] = ()
    """A sentence for each file that was removed, rebuilt or renamed."""
    recovered_segments: int = 0
    """Segments whose batches were all read and checked."""

    @property
    def lost_bytes(self) -> int:
        """How much was cut in total."""
        return sum(cut.removed_bytes for cut in self.cuts)

    @property
    def has_lost_records(self) -> bool:
        """Whether something was cut that was not deleted: it may have been committed."""
        return any(not cut.was_deleted for cut in self.cuts)

    def lines(self) -> tuple[str, ...]:
        """Everything as sentences, for a log file."""
        return (*map(str, self.cuts), *self.notes)
