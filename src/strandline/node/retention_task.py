"""What leaves the disks of a node: segments that are not kept, files of what was dropped.

Retention raises log starts, has them written down, and only then drops segments (see
`Retention.expire`); the files of what was dropped go after `file.delete.delay.ms`, in another
thread. All of it is done in slices, however many segments there are. This file must not know why a
segment is not kept.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Final

from strandline.errors import StorageError
from strandline.node.effects import RemoveFiles
from strandline.node.log_rounds import guarded, usable
from strandline.node.logs import Directory, Removed
from strandline.node.outbox import Outbox
from strandline.node.replica import Replica
from strandline.node.replicas import Replicas
from strandline.node.slices import SlicedWork, Slices
from strandline.node.timers import Timers
from strandline.storage.files import NoRoom
from strandline.storage.log import Log
from strandline.storage.segments import Removal, Segments
from strandline.types import Instant

log = logging.getLogger(__name__)

AGES_PER_TURN: Final = 50
"""Segments whose age is looked up in one turn; each may mean to open an index."""
DROPS_PER_TURN: Final = 8
"""Segments whose files are renamed in one turn: about a millisecond."""
REMOVALS_PER_TURN: Final = 32
"""Segments whose files are given away to be removed in one turn."""


@dataclass(slots=True)
class _RunningRemoval:
    """One `RemoveFiles` under way: the files of dropped segments of a log, or a whole partition."""

    directory: Directory | None
    segments: Segments | None
    """Those of the log: it may get others, when it moves to another directory."""
    removals: list[Removal]
    removed: Removed | None = None


class RetentionTask:
    """See the module."""

    def __init__(
        self,
        replicas: Replicas,
        timers: Timers,
        outbox: Outbox,
        *,
        is_busy: Callable[[Log], bool],
    ) -> None:
        """`is_busy`: compaction works on a log, so that its segments stay for now."""
        self._is_busy = is_busy
        self._replicas = replicas
        self._outbox = outbox
        self._tokens = count(1)
        self._removing: dict[int, _RunningRemoval] = {}
        self._retention = SlicedWork("Retention", timers, self._retain)
        self._removal = SlicedWork("Removing old files", timers, self._remove)

    def apply_retention(self, now: Instant) -> None:
        """Begin a round over all logs."""
        self._retention.begin(now)

    def remove_files(self, now: Instant) -> None:
        """Have the files removed whose time has come."""
        self._removal.begin(now)

    def files_removed(self, token: int, error: StorageError | None) -> None:
        """The driver has carried a `RemoveFiles` out."""
        item = self._removing.pop(token)
        if item.removed is not None and error is None:
            self._replicas.logs.removed.remove(item.removed)
        if item.segments is not None:
            item.segments.settle(item.removals, is_done=error is None)
        if isinstance(error, NoRoom):
            log.warning("Old files are removed later: %s", error)
        elif error is not None and item.directory is not None:
            self._replicas.logs.take_offline(item.directory, error)

    # -- Retention ---------------------------------------------------------------------------

    def _retain(self) -> Slices:
        now = yield
        done = 0
        for replica in usable(self._replicas):
            more = True
            while more and not replica.is_retired:
                moved = guarded("Retention", replica, partial(self._expire, replica, now))
                more = moved >= AGES_PER_TURN
                done += moved + 1
                if done >= AGES_PER_TURN:
                    now, done = (yield), 0
        done = 0
        for replica in usable(self._replicas):
            dropped = 0
            more = True
            while more and not replica.is_retired and not self._is_busy(replica.log):
                # Also what a client has had deleted since the last slice.
                self._replicas.logs.save_log_starts()
                drop = partial(replica.log.retention.drop_below_start, now.wall_ms, DROPS_PER_TURN)
                step = guarded("Retention", replica, drop)
                more = step >= DROPS_PER_TURN
                dropped, done = dropped + step, done + step
                if done >= DROPS_PER_TURN:
                    now, done = (yield), 0
            self._dropped(replica, dropped)

    def _expire(self, replica: Replica, now: Instant) -> int:
        moved = replica.log.retention.expire(now.wall_ms, AGES_PER_TURN)
        if moved:
            replica.changed()  # who waits below the new start learns that it is gone
        return moved

    def _dropped(self, replica: Replica, segments: int) -> None:
        if segments:
            log.info(
                "Retention dropped %d segments of %s, which now starts at %d",
                segments,
                replica.topic_partition,
                replica.log.log_start_offset,
            )
            replica.changed()

    # -- Removal -----------------------------------------------------------------------------

    def _remove(self) -> Slices:
        now = yield
        for replica in usable(self._replicas):
            while removals := replica.log.segments.take_due(now.wall_ms, REMOVALS_PER_TURN):
                paths = tuple(path for removal in removals for path in removal.paths)
                directory = self._replicas.logs.directory_of(replica.topic_partition)
                running = _RunningRemoval(directory, replica.log.segments, removals)
                self._ask(running, paths, ())
                if len(removals) == REMOVALS_PER_TURN:
                    now = yield
        for directory in self._replicas.logs.usable:
            for future in directory.futures.values():
                if future.failure is None and (
                    removals := future.segments.take_due(now.wall_ms, REMOVALS_PER_TURN)
                ):
                    paths = tuple(path for removal in removals for path in removal.paths)
                    self._ask(_RunningRemoval(directory, future.segments, removals), paths, ())
        under_way = [each.removed for each in self._removing.values()]
        for item in list(self._replicas.logs.removed):
            if item.due_ms > now.monotonic_ms or item in under_way:
                continue
            if item.log is not None:
                item.log.close()
            if item.directory.offline_reason is None:
                self._ask(_RunningRemoval(item.directory, None, [], item), (), (item.path,))

    def _ask(self, item: _RunningRemoval, paths: tuple[str, ...], trees: tuple[str, ...]) -> None:
        token = next(self._tokens)
        self._removing[token] = item
        self._outbox.add(RemoveFiles(token, paths, trees))
