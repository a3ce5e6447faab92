"""One partition of `__share_group_state` as its coordinator holds it, under one leader epoch.

A change is decided against everything that was appended, and counts when it is durable; one that is
refused never was. Must not know what requests are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from strandline.errors import ErrorCode, InvariantViolated
from strandline.protocol.coordinator_log import APPEND_UNDECIDED, CoordinatorRecord
from strandline.sharing.effects import AppendRecords
from strandline.sharing.records import Change, ShareKey, ShareState, decode_record, encode_record
from strandline.sharing.state import updated
from strandline.types import Instant, LeaderEpoch

Outcome: TypeAlias = Callable[["ErrorCode | None", Instant], None]
"""Told once how a change ended, None for durable, or that its end takes too long."""


@dataclass(slots=True)
class _Entry:
    """One share partition."""

    current: ShareState | None = None
    """With everything that was appended."""
    durable: ShareState | None = None
    updates: int = 0
    """Records since the last snapshot."""
    last_append: int = 0
    snapshot_at: int | None = None
    """The offset of the newest snapshot, if it is known."""


@dataclass(slots=True)
class _Pending:
    changes: tuple[tuple[ShareKey, Change], ...]
    due_ms: int
    outcomes: list[Outcome] = field(default_factory=list)
    base_offset: int | None = None


class Shard:
    """See the module."""

    def __init__(self, partition: int, leader_epoch: LeaderEpoch) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch
        self._entries: dict[ShareKey, _Entry] = {}
        self._pending: dict[int, _Pending] = {}
        """Appends that are neither durable nor refused, in the order of the log."""
        self._end = 0
        """The offset behind the last record that is known to be durable, or 0."""

    # -- Loading -----------------------------------------------------------------------------

    def replay(self, records: Iterable[CoordinatorRecord]) -> int:
        """The next records of the log; returns how many are of kinds that are not known."""
        unknown = 0
        for record in records:
            found = decode_record(record)
            if found is None:
                unknown += 1
                continue
            key, change = found
            entry = self._entries.setdefault(key, _Entry())
            state = updated(entry.current, change)
            if state is None:
                del self._entries[key]
                continue
            entry.updates = 0 if isinstance(change, ShareState) else entry.updates + 1
            entry.current = entry.durable = state
        return unknown

    # -- States ------------------------------------------------------------------------------

    def current(self, key: ShareKey) -> ShareState | None:
        """The state with all that was appended."""
        entry = self._entries.get(key)
        return None if entry is None else entry.current

    def updates(self, key: ShareKey) -> int:
        """How many updates there are behind the newest snapshot."""
        return self._entries[key].updates

    def share_partitions(self) -> list[ShareKey]:
        """All share partitions."""
        return list(self._entries)

    def change(
        self,
        append_id: int,
        changes: Iterable[tuple[ShareKey, Change]],
        due_ms: int,
        outcome: Outcome | None,
    ) -> AppendRecords:
        """Append changes as one batch."""
        wanted = tuple(changes)
        pending = self._pending[append_id] = _Pending(wanted, due_ms)
        if outcome is not None:
            pending.outcomes.append(outcome)
        for key, change in wanted:
            entry = self._entries.setdefault(key, _Entry())
            entry.current = updated(entry.current, change)
            entry.updates = 0 if isinstance(change, ShareState) else entry.updates + 1
            entry.last_append = append_id
        records = tuple(encode_record(key, change) for key, change in wanted)
        return AppendRecords(append_id, self.partition, self.leader_epoch, records)

    def when_durable(self, key: ShareKey, due_ms: int, outcome: Outcome, now: Instant) -> None:
        """Be told when the current state of a share partition cannot be lost any more."""
        entry = self._entries.get(key)
        pending = self._pending.get(entry.last_append) if entry is not None else None
        if pending is None:
            outcome(None, now)
        else:
            pending.outcomes.append(outcome)
            pending.due_ms = max(pending.due_ms, due_ms)

    # -- The ends of appends -----------------------------------------------------------------

    def placed(self, append_id: int, base_offset: int) -> None:
        """Where an append was put."""
        if append_id in self._pending:
            self._pending[append_id].base_offset = base_offset

    def appended(self, append_id: int, error: ErrorCode | None, now: Instant) -> bool:
        """An append has ended; False if it only takes longer than it should."""
        if error in APPEND_UNDECIDED:
            self._tell(self._pending[append_id], error, now)
            return False
        if error is None and append_id != next(iter(self._pending)):
            raise InvariantViolated(
                f"Append {append_id} to partition {self.partition} is durable before earlier ones."
            )
        pending = self._pending.pop(append_id)
        for index, (key, change) in enumerate(pending.changes):
            if error is None:
                self._settle(key, change, pending.base_offset, index)
            else:
                self._start_over(key)
        self._tell(pending, error, now)
        return True

    def _settle(self, key: ShareKey, change: Change, base_offset: int | None, index: int) -> None:
        entry = self._entries[key]
        entry.durable = updated(entry.durable, change)
        if base_offset is not None:
            self._end = max(self._end, base_offset + index + 1)
            if isinstance(change, ShareState):
                entry.snapshot_at = base_offset + index
        self._maybe_drop(key)

    def _maybe_drop(self, key: ShareKey) -> None:
        """Forget a share partition that is gone, unless more of it is under way: it may be there
        again in between."""
        entry = self._entries[key]
        is_gone = entry.durable is None and entry.current is None
        if is_gone and entry.last_append not in self._pending:
            del self._entries[key]

    def _start_over(self, key: ShareKey) -> None:
        """An append was refused: what counts is what is durable, and what is still to be."""
        entry = self._entries.get(key)
        if entry is None:
            return
        entry.current = entry.durable
        for pending in self._pending.values():
            for other, change in pending.changes:
                if other == key:
                    entry.current = updated(entry.current, change)
        self._maybe_drop(key)

    def _tell(self, pending: _Pending, error: ErrorCode | None, now: Instant) -> None:
        outcomes, pending.outcomes = pending.outcomes, []
        for outcome in outcomes:
            outcome(error, now)

    def next_deadline(self) -> int | None:
        """When a request has waited long enough (monotonic ms)."""
        return min((each.due_ms for each in self._pending.values() if each.outcomes), default=None)

    def tick(self, now: Instant) -> None:
        """Tell those that have waited long enough."""
        for pending in list(self._pending.values()):
            if pending.outcomes and pending.due_ms <= now.monotonic_ms:
                self._tell(pending, ErrorCode.REQUEST_TIMED_OUT, now)

    def close(self, now: Instant) -> None:
        """Another broker coordinates these share partitions."""
        pending, self._pending = self._pending, {}
        for each in pending.values():
            self._tell(each, ErrorCode.NOT_COORDINATOR, now)

    # -- Pruning -----------------------------------------------------------------------------

    def prunable(self) -> int | None:
        """The offset before which nothing is needed; None if it is not known. What is appended and
        not durable is no matter: it stands behind all that is."""
        needed = [each.snapshot_at for each in self._entries.values() if each.durable is not None]
        known = [at for at in needed if at is not None]
        return None if len(known) < len(needed) else min(known, default=None)

    def stale(self, most: int) -> Iterator[tuple[ShareKey, ShareState]]:
        """Share partitions that a new snapshot would let the log be pruned further: first those
        whose snapshot's place is not known, then the ones with the oldest. None while there is
        nothing but the newest snapshots from the oldest of them on: new ones would replace one
        another for ever."""
        idle = [
            (-1 if entry.snapshot_at is None else entry.snapshot_at, key)
            for key, entry in self._entries.items()
            if entry.current is not None and entry.last_append not in self._pending
        ]
        oldest = min((at for at, _ in idle), default=-1)
        if oldest >= 0 and self._end - oldest <= len(self._entries):
            return
        newest = max((at for at, _ in idle), default=-1)
        found = sorted(each for each in idle if each[0] == -1 or each[0] < newest)
        for _, key in found[:most]:
            state = self._entries[key].current
            if state is not None:
                yield key, state
