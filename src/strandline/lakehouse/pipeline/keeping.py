"""The upkeep of a table, done by its run beside the stream: small files joined, old ones removed.

Theory: it is done by commits of their own, which touch neither frontier nor fence; so this goes on
in another thread than the batches, with a store of its own, and batches are committed meanwhile. A
compaction comes after them, for all files that are still there (`tables.replacing`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from strandline.client.clock import SystemClock
from strandline.lakehouse.pipeline.events import Event, Notice
from strandline.lakehouse.pipeline.options import RunOptions
from strandline.lakehouse.tables.caring import care_for
from strandline.lakehouse.tables.store import TableStore
from strandline.lakehouse.tables.troubles import left_for_later

log = logging.getLogger(__name__)

EVERY_S: Final = 3600.0
_LEAST_S: Final = 60.0
_LOOKS_PER_LIFE: Final = 10
_NOT_NOW: Final = "The table is not cared for now"


class Keeper:
    """Cares for one table, at the start of a run and then at most every hour.

    Rows that live for less than ten hours are looked at ten times in their life. Small files are
    joined whenever there were so many commits as the run's options say.
    """

    def __init__(
        self,
        store: TableStore,
        options: RunOptions,
        tell: Callable[[Event], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`store` is for this object alone."""
        self.store = store
        """Another one takes its place when there is another session for its tasks."""
        self._options = options
        self._tell = tell
        self._clock = clock
        self._next_s: float | None = None
        self._sequence: int | None = None
        self._is_to_compact = False

    def committed(self, sequence: int) -> None:
        """A batch became the table's commit of that number."""
        if every := self._options.compact_every:
            before = sequence - 1 if self._sequence is None else self._sequence
            self._is_to_compact |= sequence // every > before // every
            self._sequence = sequence

    def maybe_compact(self) -> None:
        """Join small files, if it is time. Trouble is left for the next time."""
        if not self._is_to_compact:
            return
        self._is_to_compact = False
        with left_for_later(log, _NOT_NOW):
            done = self.store.compact()
            if done.files_before:
                self._tell(
                    Notice(f"Compacted {done.files_before:,} files into {done.files_after:,}.")
                )
            self._maybe_vacuum()

    def _maybe_vacuum(self) -> None:
        older_than_ms = self._options.vacuum_ms
        if older_than_ms is not None:
            now_ms = SystemClock().wall_ms()
            gone = self.store.vacuum(now_ms=now_ms, older_than_ms=older_than_ms)
            files = "1 file" if len(gone) == 1 else f"{len(gone):,} files"
            self._tell(Notice(f"Deleted {files} that no reader needs."))

    def maybe_keep(self) -> None:
        """Do what is due, if it is time to look. Trouble is left for the next time."""
        spec = self.store.spec
        if (spec.expire_rows_ms, spec.vacuum_ms, spec.keep_history_ms) == (None, None, None):
            return
        now = self._clock()
        if self._next_s is not None and now < self._next_s:
            return
        life_s = EVERY_S * _LOOKS_PER_LIFE
        if spec.expire_rows_ms is not None:
            life_s = min(life_s, spec.expire_rows_ms / 1000)
        self._next_s = now + max(_LEAST_S, life_s / _LOOKS_PER_LIFE)
        with left_for_later(log, _NOT_NOW):
            for sentence in care_for(self.store, now_ms=SystemClock().wall_ms()).sentences():
                self._tell(Notice(sentence))
