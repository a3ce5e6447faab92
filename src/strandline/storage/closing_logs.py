"""Closing many logs, some at once, so that their syncs take their time together.

One log that fails to close does not keep the others from closing.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Protocol

from strandline.errors import StorageError
from strandline.storage.flush_plan import ClosePlan


class Closable(Protocol):
    """What closing needs of a log."""

    def begin_close(self) -> ClosePlan:
        """Write what is to be written, and say what is then to be synced."""

    def end_close(self, plan: ClosePlan) -> None:
        """Close the files, after the plan was carried out. Raises its `StorageError`."""


def closing_logs(
    logs: Sequence[Closable], at_once: int
) -> Generator[tuple[ClosePlan, ...], None, list[StorageError]]:
    """Give plans to be carried out, for so many logs at once; returns what has failed."""
    failures: list[StorageError] = []
    for first in range(0, len(logs), at_once):
        begun: list[tuple[Closable, ClosePlan]] = []
        for log in logs[first : first + at_once]:
            try:
                begun.append((log, log.begin_close()))
            except StorageError as failure:
                failures.append(failure)
        yield tuple(plan for _, plan in begun)
        for log, plan in begun:
            try:
                log.end_close(plan)
            except StorageError as failure:
                failures.append(failure)
    return failures
