"""What keeps the log of a Delta table from growing without end, in Delta's own terms.

Theory: marks are Delta's application transactions. Delta forgets one that was written with a time,
when `delta.setTransactionRetentionDuration` has passed since. That is for the marks of queries:
each run of a table is a new query, whose mark says nothing once it has ended. A query that
committed nothing for a week and then goes on is not recognised as one that was fenced. It still
cannot double a record, since its ranges are held against the frontier.

Frontier, fence and watermark must stay. Without a time they would for delta-rs; but a checkpoint
that Spark writes has none of them then, if the table has that property. So they get a time that
never passes, and what earlier versions wrote without one is written again with the next commit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from deltalake import Transaction

from strandline.lakehouse.tables.marks import is_of_query

FOR_GOOD_MS: Final = 253_402_300_799_000
"""The last second of the year 9999, in milliseconds since 1970."""

_MARKS: Final = "delta.setTransactionRetentionDuration"
_LOG: Final = "delta.logRetentionDuration"
_BOUNDED: Final = "delta.dataSkippingNumIndexedCols"
"""How many columns have bounds that are read: 32 by default, and a record's time stands behind."""


def upkeep_properties(keep_history_ms: int | None, *, for_spark: bool) -> Mapping[str, str]:
    """Properties of a table. Spark's writer gives marks times of its own: there none may expire."""
    found = {_BOUNDED: "-1"}
    if not for_spark:
        found[_MARKS] = "interval 7 days"
    if keep_history_ms is not None:
        found[_LOG] = f"interval {keep_history_ms // 1000} seconds"
    return found


def dated(mark: str, now_ms: int) -> int:
    """The time that a mark is written with, in milliseconds since 1970."""
    return now_ms if is_of_query(mark) else FOR_GOOD_MS


def transactions(marks: Mapping[str, int], now_ms: int) -> list[Transaction]:
    """Marks for a commit of delta-rs."""
    return [Transaction(name, number, dated(name, now_ms)) for name, number in marks.items()]
