"""Reads what a coordinator keeps in a partition of its topic, when this node comes to lead it.

    begin ──> replay, a step at a time ──> finish
                 └── no descriptor, or a disk that fails: drop, and lead again, later

This file must not know what records say. `finish` is called when all of it is read, and what is
loaded stays listed here until it is `done`, or dropped. A coordinator that may serve only what
cannot be lost any more waits for that by `when_committed`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

from strandline.errors import CorruptRecords, ErrorCode, StorageError
from strandline.node.coordinator_topic import committed_records
from strandline.node.replica import Replica
from strandline.node.timers import Timers
from strandline.protocol.coordinator_log import CoordinatorRecord, OpenRecord
from strandline.types import Instant, LeaderEpoch, Offset

log = logging.getLogger(__name__)

_RESTART_MS: Final = 1000
_RECORDS_PER_STEP: Final = 2000
"""Loading them takes some tens of milliseconds, during which no other client is served."""
_LOOK_AGAIN_MS: Final = 60_000
"""How often a load that is not committed is looked at, beside all that wakes it."""

ReadRecords = Sequence[CoordinatorRecord | OpenRecord]


class Load(NamedTuple):
    """A partition whose records are being read."""

    replica: Replica
    leader_epoch: LeaderEpoch
    end_offset: Offset
    records: Iterator[CoordinatorRecord | OpenRecord]

    @property
    def partition(self) -> int:
        """Its number."""
        return self.replica.topic_partition.partition


class Loading:
    """The partitions of one coordinator that are being loaded."""

    def __init__(
        self,
        what: str,
        timers: Timers,
        read_bytes: int,
        *,
        replay: Callable[[Load, ReadRecords], None],
        finish: Callable[[Load, Instant], None],
        drop: Callable[[Replica, Instant], None],
        lead: Callable[[Replica, Instant], None],
    ) -> None:
        """`what` the partitions hold, for the log of the node; `read_bytes` are read at once.

        `replay` may raise `CorruptRecords`: the partition is not served then. `drop` and `lead`
        begin anew, as if the leadership was lost and came back.
        """
        self._what = what
        self._timers = timers
        self._read_bytes = read_bytes
        self._replay = replay
        self._finish = finish
        self._drop = drop
        self._lead = lead
        self._loads: dict[int, Load] = {}

    @property
    def partitions(self) -> list[int]:
        """What is led here and not served yet."""
        return sorted(self._loads)

    def is_current(self, load: Load) -> bool:
        """Whether the partition is still led here, in the same epoch, and not served yet."""
        return self._loads.get(load.partition) is load

    def begin(self, replica: Replica) -> Load:
        """A partition is led here now. `go_on` reads the first step."""
        end_offset = replica.log.log_end_offset
        records = committed_records(replica.log, end_offset, self._read_bytes)
        load = Load(replica, replica.leader_epoch, end_offset, records)
        self._loads[load.partition] = load
        return load

    def done(self, partition: int) -> None:
        """It is served, or led here no more."""
        self._loads.pop(partition, None)

    def when_committed(
        self, load: Load, serve: Callable[[Load, Instant], None], now: Instant
    ) -> None:
        """Call `serve` when what was read cannot be lost any more, and the load is `done`; never
        if the partition is led here no more by then."""

        def decided(code: ErrorCode, at: Instant) -> None:
            if not self.is_current(load):
                return
            if code is ErrorCode.REQUEST_TIMED_OUT:
                self.when_committed(load, serve, at)
            elif code is not ErrorCode.NOT_LEADER_OR_FOLLOWER:
                self.done(load.partition)
                serve(load, at)

        code = load.replica.commit_outcome(load.end_offset)
        if code is not None:
            decided(code, now)
        else:
            deadline_ms = now.monotonic_ms + _LOOK_AGAIN_MS
            load.replica.await_commit(load.end_offset, decided, deadline_ms=deadline_ms)

    def go_on(self, load: Load, now: Instant) -> None:
        """The next step."""
        if not self.is_current(load):
            return
        try:
            records = list(islice(load.records, _RECORDS_PER_STEP))
            self._replay(load, records)
        except (CorruptRecords, StorageError) as error:
            # What the partition holds stays away, and clients retry; all others are served.
            log.error(
                "The %s in %s cannot be loaded: %s", self._what, load.replica.topic_partition, error
            )
            if isinstance(error, StorageError):
                load.replica.failed_to_read(error)
                self._timers.schedule(now.monotonic_ms + _RESTART_MS, partial(self._anew, load))
            return
        if len(records) == _RECORDS_PER_STEP:
            self._timers.in_another_turn(partial(self.go_on, load), now)
        else:
            self._finish(load, now)

    def _anew(self, load: Load, now: Instant) -> None:
        """Begin again with what could not be read for want of descriptors."""
        if self.is_current(load):
            self._drop(load.replica, now)
            self._lead(load.replica, now)


def replay_plain(
    replay: Callable[[int, LeaderEpoch, Sequence[CoordinatorRecord]], int],
    load: Load,
    records: ReadRecords,
) -> None:
    """Give a coordinator the records that are in no open transaction. `replay` returns how many are
    of kinds that it does not know, and raises `CorruptRecords`."""
    plain = [record for record in records if isinstance(record, CoordinatorRecord)]
    skipped = replay(load.partition, load.leader_epoch, plain)
    if skipped:
        at = load.replica.topic_partition
        log.warning("%s holds %d records of kinds that are not served", at, skipped)
