"""The outcome of a proof: per partition what was counted, what is wrong, and what cannot be known.

Values only; how they are counted is `job.py` and `upserted.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Final, NamedTuple

from strandline.lakehouse.verify.coverage import Span
from strandline.types import TopicPartition

EXPLODED: Final = "exploded"
"""The number of rows that records have beyond one each."""


class Verdict(Enum):
    """What is true of one offset, or in a table that is upserted of one key."""

    GOOD = "good"
    """In the log and, as it should be, in one place of the table."""
    COMPACTED = "compacted"
    """In the table; the log is compacted, and has a newer record of the key, or a tombstone."""
    UNPROVABLE = "unprovable"
    """In the table; the log begins behind it by now."""
    MISSING = "missing"
    """In the log, in no place of the table."""
    DOUBLED = "doubled"
    """In more than one place of the table, or more than once in one."""
    UNEXPLAINED = "unexplained"
    """In the table, and never in the log as its readers see it."""
    OUTSIDE = "outside"
    """In the table, beyond what its commits say that it holds."""
    STALE = "stale"
    """A key whose row is not that of its newest record."""

    @property
    def is_wrong(self) -> bool:
        """Whether this must not be."""
        return self not in (Verdict.GOOD, Verdict.COMPACTED, Verdict.UNPROVABLE)


class Example(NamedTuple):
    """One offset that is not as it should be."""

    partition: TopicPartition
    offset: int
    verdict: Verdict


@dataclass(slots=True)
class PartitionReport:
    """Of one partition; offsets from `start` up to but not including `end` are judged."""

    start: int
    end: int
    log_start: int
    counts: dict[Verdict, int] = field(default_factory=dict)
    places: dict[str, int] = field(default_factory=dict)
    """Rows by where they are: `rows`, `late`, `dead_letters`; records that the transform `dropped`,
    or whose rows or letters `expired`;
    and how many rows more than records there are (`exploded`)."""
    lost: list[Span] = field(default_factory=list)
    """Declared: the log had lost them before they were read."""


@dataclass(slots=True)
class Report:
    """Of a whole table at one commit."""

    table: str
    sequence: int
    mode: str
    partitions: dict[TopicPartition, PartitionReport]
    wrong: list[str] = field(default_factory=list)
    """Faults of the commits themselves."""
    examples: list[Example] = field(default_factory=list)
    since: int | None = None
    """The commit whose proof this one goes on from: only what was open since then is counted."""
    since_ms: int | None = None
    """When that proof was made."""

    @property
    def is_good(self) -> bool:
        """Whether nothing was found wrong, by what could be compared."""
        return not self.wrong and not any(
            count and verdict.is_wrong
            for each in self.partitions.values()
            for verdict, count in each.counts.items()
        )

    def total(self, verdict: Verdict) -> int:
        """Of all partitions."""
        return sum(each.counts.get(verdict, 0) for each in self.partitions.values())

    def sentences(self) -> list[str]:
        """What a person has to know besides the numbers."""
        lines = [*self.wrong]
        lines += [_WRONG[each].format(f"{count:,}") for each, count in self._wrong_counts()]
        lines += self._transformed()
        unprovable = self.total(Verdict.UNPROVABLE)
        if unprovable:
            lines.append(
                f"{unprovable:,} records cannot be compared any more: the log begins behind them. "
                "They are in the table once."
            )
        compacted = self.total(Verdict.COMPACTED)
        if compacted:
            lines.append(f"{compacted:,} records were compacted away in the log since they came.")
        for partition, each in sorted(self.partitions.items()):
            lines += [
                f"Offsets {span} of {partition} were gone before the table could read them, and "
                "are noted as lost."
                for span in each.lost
            ]
        if self.since is not None and self.since_ms is not None:
            lines.append(
                f"Continued from the proof of commit {self.since}, of {_shown(self.since_ms)}: "
                "what it showed was not compared again (--all does)."
            )
        what = "key" if self.mode == "upsert" else "record"
        lines.append(
            f"Proven: every {what} of the log below the frontier is in the table, or in a table "
            "beside it, exactly once."
            if self.is_good
            else "The table is not what its topics were."
        )
        return lines

    def place(self, name: str) -> int:
        """Of all partitions: how many rows or records are in a place."""
        return sum(each.places.get(name, 0) for each in self.partitions.values())

    def _transformed(self) -> list[str]:
        """What the transform did with records."""
        lines = []
        if dropped := self.place("dropped"):
            lines.append(f"{dropped:,} records were dropped by the table's transform.")
        if expired := self.place("expired"):
            lines.append(f"{expired:,} records had rows or letters that went for their age.")
        if exploded := self.place(EXPLODED):
            lines.append(f"{exploded:,} rows are further ones of records that became several.")
        return lines

    def _wrong_counts(self) -> list[tuple[Verdict, int]]:
        return [(each, self.total(each)) for each in _WRONG if self.total(each)]

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "table": self.table,
            "commits": self.sequence,
            "good": self.is_good,
            "since": self.since,
            "wrong": self.wrong,
            "partitions": [
                {
                    "topic": partition.topic,
                    "partition": partition.partition,
                    "start": each.start,
                    "end": each.end,
                    "log_start": each.log_start,
                    "places": each.places,
                    "lost": [[span.start, span.end] for span in each.lost],
                    **{verdict.value: each.counts.get(verdict, 0) for verdict in Verdict},
                }
                for partition, each in sorted(self.partitions.items())
            ],
            "examples": [
                [each.partition.topic, each.partition.partition, each.offset, each.verdict.value]
                for each in self.examples
            ],
            "sentences": self.sentences(),
        }


def _shown(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M} UTC"


_WRONG: Mapping[Verdict, str] = {
    Verdict.MISSING: "{} are in the log and not in the table.",
    Verdict.DOUBLED: "{} are in the table more than once.",
    Verdict.UNEXPLAINED: "{} are in the table and not in the log.",
    Verdict.OUTSIDE: "{} are in the table, but no commit says so.",
    Verdict.STALE: "{} keys have a row that is not of their newest record.",
}
