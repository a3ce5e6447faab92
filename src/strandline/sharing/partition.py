"""One share partition: the records of a partition as one share group takes them, on its leader.

A member *acquires* available records for a time, and then *acknowledges* them: accepted, released,
rejected, or still being worked on. What it has not acknowledged when the time is over is available
again; a record that was delivered too often is archived.

Acknowledgements count when they are stored (`Write`). One write is under way at a time; what comes
meanwhile goes with the next, so that writes cannot overtake one another. While its write is under
way a record belongs to no member. A write that fails gives the records back to the members that
had them: they were told so, and may try again.

The end of a lock, or a session, needs no such care: a leader that missed it hands the records out.

Events and the time come in, decisions come out. Must not know logs, requests and settings' names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from strandline.errors import ErrorCode, InvariantViolated, ProtocolError
from strandline.protocol.acknowledge_type import AckType
from strandline.sharing.runs import (
    DONE,
    NEW,
    Held,
    RecordState,
    Run,
    Runs,
    StateBatch,
    Status,
    restored,
)
from strandline.sharing.taking import take
from strandline.sharing.values import (
    AckBatch,
    Acquired,
    Limits,
    LogBatch,
    Write,
    check_batch,
    released,
    typed,
    united,
)
from strandline.types import Instant

_Is: TypeAlias = Callable[[Held], bool]


class SharePartition:
    """See the module."""

    def __init__(self, start: int) -> None:
        """All before `start` is done."""
        self._runs = Runs(start)
        self._under_way = 0
        """The write under way; 0: none."""
        self._collecting = 1
        """The write after that, with which goes what is acknowledged now."""
        self._is_wanted = False
        """Whether there is something for it."""
        self._dirty: list[tuple[int, int]] = []
        """Ranges that changed without an acknowledgement, and are to be stored as well."""

    @classmethod
    def loaded(
        cls, start: int, batches: Iterable[StateBatch], *, log_start: int, log_end: int
    ) -> SharePartition:
        """From what was stored. Offsets of which nothing was stored are available. What the log has
        lost is given up: other records will take the offsets."""
        made = cls(min(start, log_end))
        made._is_wanted = start > log_end
        for batch in sorted(batches):
            first = max(batch.first, made._runs.end + 1)
            last = min(batch.last, log_end - 1)
            if made._runs.end + 1 < first <= last:
                made._runs.put([Run(made._runs.end + 1, first - 1, NEW)])
            if first <= last:
                status = Status(RecordState(batch.state), batch.deliveries)
                made._runs.put([Run(first, last, status)])
            if batch.last >= log_end:
                made._dirty.append((max(batch.first, log_end), batch.last))
                made._is_wanted = True
        made.raise_start(log_start)
        made._advance()
        return made

    # -- Facts -------------------------------------------------------------------------------

    @property
    def first_offset(self) -> int:
        """The start of the window: all before it is done."""
        return self._runs.start

    @property
    def end_offset(self) -> int:
        """The last offset that was ever handed out, or one before the start."""
        return self._runs.end

    @property
    def runs(self) -> list[Run]:
        """The window, for readers."""
        return list(self._runs)

    @property
    def next_offset(self) -> int:
        """The first offset that is available."""
        for run in self._runs:
            if run.status.is_available:
                return run.first
        return self._runs.end + 1

    def can_acquire(self, limits: Limits) -> bool:
        """Whether a member may get records, if there are some."""
        return self.next_offset <= self._runs.end or self._runs.size < limits.window_max

    def next_deadline(self) -> int | None:
        """When the first lock is over (monotonic ms); None without locks."""
        return min(
            (
                run.status.held.until_ms
                for run in self._runs
                if run.status.state is RecordState.ACQUIRED and run.status.held is not None
            ),
            default=None,
        )

    # -- Members -----------------------------------------------------------------------------

    def acquire(
        self,
        member_id: str,
        batches: Sequence[LogBatch],
        limits: Limits,
        now: Instant,
        *,
        records_max: int,
        is_strict: bool = False,
    ) -> list[Acquired]:
        """Give a member available records out of what was read from the log.

        `batches` come in order, and the first one holds `next_offset`, or is what comes next. At
        most `records_max` records are given, unless that would split a batch: then its rest comes
        along, if not `is_strict`. What the log left out before the first batch is archived; what it
        left out later is given as well, and members are told to acknowledge it as a gap. What was
        delivered often is given by fewer records at once (see `taking`).
        """
        position = self.next_offset
        if batches and batches[0].first > position:
            self._archive(position, batches[0].first - 1)
            position = batches[0].first
        given: list[Acquired] = []
        count = 0
        held = Held(member_id, now.monotonic_ms + limits.lock_ms)
        for batch in batches:
            if count >= records_max:
                break
            if batch.last < position:
                continue
            is_split = is_strict and not batch.is_hidden
            most = records_max - count if is_split else batch.last - position + 1
            last = self._extend(batch.last, most, limits)
            if last < position:
                break
            if batch.is_hidden:
                self._archive(position, last)
                if last < batch.last:
                    break  # the window is full: what is left must not pass for the next batch's
                position = last + 1
                continue
            taken = take(
                self._runs,
                position,
                last,
                most=most,
                batch_size=batch.last - batch.first + 1,
                held=held,
                limits=limits,
                has_others=bool(given),
            )
            given += taken.acquired
            if taken.is_all:
                break
            position = taken.position
            count += sum(each.last - each.first + 1 for each in taken.acquired)
        return given

    def _extend(self, last: int, most: int, limits: Limits) -> int:
        """Make the window longer, up to a batch's end, by `most` at most. A batch that is begun is
        taken in although it does not fit. Returns the last offset that is in the window now."""
        beyond = self._runs.end + 1
        if last >= beyond and self._runs.size < limits.window_max:
            self._runs.put([Run(beyond, min(last, beyond + most - 1), NEW)])
        return min(last, self._runs.end)

    def _archive(self, first: int, last: int) -> None:
        """Records that are not to be had, up to the window's end or right behind it; not what a
        member has."""
        if last > self._runs.end:
            self._runs.put([Run(self._runs.end + 1, last, NEW)])
        changed = [
            Run(run.first, run.last, replace(run.status, state=RecordState.ARCHIVED))
            for run in self._runs.within(first, last)
            if run.status.is_available
        ]
        self._changed(changed)

    def acknowledge(
        self, member_id: str, batches: Sequence[AckBatch], limits: Limits, now: Instant
    ) -> int | None:
        """Take over what a member says of its records; returns the write on which that depends,
        None if nothing has to be stored.

        All or nothing. Raises `ProtocolError`: INVALID_RECORD_STATE for records that are not the
        member's, INVALID_REQUEST.
        """
        changes: list[Run] = []
        is_written = False
        end = -1
        for batch in batches:
            check_batch(batch, end)
            end = batch.last
            for first, last, kind in typed(batch):
                if last < self._runs.start:
                    continue  # of what lies before the start all is done
                first = max(first, self._runs.start)
                for run in self._acquired(member_id, first, last):
                    status = self._after(run.status, kind, limits, now)
                    is_written |= status.write != 0
                    changes.append(Run(run.first, run.last, status))
        self._runs.put(changes)
        if not is_written:
            return None
        self._is_wanted = True
        return self._collecting

    def _acquired(self, member_id: str, first: int, last: int) -> list[Run]:
        if last > self._runs.end:
            raise ProtocolError(
                ErrorCode.INVALID_REQUEST,
                f"The records up to {last} were not acquired: the last one is {self._runs.end}.",
            )
        runs = self._runs.within(first, last)
        for run in runs:
            held = run.status.held
            if (
                run.status.state is not RecordState.ACQUIRED
                or held is None
                or held.member_id != member_id
            ):
                raise ProtocolError(
                    ErrorCode.INVALID_RECORD_STATE,
                    f"Record {run.first} is not acquired by member {member_id}.",
                )
        return runs

    def _after(self, status: Status, kind: int, limits: Limits, now: Instant) -> Status:
        if kind == AckType.RENEW:
            if not limits.may_renew:
                raise ProtocolError(
                    ErrorCode.INVALID_REQUEST,
                    "Records cannot be renewed: share.renew.acknowledge.enable is false.",
                )
            held = replace(status.held or Held("", 0), until_ms=now.monotonic_ms + limits.lock_ms)
            return replace(status, held=held)
        state = RecordState.ARCHIVED
        if kind == AckType.ACCEPT:
            state = RecordState.ACKNOWLEDGED
        elif kind == AckType.RELEASE:
            state = released(status, limits)
        return replace(status, state=state, write=self._collecting)

    def release(self, member_id: str, limits: Limits) -> None:
        """A member has gone: what it had is available, for all that is known of it."""
        self._let_go(lambda held: held.member_id == member_id, limits)

    def tick(self, limits: Limits, now: Instant) -> None:
        """Locks whose time is over end."""
        self._let_go(lambda held: held.until_ms <= now.monotonic_ms, limits)

    def _let_go(self, is_over: _Is, limits: Limits) -> None:
        changed = [
            Run(
                run.first,
                run.last,
                Status(released(run.status, limits), run.status.deliveries),
            )
            for run in self._runs
            if run.status.state is RecordState.ACQUIRED
            and run.status.held is not None
            and is_over(run.status.held)
        ]
        self._changed(changed)

    def _changed(self, changed: Sequence[Run]) -> None:
        """Statuses that count at once, and are stored when that is possible."""
        if changed:
            self._runs.put(changed)
            self._dirty += [(run.first, run.last) for run in changed]
            self._is_wanted = True
            self._advance()

    # -- The log -----------------------------------------------------------------------------

    def raise_start(self, log_start: int) -> None:
        """The log begins later now: what it had before is done, in whatever state."""
        if log_start > self._runs.start:
            self._runs.raise_start(log_start)
            self._is_wanted = True
            self._advance()

    # -- Writes ------------------------------------------------------------------------------

    @property
    def is_writing(self) -> bool:
        """Whether a write is under way."""
        return self._under_way != 0

    def next_write(self) -> Write | None:
        """The next write, if there is something to be stored and none under way."""
        if self._under_way or not self._is_wanted:
            return None
        write_id = self._under_way = self._collecting
        self._collecting += 1
        self._is_wanted = False
        start = self._start_after(write_id)
        dirty, self._dirty = self._dirty, []
        ranges = [(run.first, run.last) for run in self._runs if run.status.write == write_id]
        batches = [
            batch
            for first, last in united([*ranges, *dirty])
            for batch in self._stored(max(first, start), last)
        ]
        done = sum(
            run.last - max(run.first, start) + 1
            for run in self._runs
            if run.last >= start and run.status.state in DONE
        )
        return Write(write_id, start, tuple(batches), done)

    def _stored(self, first: int, last: int) -> Iterator[StateBatch]:
        """A range as it is stored: what is acquired will be available again to the next leader.
        Behind the window are offsets of records that the log has lost."""
        for run in self._runs.within(first, last):
            state, deliveries = run.status.state, run.status.deliveries
            if state is RecordState.ACQUIRED:
                state, deliveries = RecordState.AVAILABLE, deliveries - 1
            yield StateBatch(run.first, run.last, state, deliveries)
        lost = max(first, self._runs.end + 1)
        if lost <= last:
            yield StateBatch(lost, last, RecordState.AVAILABLE, 0)

    def written(self, write_id: int, *, is_stored: bool) -> None:
        """A write has ended. What it was about counts now, or is as it was before."""
        if write_id != self._under_way:
            raise InvariantViolated(f"The write {write_id} is not under way.")
        self._under_way = 0
        self._runs.put(
            [
                Run(
                    run.first,
                    run.last,
                    replace(run.status, write=0, held=None) if is_stored else restored(run.status),
                )
                for run in self._runs
                if run.status.write == write_id
            ]
        )
        self._advance()

    def _start_after(self, write_id: int) -> int:
        """Where the window starts if this write succeeds."""
        for run in self._runs:
            if run.status.state not in DONE or run.status.write not in (0, write_id):
                return run.first
        return self._runs.end + 1

    def _advance(self) -> None:
        self._runs.raise_start(self._start_after(0))

    def check(self) -> None:
        """Verify what must always be true. For tests and simulators."""
        self._runs.check()
        for run in self._runs:
            status = run.status
            if (status.state is RecordState.ACQUIRED) and (status.held is None or status.write):
                raise InvariantViolated(f"Record {run.first} is acquired by no member.")
            if status.write and status.write not in (self._under_way, self._collecting):
                raise InvariantViolated(f"Record {run.first} waits for a write that is over.")
            if not status.write and status.state is not RecordState.ACQUIRED and status.held:
                raise InvariantViolated(f"Record {run.first} is held although it is not acquired.")
        if len(self._runs) and next(iter(self._runs)).status.is_done:
            raise InvariantViolated(f"The window starts with what is done: {self._runs.start}.")
