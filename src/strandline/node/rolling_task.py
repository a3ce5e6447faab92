"""Segments that are closed because of their age, and logs that are synced because of theirs.

Kafka closes a segment that is older than `segment.ms` with the next append only; here it happens
without one as well (`LogRoller.roll_if_time_due`). Logs that were made together are due together,
and each roll is a sync of a directory. So a round over all logs gives way after each roll, and
after some looks at logs that need none.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from strandline.node.log_rounds import guarded, usable
from strandline.node.log_syncer import LogSyncer
from strandline.node.replicas import Replicas
from strandline.node.slices import SlicedWork, Slices
from strandline.node.timers import Timers
from strandline.types import Instant

LOOKS_PER_TURN: Final = 200
"""Logs that are looked at in one turn if none is due."""
SYNCS_PER_TURN: Final = 10
"""Logs that are given away to be synced in one turn; indexes are written before that."""


class RollingTask:
    """See the module."""

    def __init__(self, replicas: Replicas, timers: Timers, syncing: LogSyncer) -> None:
        self._replicas = replicas
        self._syncing = syncing
        self._rolling = SlicedWork("Rolling", timers, self._roll)

    def roll_and_sync(self, now: Instant) -> None:
        """Begin a round over all logs."""
        self._rolling.begin(now)

    def _roll(self) -> Slices:
        now = yield
        looks = syncs = 0
        for replica in usable(self._replicas):
            roll = partial(replica.log.roller.roll_if_time_due, now.wall_ms)
            rolled = guarded("Rolling", replica, roll)
            looks += 1
            syncs += self._syncing.sync_if_due(replica, now)
            if rolled or looks == LOOKS_PER_TURN or syncs == SYNCS_PER_TURN:
                now = yield
                looks = syncs = 0
