"""One partition of `__transaction_state` as its coordinator holds it: ids, appends, markers.

Knows how a change becomes durable. The theory: a change is *pending* from its append until that is
durable (then it is the state) or refused (then it never was); nothing else may change the id
meanwhile. An append that takes too long is answered as such and stays pending, since it may yet
become durable. Must not know what requests mean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from strandline.errors import ErrorCode, InvariantViolated
from strandline.protocol.coordinator_log import (
    APPEND_ERRORS,
    APPEND_UNDECIDED,
    CoordinatorRecord,
)
from strandline.transactions.effects import AppendRecords, CancelMarkers, Outbox, SendMarkers
from strandline.transactions.records import decode_record, encode_record
from strandline.transactions.settings import TransactionSettings
from strandline.transactions.transaction import PREPARED, Transaction
from strandline.types import Instant, LeaderEpoch

Answer: TypeAlias = Callable[[ErrorCode], None]
"""Told once how a change ended, or that its end takes too long."""
Later: TypeAlias = Callable[[Instant], None]

_COORDINATOR_ERRORS: Final = {
    **APPEND_ERRORS,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


@dataclass(slots=True)
class Surroundings:
    """What all shards of a coordinator share."""

    settings: TransactionSettings
    version: Callable[[], int]
    """The version of transactions that the cluster has now (`transaction.version`)."""
    outbox: Outbox = field(default_factory=Outbox)
    appends: int = 0
    """How many appends there have been; the newest one's id."""
    sends: int = 0
    """The newest `SendMarkers`."""
    appending: dict[int, Shard] = field(default_factory=dict)
    """Appends that have not ended, in their order."""
    awaited: dict[int, int] = field(default_factory=dict)
    """Those of them that a request waits for, and until when (monotonic ms). They come in the order
    of their deadlines, since all may take as long, so that the first is due first."""
    sending: dict[int, Shard] = field(default_factory=dict)
    """Markers under way."""
    retrying: dict[Shard, None] = field(default_factory=dict)
    """Shards in which the end of a transaction has to be written again."""
    waiting: dict[Waiter, Shard] = field(default_factory=dict)
    """Requests that wait for their id, in the order of their deadlines, as in `awaited`."""

    def next_deadline(self) -> int | None:
        """The monotonic time at which to call `answer_late`; None: nothing waits."""
        awaited = next(iter(self.awaited.values()), None)
        waiting = next((waiter.deadline_ms for waiter in self.waiting), None)
        return min([at for at in (awaited, waiting) if at is not None], default=None)

    def answer_late(self, now: Instant) -> None:
        """Answer the requests that have waited for too long."""
        for append_id, deadline_ms in list(self.awaited.items()):
            if deadline_ms > now.monotonic_ms:
                break
            self.appending[append_id].answer_late(append_id, ErrorCode.REQUEST_TIMED_OUT)
        for waiter, shard in list(self.waiting.items()):
            if waiter.deadline_ms > now.monotonic_ms:
                break
            shard.refuse_waiter(waiter, ErrorCode.CONCURRENT_TRANSACTIONS)


@dataclass(slots=True, eq=False)
class Entry:
    """One transactional id."""

    transactional_id: str
    current: Transaction
    """What is durable; of a new id what it begins with."""
    is_pending: bool = False
    """Whether a change is under way."""

    @property
    def is_busy(self) -> bool:
        """Whether no other change may begin: one is under way, or the markers of an end are."""
        return self.is_pending or self.current.state in PREPARED


@dataclass(slots=True, eq=False)
class Waiter:
    """A request that goes on when its id is no longer busy."""

    entry: Entry
    again: Later
    refused: Answer
    deadline_ms: int


class Change(NamedTuple):
    """What an id is to become; None: forgotten."""

    entry: Entry
    target: Transaction | None


@dataclass(slots=True)
class _PendingAppend:
    changes: tuple[Change, ...]
    answer: Answer | None
    durable: Later | None
    refused: Later | None


