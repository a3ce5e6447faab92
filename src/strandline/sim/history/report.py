"""What the checker found: kinds of anomalies, findings, and the report that a test prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import Final

from strandline.sim.history.operations import Partition

SHOWN_PER_KIND = 5


class AnomalyKind(StrEnum):
    """What can be wrong. In brackets: the class of Jepsen's checker."""

    LOST = "lost"
    """Acknowledged, not there, although something at or after its offset is. [lost-write]"""
    UNSEEN = "unseen"
    """Acknowledged, not in the log, and no reader has read that far. [unseen]"""
    DUPLICATE = "duplicate"
    """One value at two offsets. [duplicate]"""
    INCONSISTENT_OFFSETS = "inconsistent offsets"
    """Two values at one offset. [inconsistent-offsets]"""
    REORDERED = "reordered"
    """A later send lies before an earlier one: of the same producer, or of any producer if the
    earlier one was acknowledged before the later one began. [nonmonotonic-send]"""
    POLL_SKIP = "poll skip"
    """A reader jumped over a record. [poll-skip, int-poll-skip]"""
    NONMONOTONIC_POLL = "nonmonotonic poll"
    """A reader went back without being told to. [nonmonotonic-poll, int-nonmonotonic-poll]"""
    REFUSED_READ = "refused read"
    """A definite error, and yet the value was read. [G1a]"""
    PHANTOM = "phantom"
    """A value that no producer sent. [precommitted-read and worse]"""
    END_WENT_BACK = "end went back"
    """A client saw the end of a partition fall (KIP-207)."""
    RESURRECTED = "resurrected"
    """A reader was given what the cluster had said to be deleted before it asked (I-27)."""


LOSS_KINDS: Final = frozenset(
    {
        AnomalyKind.LOST,
        AnomalyKind.UNSEEN,
        AnomalyKind.DUPLICATE,
        AnomalyKind.INCONSISTENT_OFFSETS,
        AnomalyKind.REORDERED,
        AnomalyKind.END_WENT_BACK,
        AnomalyKind.RESURRECTED,
    }
)
"""What may follow when acknowledged records were lost: their offsets are used again, and brokers
have forgotten what producers had written. The other kinds no loss explains."""


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One finding; `sentence` holds its evidence."""

    kind: AnomalyKind
    partition: Partition
    sentence: str


@dataclass(frozen=True, slots=True)
class Report:
    """The verdict, and how much there was to judge: a history without reads is never wrong."""

    anomalies: tuple[Anomaly, ...]
    sent: int
    acknowledged: int
    refused: int
    read: int
    """Different values that at least one reader was given."""

    @property
    def unknown(self) -> int:
        """Sends without a definite outcome."""
        return self.sent - self.acknowledged - self.refused

    @property
    def counts(self) -> Counter[AnomalyKind]:
        """How many findings of each kind."""
        return Counter(anomaly.kind for anomaly in self.anomalies)

    def beyond(self, allowed: Collection[AnomalyKind]) -> list[Anomaly]:
        """The findings that this run was not meant to have."""
        return [anomaly for anomaly in self.anomalies if anomaly.kind not in allowed]

    def __str__(self) -> str:
        head = (
            f"{self.sent} sent: {self.acknowledged} acknowledged, {self.refused} refused, "
            f"{self.unknown} unknown; {self.read} read; {len(self.anomalies)} anomalies"
        )
        return "\n".join([head, *self._lines()])

    def _lines(self) -> Iterator[str]:
        for kind, count in sorted(self.counts.items()):
            yield f"{kind}: {count}"
            found = (anomaly for anomaly in self.anomalies if anomaly.kind is kind)
            for anomaly in islice(found, SHOWN_PER_KIND):
                yield f"  {anomaly.partition}: {anomaly.sentence}"
