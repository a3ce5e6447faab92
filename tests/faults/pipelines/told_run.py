"""`strandline`, as it is, but it tells which phase of a table's run it is in (`phases`).

    python -m tests.faults.pipelines.told_run PIPE table run ...

PIPE is the number of a file descriptor. What is run is the real command: its functions are only
wrapped in others that write a line before they call them.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

from strandline.cli.main import main
from strandline.lakehouse.pipeline import batches
from strandline.lakehouse.pipeline.runner import Runner
from strandline.lakehouse.tables.delta import DeltaBackend
from strandline.lakehouse.tables.delta_spark import SparkDeltaBackend
from strandline.lakehouse.tables.iceberg import IcebergBackend
from strandline.lakehouse.tables.store import TableStore
from tests.faults.pipelines import phases


class _Telling:
    """The phase now. The phases of batches come from one thread, after that which starts it."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._now = ""

    def tell(self, phase: str) -> None:
        if phase != self._now:
            self._now = phase
            os.write(self._pipe, f"{time.monotonic_ns()} {phase}\n".encode())

    def begin(self) -> None:
        """An attempt: the first, or another."""
        self.tell(phases.RETRYING if self._now else phases.STARTING)

    def during(self, phase: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """`call`, as a phase, after which the one before goes on."""

        def told(*arguments: Any, **options: Any) -> Any:
            before = self._now
            self.tell(phase)
            try:
                return call(*arguments, **options)
            finally:
                self.tell(before)

        return told

    def batch(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """`call`, which writes and commits a batch."""

        def told(*arguments: Any, **options: Any) -> Any:
            self.tell(phases.WRITING)
            try:
                return call(*arguments, **options)
            finally:
                self.tell(phases.WAITING)

        return told

    def change(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """`call`, which changes a table: what comes afterwards is another phase than before."""

        def told(*arguments: Any, **options: Any) -> Any:
            before = self._now
            if before in (
                phases.STARTING,
                phases.RETRYING,
            ):  # a table beside, which an ended run left behind
                return call(*arguments, **options)
            self.tell(phases.CHANGING)
            made = call(*arguments, **options)
            self.tell(before if before == phases.COMPACTING else phases.FOLLOWING)
            return made

        return told


def _wrap(owner: Any, name: str, wrapper: Callable[[Callable[..., Any]], Any]) -> None:
    setattr(owner, name, wrapper(getattr(owner, name)))


def _wrap_all(telling: _Telling) -> None:
    def beginning(call: Callable[..., Any]) -> Callable[..., Any]:
        def told(*arguments: Any, **options: Any) -> Any:
            telling.begin()
            return call(*arguments, **options)

        return told

    _wrap(Runner, "_one_query", beginning)
    _wrap(batches, "commit_batch", telling.batch)
    _wrap(TableStore, "commit", lambda call: telling.during(phases.CHECKING, call))
    _wrap(TableStore, "compact", lambda call: telling.during(phases.COMPACTING, call))
    for backend in (DeltaBackend, IcebergBackend, SparkDeltaBackend):
        _wrap(backend, "commit", telling.change)


if __name__ == "__main__":
    _wrap_all(_Telling(int(sys.argv.pop(1))))
    main()