class Shard:
    """The state of one partition, under one leader epoch."""

    def __init__(
        self, partition: int, leader_epoch: LeaderEpoch, surroundings: Surroundings
    ) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.settings = surroundings.settings
        self.outbox = surroundings.outbox
        self.entries: dict[str, Entry] = {}
        self._surroundings = surroundings
        self._appends: dict[int, _PendingAppend] = {}
        """Those that are neither durable nor refused, in the order of the log."""
        self._sends: dict[int, Entry] = {}
        """Whose markers are under way."""
        self._retries: dict[Entry, int] = {}
        """Whose end could not be written, and when that is tried again."""
        self._waiters: dict[Entry, list[Waiter]] = {}
        """Requests that wait for an id, in the order of their arrival."""

    # Changes.

    def change(
        self,
        changes: Iterable[Change],
        now: Instant,
        *,
        answer: Answer | None = None,
        durable: Later | None = None,
        refused: Later | None = None,
    ) -> None:
        """Write what ids are to become, as one batch.

        `durable` runs when the changes are the state, before `answer`; `refused` if they never
        will be. Raises `InvariantViolated` for changes that cannot be encoded, and for an id that
        is being changed; then nothing has happened.
        """
        wanted = tuple(changes)
        for each in wanted:
            if each.entry.is_pending:
                raise InvariantViolated(f"{each.entry.transactional_id} is being changed already.")
        # Before anything is pending, which would be so for ever.
        version = self._surroundings.version()
        records = tuple(encode_record(c.entry.transactional_id, c.target, version) for c in wanted)
        for each in wanted:
            each.entry.is_pending = True
        self._surroundings.appends += 1
        append_id = self._surroundings.appends
        deadline_ms = now.monotonic_ms + self.settings.append_timeout_ms
        self._appends[append_id] = _PendingAppend(wanted, answer, durable, refused)
        self._surroundings.appending[append_id] = self
        if answer is not None:
            self._surroundings.awaited[append_id] = deadline_ms
        self.outbox.add(AppendRecords(append_id, self.partition, self.leader_epoch, records))

    def appended(self, append_id: int, error: ErrorCode | None, now: Instant) -> None:
        """An append of this shard has ended, or only takes longer."""
        if error in APPEND_UNDECIDED:
            self.answer_late(append_id, error)
            return
        pending = self._appends.pop(append_id)
        del self._surroundings.appending[append_id]
        self._surroundings.awaited.pop(append_id, None)
        for each in pending.changes:
            each.entry.is_pending = False
            if error is None and each.target is None:
                del self.entries[each.entry.transactional_id]
            elif error is None and each.target is not None:
                each.entry.current = each.target
        follow = pending.durable if error is None else pending.refused
        if follow is not None:
            follow(now)
        if pending.answer is not None:
            pending.answer(ErrorCode.NONE if error is None else coordinator_error(error))
        for each in pending.changes:
            self._let_go_on(each.entry, now)

    def answer_late(self, append_id: int, error: ErrorCode) -> None:
        """Let the request not wait any longer; the change stays pending."""
        self._surroundings.awaited.pop(append_id, None)
        pending = self._appends[append_id]
        answer, pending.answer = pending.answer, None
        if answer is not None:
            answer(coordinator_error(error))

    # Waiters.

    def wait(self, entry: Entry, now: Instant, again: Later, refused: Answer) -> None:
        """Run `again` as soon as a busy id is not busy any more. `refused` is told the error if
        that takes longer than `join_wait_max_ms`, or if another broker coordinates the id by then.
        """
        deadline_ms = now.monotonic_ms + self.settings.join_wait_max_ms
        waiter = Waiter(entry, again, refused, deadline_ms)
        self._waiters.setdefault(entry, []).append(waiter)
        self._surroundings.waiting[waiter] = self

    def refuse_waiter(self, waiter: Waiter, error: ErrorCode) -> None:
        """Let a request not wait any longer."""
        self._forget(waiter)
        waiter.refused(error)

    def _let_go_on(self, entry: Entry, now: Instant) -> None:
        """Run those that wait for an id, until one of them makes it busy again."""
        while not entry.is_busy and entry in self._waiters:
            waiter = self._waiters[entry][0]
            self._forget(waiter)
            waiter.again(now)

    def _forget(self, waiter: Waiter) -> None:
        del self._surroundings.waiting[waiter]
        left = self._waiters[waiter.entry]
        left.remove(waiter)
        if not left:
            del self._waiters[waiter.entry]

    # Markers.

    def send_markers(self, entry: Entry) -> None:
        """Have the transaction, whose end is durable, ended on its partitions."""
        self._surroundings.sends += 1
        send_id = self._surroundings.sends
        self._sends[send_id] = entry
        self._surroundings.sending[send_id] = self
        ending = entry.current
        self.outbox.add(
            SendMarkers(
                send_id,
                self.partition,
                ending.producer_id,
                ending.producer_epoch,
                ending.commits,
                self.leader_epoch,
                ending.client_version,
                ending.partitions,
            )
        )

    def markers_written(self, send_id: int, now: Instant) -> None:
        """Every partition has its marker that was sent for this shard."""
        del self._surroundings.sending[send_id]
        self._complete(self._sends.pop(send_id), now)

    def _complete(self, entry: Entry, now: Instant) -> None:
        """Write that the transaction is over; again and again, since it is decided."""
        self.change(
            [Change(entry, entry.current.completed(now.wall_ms))],
            now,
            refused=lambda at: self._retry(entry, at),
        )

    def _retry(self, entry: Entry, now: Instant) -> None:
        self._retries[entry] = now.monotonic_ms + self.settings.retry_ms
        self._surroundings.retrying[self] = None

    # Life.

    def replay(self, records: Iterable[CoordinatorRecord]) -> int:
        """Take in records of the log; returns how many made no sense and were skipped."""
        skipped = 0
        for record in records:
            found = decode_record(record)
            if found is None:
                skipped += 1
                continue
            transactional_id, transaction = found
            if transaction is None:
                self.entries.pop(transactional_id, None)
            else:
                self.entries[transactional_id] = Entry(transactional_id, transaction)
        return skipped

    def start(self) -> None:
        """Everything is loaded: go on with what the coordinator before this one had begun."""
        for entry in self.entries.values():
            if entry.current.state in PREPARED:
                self.send_markers(entry)

    def stop(self) -> None:
        """Another broker coordinates these ids now: requests that wait are told so."""
        for append_id in self._appends:
            self.answer_late(append_id, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            del self._surroundings.appending[append_id]
        for send_id in self._sends:
            del self._surroundings.sending[send_id]
        for waiter in [each for waiters in self._waiters.values() for each in waiters]:
            self.refuse_waiter(waiter, ErrorCode.NOT_COORDINATOR)
        self._appends.clear()
        self._sends.clear()
        self._retries.clear()
        self._surroundings.retrying.pop(self, None)
        self.outbox.add(CancelMarkers(self.partition))

    def next_retry(self) -> int | None:
        """The monotonic time at which an end is to be written again; the first is due first."""
        return next(iter(self._retries.values()), None)

    def retry(self, now: Instant) -> None:
        """Time has passed."""
        for entry in [each for each, at in self._retries.items() if at <= now.monotonic_ms]:
            del self._retries[entry]
            self._complete(entry, now)
        if not self._retries:
            self._surroundings.retrying.pop(self, None)

    def check(self) -> None:
        """Verify what the fields' comments promise."""
        changing = {c.entry for pending in self._appends.values() for c in pending.changes}
        ending = [*self._sends.values(), *self._retries]
        surroundings = self._surroundings
        awaited = {append_id for append_id, each in self._appends.items() if each.answer}
        if (
            any(surroundings.appending.get(each) is not self for each in self._appends)
            or any(surroundings.sending.get(each) is not self for each in self._sends)
            or awaited != self._appends.keys() & surroundings.awaited.keys()
            or bool(self._retries) != (self in surroundings.retrying)
        ):
            raise InvariantViolated("What is under way is not known to the coordinator.")
        waiters = [waiter for waiters in self._waiters.values() for waiter in waiters]
        if not all(
            waiter.entry.is_busy and surroundings.waiting.get(waiter) is self for waiter in waiters
        ):
            raise InvariantViolated("A request waits for an id that is not busy.", invariant="I-36")
        if len(ending) != len(set(ending)) or changing & set(ending):
            raise InvariantViolated("A transaction is ended twice.")
        for transactional_id, entry in self.entries.items():
            if entry.transactional_id != transactional_id:
                raise InvariantViolated(f"{entry.transactional_id} is kept as {transactional_id}.")
            if entry.is_pending != (entry in changing):
                raise InvariantViolated(
                    f"{transactional_id} waits for an append that is not there."
                )
            is_ending = entry.current.state in PREPARED
            if is_ending != (entry in ending or (is_ending and entry.is_pending)):
                raise InvariantViolated(
                    f"The end of {transactional_id} is not pursued, or in vain.", invariant="I-36"
                )


def coordinator_error(error: ErrorCode) -> ErrorCode:
    """What a client is told if an append ended with `error`."""
    return _COORDINATOR_ERRORS.get(error, error)
