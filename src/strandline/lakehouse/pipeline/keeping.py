"""The upkeep that a table's definition asks for, done by its run beside the stream.

Theory: what is removed is removed by commits of their own, which touch neither frontier nor fence;
so this may go on in another thread than the batches, with a store of its own.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from strandline.client.clock import SystemClock
from strandline.lakehouse.locations.errors import StoreTrouble
from strandline.lakehouse.pipeline.events import Event, Notice
from strandline.lakehouse.tables.backend import Conflict
from strandline.lakehouse.tables.caring import care_for
from strandline.lakehouse.tables.errors import TableError
from strandline.lakehouse.tables.store import TableStore

log = logging.getLogger(__name__)

EVERY_S: Final = 3600.0
_LEAST_S: Final = 60.0
_LOOKS_PER_LIFE: Final = 10


class Keeper:
    """Cares for one table, at the start of a run and then at most every hour.

    Rows that live for less than ten hours are looked at ten times in their life.
    """

    def __init__(
        self,
        store: TableStore,
        tell: Callable[[Event], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`store` is for this object alone."""
        self._store = store
        self._tell = tell
        self._clock = clock
        self._next_s: float | None = None

    def maybe_keep(self) -> None:
        """Do what is due, if it is time to look. Trouble is left for the next time."""
        spec = self._store.spec
        if (spec.expire_rows_ms, spec.vacuum_ms, spec.keep_history_ms) == (None, None, None):
            return
        now = self._clock()
        if self._next_s is not None and now < self._next_s:
            return
        life_s = EVERY_S * _LOOKS_PER_LIFE
        if spec.expire_rows_ms is not None:
            life_s = min(life_s, spec.expire_rows_ms / 1000)
        self._next_s = now + max(_LEAST_S, life_s / _LOOKS_PER_LIFE)
        try:
            done = care_for(self._store, now_ms=SystemClock().wall_ms())
        except (StoreTrouble, TableError, Conflict) as error:
            log.info("The table is not cared for now: %s", error)
            return
        for sentence in done.sentences():
            self._tell(Notice(sentence))
